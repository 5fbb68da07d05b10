package content_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"

	"holdfast"
	"holdfast/worker/content"
)

func open(t *testing.T, path string) *content.Store {
	t.Helper()
	s, err := content.Open(path, content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// random makes n bytes.
func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// read reads all of some content.
func read(ctx context.Context, s *content.Store, d digest.Digest) ([]byte, error) {
	info, err := s.Info(ctx, d)
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size+1)
	n, err := s.ReadAt(ctx, d, b, 0)
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("at the end of %s: %w", d, err)
	}
	return b[:n], nil
}

// A model does what a Store should do, in memory.
type model struct {
	content map[digest.Digest][]byte
	ingests map[string][]byte
	writers map[string]*content.Writer
}

// TestModel does what comes to its mind, also to a store that is closed and opened, and compares with a model.
func TestModel(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 22))
			path := filepath.Join(t.TempDir(), "content.db")
			s := open(t, path)
			m := model{map[digest.Digest][]byte{}, map[string][]byte{}, map[string]*content.Writer{}}
			for i := range 300 {
				if r.IntN(40) == 0 {
					for ref := range m.writers {
						m.write(ctx, t, r, s, ref)
					}
					if err := s.Close(); err != nil { // which closes the writers
						t.Fatal(err)
					}
					clear(m.writers)
					s = open(t, path)
				}
				m.step(ctx, t, r, s, fmt.Sprint("ref", r.IntN(5)))
				if i%50 == 49 {
					m.compare(ctx, t, s)
				}
			}
		})
	}
}

// write writes a piece of any size.
func (m *model) write(ctx context.Context, t *testing.T, r *rand.Rand, s *content.Store, ref string) {
	w := m.writers[ref]
	if w == nil {
		var err error
		if w, err = s.Writer(ctx, ref, content.Expected{}); err != nil {
			t.Fatal(err)
		}
		if got := w.Status().Offset; got != int64(len(m.ingests[ref])) {
			t.Fatalf("%s goes on at %d, wanted %d", ref, got, len(m.ingests[ref]))
		}
		m.writers[ref] = w
	}
	n := r.IntN(1000)
	if r.IntN(10) == 0 {
		n = r.IntN(5 << 20)
	}
	b := random(r, n)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	m.ingests[ref] = append(m.ingests[ref], b...)
}

// step does one thing.
func (m *model) step(ctx context.Context, t *testing.T, r *rand.Rand, s *content.Store, ref string) {
	w, data := m.writers[ref], m.ingests[ref]
	switch what := r.IntN(10); {
	case what < 4:
		m.write(ctx, t, r, s, ref)
	case what < 6 && w != nil:
		if r.IntN(3) == 0 { // what is there already
			for _, have := range m.content {
				if err := w.Truncate(ctx, 0); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(have); err != nil {
					t.Fatal(err)
				}
				data = have
				break
			}
		}
		d := digest.FromBytes(data)
		_, there := m.content[d]
		_, err := w.Commit(ctx, int64(len(data)), d, map[string]string{"len": fmt.Sprint(len(data))})
		if there != errors.Is(err, content.ErrExists) || !there && err != nil {
			t.Fatalf("commit: %v; it was there: %v", err, there)
		}
		m.content[d] = data
		delete(m.ingests, ref)
		delete(m.writers, ref)
	case what == 6 && w != nil:
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok := m.ingests[ref]; !ok {
			m.ingests[ref] = nil
		}
		delete(m.writers, ref)
	case what == 7:
		_, there := m.ingests[ref]
		if err := s.Abort(ctx, ref); there != (err == nil) || !there && !errors.Is(err, content.ErrNotFound) && w == nil {
			t.Fatalf("abort of %s: %v; there was one: %v", ref, err, there)
		}
		if w != nil {
			if _, err := w.Write([]byte("x")); !errors.Is(err, content.ErrClosed) {
				t.Fatalf("a write after abort: %v", err)
			}
		}
		delete(m.ingests, ref)
		delete(m.writers, ref)
	case what == 8 && len(m.content) > 3:
		for d := range m.content {
			if err := s.Delete(ctx, d); err != nil {
				t.Fatal(err)
			}
			delete(m.content, d)
			break
		}
	}
}

// compare compares all.
func (m *model) compare(ctx context.Context, t *testing.T, s *content.Store) {
	t.Helper()
	var all []digest.Digest
	err := s.Walk(ctx, func(i content.Info) error {
		all = append(all, i.Digest)
		if want, ok := m.content[i.Digest]; !ok || i.Size != int64(len(want)) || i.Labels["len"] != fmt.Sprint(len(want)) {
			t.Errorf("%+v, wanted %d bytes (%v)", i, len(want), ok)
		}
		return nil
	})
	if err != nil || !slices.Equal(all, slices.Sorted(maps.Keys(m.content))) {
		t.Fatalf("walk: %v, %v", all, err)
	}
	for d, want := range m.content {
		if got, err := read(ctx, s, d); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v; wanted %d", d, len(got), err, len(want))
		}
	}
	list, err := s.Statuses(ctx)
	if err != nil || len(list) != len(m.ingests) {
		t.Fatalf("%d ingests, wanted %d: %v", len(list), len(m.ingests), err)
	}
	for _, st := range list {
		if want, ok := m.ingests[st.Ref]; !ok || st.Offset != int64(len(want)) {
			t.Fatalf("%+v, wanted %d (%v)", st, len(want), ok)
		}
		if one, err := s.Status(ctx, st.Ref); err != nil || one.Offset != st.Offset {
			t.Fatalf("%+v, %v; in the list %+v", one, err, st)
		}
	}
}

// TestRefused: what a client must not do, and what that leaves.
func TestRefused(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	data := []byte("some content")
	d := digest.FromBytes(data)
	other := digest.FromString("other")
	for name, e := range map[string]content.Expected{
		"": {}, strings.Repeat("x", 5000): {}, "size": {Size: -1}, "digest": {Digest: "sha256:abc"}, "algorithm": {Digest: digest.Digest("sha512:" + strings.Repeat("ab", 64))},
	} {
		if _, err := s.Writer(ctx, name, e); !errors.Is(err, content.ErrInvalid) {
			t.Errorf("Writer(%.20q, %v): %v", name, e, err)
		}
	}
	w, err := s.Writer(ctx, "a", content.Expected{Size: int64(len(data)), Digest: d})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Writer(ctx, "a", content.Expected{}); !errors.Is(err, content.ErrBusy) {
		t.Errorf("a second writer: %v", err)
	}
	if _, err := w.Write(data[:5]); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(ctx, 0, "", nil); !errors.Is(err, content.ErrMismatch) {
		t.Errorf("a commit of too little: %v", err)
	}
	if err := w.Truncate(ctx, 3); !errors.Is(err, content.ErrOffset) {
		t.Errorf("cut off at 3: %v", err)
	}
	if _, err := w.Write(data[5:]); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(ctx, 0, other, nil); !errors.Is(err, content.ErrMismatch) {
		t.Errorf("a commit with another digest: %v", err)
	}
	if _, err := w.Commit(ctx, 0, "", map[string]string{"a": strings.Repeat("x", 300<<10)}); !errors.Is(err, content.ErrInvalid) {
		t.Errorf("a commit with long labels: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Writer(ctx, "a", content.Expected{Digest: other}); !errors.Is(err, content.ErrInvalid) {
		t.Errorf("going on with another digest: %v", err)
	}
	if w, err = s.Writer(ctx, "a", content.Expected{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(ctx, 0, "", map[string]string{"k": "v"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); !errors.Is(err, content.ErrClosed) {
		t.Errorf("a write after commit: %v", err)
	}
	if _, err := s.Writer(ctx, "b", content.Expected{Digest: d}); !errors.Is(err, content.ErrExists) {
		t.Errorf("a writer of what is there: %v", err)
	}
	if _, err := s.ReadAt(ctx, d, data, -1); !errors.Is(err, content.ErrOffset) {
		t.Errorf("a read at -1: %v", err)
	}
	if _, err := s.ReadAt(ctx, other, data, 0); !errors.Is(err, content.ErrNotFound) {
		t.Errorf("a read of what is not there: %v", err)
	}
	if _, err := s.Update(ctx, content.Info{Digest: d}, "size"); !errors.Is(err, content.ErrInvalid) {
		t.Errorf("another size: %v", err)
	}
	info, err := s.Update(ctx, content.Info{Digest: d, Labels: map[string]string{"k2": "v2"}}, "labels.k2")
	if err != nil || len(info.Labels) != 2 {
		t.Errorf("labels: %v, %v", info.Labels, err)
	}
}

// TestNoTransactionWaits: a list or a read whose caller takes its time would keep the file from reusing space.
func TestNoTransactionWaits(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	for i := range 3 {
		put(ctx, t, s, fmt.Appendf(nil, "content %d", i))
	}
	n := 0
	err := s.Walk(ctx, func(i content.Info) error {
		if open := s.DB().Stats().OpenTxN; open != 0 {
			t.Errorf("%d transactions are open", open)
		}
		n++
		return s.Delete(ctx, i.Digest)
	})
	if err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
}

func put(ctx context.Context, t *testing.T, s *content.Store, data []byte) digest.Digest {
	t.Helper()
	w, err := s.Writer(ctx, fmt.Sprintf("put-%x", sha256.Sum256(data)), content.Expected{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit(ctx, 0, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return info.Digest
}

// TestManyWriters: all at once, some of the same content, with others that abort, list and delete meanwhile.
func TestManyWriters(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for i := range 10 {
				data := random(rand.New(rand.NewPCG(uint64(r.IntN(20)), 2)), 10_000+r.IntN(2)*300_000)
				ref := fmt.Sprintf("%d-%d", c, i)
				w, err := s.Writer(ctx, ref, content.Expected{})
				if err != nil {
					t.Error(err)
					return
				}
				if i%5 == 4 {
					go func() { _ = s.Abort(ctx, ref) }() // of a writer that writes
				}
				_, err = w.Write(data)
				if err == nil {
					_, err = w.Commit(ctx, 0, "", nil)
				}
				if err != nil && !errors.Is(err, content.ErrExists) && !errors.Is(err, content.ErrClosed) {
					t.Error(err)
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
				if _, err := s.Statuses(ctx); err != nil {
					t.Error(err)
				}
				if err := s.Delete(ctx, digest.FromBytes(data)); err != nil && !errors.Is(err, content.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if list, err := s.Statuses(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

// TestDamagedRecords: what the file says can be anything. It is an error, and what is damaged can be removed.
func TestDamagedRecords(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "content.db")
	s, err := content.Open(path, content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := put(ctx, t, s, []byte("content"))
	w, err := s.Writer(ctx, "a", content.Expected{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "x", "{}", `{"blob":"inline:","size":-1}`, `{"size":5}`, `{"size":-1}`, `{"size":1,"sha256":"AAAA"}`, `{"want":"sha256:1"}`} {
		change(t, path, func(tx *holdfast.Tx) error {
			return errors.Join(tx.Bucket([]byte("content")).ForEach(func(k, _ []byte) error { return tx.Bucket([]byte("content")).Put(k, []byte(value)) }),
				tx.Bucket([]byte("ingests")).Put([]byte("a"), []byte(value)))
		})
		s := open(t, path)
		if _, err := s.Info(ctx, d); !errors.Is(err, content.ErrCorrupt) {
			t.Errorf("%s: info: %v", value, err)
		}
		if err := s.Walk(ctx, func(content.Info) error { return nil }); !errors.Is(err, content.ErrCorrupt) {
			t.Errorf("%s: walk: %v", value, err)
		}
		if w, err := s.Writer(ctx, "a", content.Expected{}); !errors.Is(err, content.ErrCorrupt) {
			if err == nil { // a record of nothing: the hash of what is there is missing
				err = w.Close()
			}
			t.Errorf("%s: writer: %v", value, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s = open(t, path)
	if err := s.Abort(ctx, "a"); err != nil {
		t.Errorf("abort of a damaged ingest: %v", err)
	}
	if list, err := s.Statuses(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

// change changes a file of the engine.
func change(t *testing.T, path string, fn func(*holdfast.Tx) error) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSpaceIsFreed: what is deleted, and what is given up, leaves no chunk.
func TestSpaceIsFreed(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	r := rand.New(rand.NewPCG(1, 2))
	d := put(ctx, t, s, random(r, 20<<20))
	w, err := s.Writer(ctx, "a", content.Expected{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(random(r, 20<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), s.Delete(ctx, d), s.Abort(ctx, "a"), s.Freed(ctx)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Chunks(); err != nil || n != 0 {
		t.Errorf("%d chunks are left, %v", n, err)
	}
}
