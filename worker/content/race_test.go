package content_test

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"holdfast/worker/content"
)

// TestAbortBesideWriter: Abort of a ref that had no writer removed what a new writer had just found there. That writer was then told
// that the file was damaged. Status told of a writer that had ended, too.
func TestAbortBesideWriter(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	stop := time.Now().Add(3 * time.Second)
	var all sync.WaitGroup
	all.Go(func() {
		for time.Now().Before(stop) {
			if err := s.Abort(ctx, "a"); err != nil && !errors.Is(err, content.ErrNotFound) {
				t.Errorf("abort: %v", err)
				return
			}
		}
	})
	all.Go(func() {
		for time.Now().Before(stop) {
			if got, err := s.Status(ctx, "a"); err == nil && got.Started.IsZero() || err != nil && !errors.Is(err, content.ErrNotFound) {
				t.Errorf("status: %+v, %v", got, err)
				return
			}
		}
	})
	for time.Now().Before(stop) {
		w, err := s.Writer(ctx, "a", content.Expected{})
		if errors.Is(err, content.ErrBusy) {
			continue
		}
		if err != nil {
			t.Error(err)
			break
		}
		_, err = w.Write(make([]byte, 100))
		if err = errors.Join(err, w.Close()); err != nil && !errors.Is(err, content.ErrClosed) {
			t.Errorf("a writer beside aborts: %v", err)
			break
		}
	}
	all.Wait()
}

// TestEdges: reads at the ends of what there can be, and a file that another store has.
func TestEdges(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "content.db")
	s := open(t, path)
	for _, data := range []string{"", "content"} {
		d := put(ctx, t, s, []byte(data))
		if d != digest.FromString(data) {
			t.Errorf("%q: %s", data, d)
		}
		for _, offset := range []int64{int64(len(data)), int64(len(data)) + 1, math.MaxInt64 - 1, math.MaxInt64} {
			if n, err := s.ReadAt(ctx, d, make([]byte, 3<<20), offset); n != 0 || err == nil {
				t.Errorf("%q at %d: %d bytes, %v", data, offset, n, err)
			}
		}
		if n, err := s.ReadAt(ctx, d, nil, 0); n != 0 || err != nil && len(data) > 0 {
			t.Errorf("%q, no bytes: %d, %v", data, n, err)
		}
	}
	if other, err := content.Open(path, content.Options{Timeout: 50 * time.Millisecond}); err == nil {
		t.Error("a second store has the file", other.Close())
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	_, err := s.Info(ctx, digest.FromString(""))
	for what, err := range map[string]error{
		"info": err, "abort": s.Abort(ctx, "a"), "delete": s.Delete(ctx, digest.FromString("")), "walk": s.Walk(ctx, nil),
	} {
		if !errors.Is(err, content.ErrClosed) {
			t.Errorf("%s of a closed store: %v", what, err)
		}
	}
}
