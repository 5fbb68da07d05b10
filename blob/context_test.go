package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"holdfast"
)

func TestWithContext(t *testing.T) {
	data := random(1, 300_000)
	must(t, iotest.TestReader(WithContext(context.Background(), bytes.NewReader(data)), data))

	db := newStore(t, small[0])
	ctx, cancel := context.WithCancel(context.Background())
	read := 0
	source := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errPlanted))
	stops := WithContext(ctx, readerFunc(func(p []byte) (int, error) {
		n, err := source.Read(p[:min(len(p), 1000)])
		if read += n; read >= 100_000 {
			cancel()
		}
		return n, err
	}))
	update(t, db, func(s *Store) {
		w := s.Writer()
		if _, err := w.ReadFrom(stops); !errors.Is(err, context.Canceled) {
			t.Errorf("ReadFrom: %v", err)
		}
		if _, err := w.Commit(); !errors.Is(err, context.Canceled) {
			t.Errorf("Commit: %v", err)
		}
	})
	if read > 101_000 {
		t.Errorf("%d bytes were read", read)
	}
	view(t, db, func(s *Store) {
		if n := checkStore(t, s); n != 0 {
			t.Errorf("%d chunks are stored", n)
		}
	})
	if n, err := stops.Read(make([]byte, 10)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}

	// What an ingest has got is kept.
	ctx, cancel = context.WithCancel(context.Background())
	var offset int64
	must(t, db.Update(func(tx *holdfast.Tx) error {
		in := must2(openIn(tx).Ingest("in", IngestOptions{}))
		half := io.MultiReader(bytes.NewReader(data[:150_000]), readerFunc(func(p []byte) (int, error) { cancel(); return 1, nil }))
		if _, err := in.ReadFrom(WithContext(ctx, half)); !errors.Is(err, context.Canceled) {
			t.Errorf("Ingest.ReadFrom: %v", err)
		}
		offset = in.Offset()
		return in.Save()
	}))
	if offset != 150_001 {
		t.Errorf("%d bytes were kept", offset)
	}
	// An error that comes of it is the context's, as of a connection that context.AfterFunc has closed.
	ctx, cancel = context.WithCancel(context.Background())
	closed := readerFunc(func([]byte) (int, error) { cancel(); return 3, errPlanted })
	if n, err := WithContext(ctx, closed).Read(make([]byte, 3)); n != 3 || err != context.Canceled {
		t.Errorf("%d, %v", n, err)
	}
	// The end of a reader counts, though the context is done meanwhile.
	ctx, cancel = context.WithTimeout(context.Background(), time.Hour)
	if n, err := WithContext(ctx, readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF })).Read(nil); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}

type readerFunc func(p []byte) (int, error)

func (r readerFunc) Read(p []byte) (int, error) { return r(p) }
