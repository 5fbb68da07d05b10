package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"holdfast"
)

func openDetached(t testing.TB, db *holdfast.DB, ref Ref) *DetachedReader {
	t.Helper()
	return value(t, must2(OpenReader(context.Background(), db, openStoreOf, ref)), nil)
}

// A detached reader behaves as one of bytes, and has no transaction between calls.
func TestDetachedReader(t *testing.T) {
	for _, o := range append(small, Options{}) {
		t.Run(o.String(), func(t *testing.T) {
			db := newStore(t, o)
			for _, size := range []int{0, 1, 1024, 1025, 300_000, 2*detachedPiece + 70_000} {
				data := random(uint64(size), size)
				var ref, inline Ref
				update(t, db, func(s *Store) { ref, inline = must2(s.Put(data)), putInline(s, data) })
				for _, ref := range []Ref{ref, inline} {
					r := openDetached(t, db, ref)
					if size < 5000 { // it reads byte by byte
						must(t, iotest.TestReader(r, data))
					}
					must2(r.Seek(5, io.SeekStart))
					var got bytes.Buffer
					n, err := r.WriteTo(badWriter(func(p []byte) (int, error) {
						if n := db.Stats().OpenTxN; n != 0 {
							t.Errorf("%d transactions are open while the writer has the bytes", n)
						}
						return got.Write(p)
					}))
					if want := data[min(5, size):]; err != nil || int(n) != len(want) || !bytes.Equal(got.Bytes(), want) {
						t.Errorf("%d bytes: WriteTo gave %d, %v", size, n, err)
					}
					p := make([]byte, size+10)
					if n, err := r.ReadAt(p, 0); n != size || err != io.EOF || !bytes.Equal(p[:n], data) {
						t.Errorf("%d bytes: ReadAt gave %d, %v", size, n, err)
					}
					if n, err := r.ReadAt(p, -1); n != 0 || !errors.Is(err, errOffset) {
						t.Errorf("ReadAt(-1): %d, %v", n, err)
					}
					for _, past := range []int{0, 5} {
						if n, err := r.ReadAt(p, int64(size+past)); n != 0 || err != io.EOF {
							t.Errorf("ReadAt %d bytes past the end: %d, %v", past, n, err)
						}
					}
					if n := db.Stats().OpenTxN; n != 0 || r.Size() != int64(size) || r.Ref() != ref {
						t.Errorf("%d transactions are open, size %d, %v", n, r.Size(), r.Ref())
					}
				}
			}
		})
	}
}

// A writer that could read is written to, in pieces of WriteTo's own.
func TestDetachedReaderPieces(t *testing.T) {
	db := newStore(t, small[0])
	data := random(1, 2*detachedBuffer+5)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(data)) })
	w := readingWriter{}
	if n, err := openDetached(t, db, ref).WriteTo(&w); n != int64(len(data)) || err != nil || !slices.Equal(w.pieces, []int{detachedBuffer, detachedBuffer, 5}) {
		t.Errorf("%d, %v, in %d", n, err, w.pieces)
	}
}

type readingWriter struct{ pieces []int }

func (w *readingWriter) Write(p []byte) (int, error) {
	w.pieces = append(w.pieces, len(p))
	return len(p), nil
}

func (w *readingWriter) ReadFrom(io.Reader) (int64, error) { return 0, errPlanted }

// The blob is deleted and stored again elsewhere, and the reader goes on; it is removed, in part or whole, and the reader says so.
func TestDetachedReaderFindsByContent(t *testing.T) {
	db := newStore(t, Options{})
	data := random(1, 5*65488)
	var ref Ref
	put := func() { update(t, db, func(s *Store) { ref = must2(s.Put(data)) }) }
	remove := func() {
		update(t, db, func(s *Store) { must(t, s.Delete(ref)) })
		must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	}
	put()
	r := openDetached(t, db, ref)
	p := make([]byte, len(data)/2)
	must2(io.ReadFull(r, p))
	for range 3 {
		remove()
		update(t, db, func(s *Store) { must2(s.Put(random(9, 3*65488))) }) // in its place
		put()
	}
	if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(slices.Concat(p, rest), data) {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		k := chunkKey{addr: s.options.sum(data[2*65488 : 3*65488])}
		e, _, err := s.lookup(&k)
		must(t, err)
		return s.leaves.Delete(binary.BigEndian.AppendUint64(nil, e.id))
	}))
	says := func(err error, what error, at string) {
		t.Helper()
		if !errors.Is(err, what) || !strings.Contains(err.Error(), ref.String()) || !strings.Contains(err.Error(), at) {
			t.Errorf("%v, want %v, %s", err, what, at)
		}
	}
	all := make([]byte, len(data))
	n, err := r.ReadAt(all, 0)
	says(err, ErrMissing, "at offset 130976: blob")
	if n != 2*65488 || !bytes.Equal(all[:n], data[:n]) {
		t.Errorf("%d bytes before it", n)
	}
	must(t, db.Update(func(tx *holdfast.Tx) error { return tx.DeleteBucket(storeName) }))
	_, err = r.ReadAt(all, 7)
	says(err, ErrNotStore, "at offset 7")
	must(t, db.Update(func(tx *holdfast.Tx) error {
		_, err := Create(must2(tx.CreateBucket(storeName)), Options{})
		return err
	}))
	_, err = r.ReadAt(all, 7)
	says(err, ErrNotFound, "at offset 7")
	_, err = OpenReader(context.Background(), db, openStoreOf, ref)
	says(err, ErrNotFound, "opening")
	_, err = OpenReader(context.Background(), db, openStoreOf, Ref{})
	if !errors.Is(err, ErrInvalidRef) {
		t.Error(err)
	}
	_, err = OpenReader(context.Background(), db, func(*holdfast.Tx) (*Store, error) { return nil, errPlanted }, ref)
	says(err, errPlanted, "opening")
	must(t, db.Close())
	_, err = r.ReadAt(all, 7)
	says(err, holdfast.ErrDatabaseNotOpen, "at offset 7")
}

// A detached reader ends with its context, and by Close, also in the middle of a call.
func TestDetachedReaderEnds(t *testing.T) {
	db := newStore(t, small[0])
	data := random(1, 5*detachedPiece)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(data)) })
	for what, want := range map[string]error{"context": context.Canceled, "close": fs.ErrClosed} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r := must2(OpenReader(ctx, db, openStoreOf, ref))
		end := func() {
			if what == "close" {
				must(t, r.Close())
				return
			}
			cancel()
		}
		n, err := r.WriteTo(badWriter(func(p []byte) (int, error) { end(); return len(p), nil }))
		if !errors.Is(err, want) || n != detachedBuffer {
			t.Errorf("%s: WriteTo: %d, %v", what, n, err)
		}
		if n, err := r.ReadAt(make([]byte, 10), 5); n != 0 || !errors.Is(err, want) {
			t.Errorf("%s: ReadAt: %d, %v", what, n, err)
		}
		if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, want) {
			t.Errorf("%s: Read: %d, %v", what, n, err)
		}
		if _, err := OpenReader(ctx, db, openStoreOf, ref); what == "context" && !errors.Is(err, want) {
			t.Errorf("OpenReader: %v", err)
		}
	}
	// In the second of the transactions of one call.
	ctx, cancel := context.WithCancel(context.Background())
	opened := 0
	r := must2(OpenReader(ctx, db, func(tx *holdfast.Tx) (*Store, error) {
		if opened++; opened == 2 {
			cancel()
		}
		return openStoreOf(tx)
	}, ref))
	p := make([]byte, len(data))
	if n, err := r.ReadAt(p, 0); n != detachedPiece || !errors.Is(err, context.Canceled) || !bytes.Equal(p[:n], data[:n]) {
		t.Errorf("ReadAt: %d, %v", n, err)
	}
}

// Several goroutines may read, and one close, while others write.
func TestDetachedReaderConcurrent(t *testing.T) {
	db := newStore(t, small[0])
	data := random(1, 100_000)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(data)) })
	r := openDetached(t, db, ref)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			p := make([]byte, 4096)
			for i := 0; ; i++ {
				at := (i*7919 + g*1001) % (len(data) - len(p))
				_, err := r.ReadAt(p, int64(at))
				if errors.Is(err, fs.ErrClosed) {
					return
				}
				if err != nil || !bytes.Equal(p, data[at:at+len(p)]) {
					t.Errorf("at %d: %v", at, err)
					return
				}
			}
		})
	}
	for i := range 50 {
		must(t, db.Update(func(tx *holdfast.Tx) error { _, err := openIn(tx).Put(random(uint64(i), 20_000)); return err }))
	}
	must(t, r.Close())
	wg.Wait()
}

// Damage ends a read where it is; what a transaction has read that fails at its end is not given.
func TestDetachedReaderDamage(t *testing.T) {
	const leaf, bad = 65488, 11
	data := random(2, 20*leaf+5)
	db := newStore(t, Options{})
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(data)) })
	must(t, db.Update(func(tx *holdfast.Tx) error {
		return must2(tx.CreateBucket([]byte("other"))).Put([]byte("k"), bytes.Repeat([]byte("other"), 10_000))
	}))
	db = changedFile(t, db, func(file []byte) {
		file[bytes.Index(file, data[bad*leaf:bad*leaf+100])+50] ^= 8
		file[bytes.Index(file, []byte("otherother"))+1000] ^= 8
	})
	var at []byte
	all := make([]byte, len(data))
	for what, read := range map[string]func(r *DetachedReader) error{
		"ReadAt":  func(r *DetachedReader) error { n, err := r.ReadAt(all, 0); at = all[:n]; return err },
		"ReadAll": func(r *DetachedReader) (err error) { at, err = io.ReadAll(r); return err },
		"WriteTo": func(r *DetachedReader) error {
			var b bytes.Buffer
			_, err := r.WriteTo(&b)
			at = b.Bytes()
			return err
		},
	} {
		var where *CorruptError
		err := read(openDetached(t, db, ref))
		if !errors.As(err, &where) || where.Offset != bad*leaf || !bytes.Equal(at, data[:bad*leaf]) {
			t.Errorf("%s: %d bytes, %v", what, len(at), err)
		}
	}
	fails := false
	r := must2(OpenReader(context.Background(), db, func(tx *holdfast.Tx) (*Store, error) {
		s, err := openStoreOf(tx)
		if fails {
			tx.Bucket([]byte("other")).KeepDamage().Get([]byte("k"))
		}
		return s, err
	}, ref))
	fails = true
	var page *holdfast.CorruptError
	if n, err := r.ReadAt(all[:100], 0); n != 0 || !errors.As(err, &page) {
		t.Errorf("%d bytes of a transaction that fails, %v", n, err)
	}
}
