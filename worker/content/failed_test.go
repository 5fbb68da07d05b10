package content_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"holdfast"
	"holdfast/blob"
	"holdfast/worker/content"
)

// spoil has each save of a ref fail, as a full disk does: the file has other data of it than the writer expects.
func spoil(t *testing.T, s *content.Store, ref string) {
	t.Helper()
	sum := sha256.Sum256([]byte(ref))
	err := s.DB().Update(func(tx *holdfast.Tx) error {
		b, err := blob.Open(tx.Bucket([]byte("blobs")))
		if err != nil {
			return err
		}
		in, err := b.Ingest(hex.EncodeToString(sum[:]), blob.IngestOptions{})
		if err != nil {
			return err
		}
		_, err = in.Write([]byte("other"))
		return errors.Join(err, in.Save())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// failing is a writer that has taken what it then could not save.
func failing(t *testing.T, s *content.Store, ref string) *content.Writer {
	t.Helper()
	w, err := s.Writer(context.Background(), ref, content.Expected{})
	if err != nil {
		t.Fatal(err)
	}
	spoil(t, s, ref)
	if _, err := w.Write(make([]byte, 5<<20)); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestCloseAfterFailedSave: Write had taken the data, saving them in the background failed, and Close said that all was well: what
// was acknowledged was lost without an error.
func TestCloseAfterFailedSave(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	if err := failing(t, s, "a").Close(); !errors.Is(err, content.ErrCorrupt) {
		t.Errorf("close of a writer whose data are not saved: %v", err)
	}
}

// TestTruncateAfterFailedSave: a writer whose first save had failed could not begin anew, because there was nothing to be removed.
func TestTruncateAfterFailedSave(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	w := failing(t, s, "a")
	if err := w.Truncate(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 5<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(ctx, 5<<20, "", nil); err != nil {
		t.Error(err)
	}
}

// TestAbortAfterFailedSave: Abort of a writer whose first save had failed found nothing to remove, and left it its ref.
func TestAbortAfterFailedSave(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	failing(t, s, "a")
	if err := s.Abort(ctx, "a"); err != nil {
		t.Error(err)
	}
	w, err := s.Writer(ctx, "a", content.Expected{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), s.Abort(ctx, "a")); err != nil {
		t.Error(err)
	}
}

// TestDamagedContent: what had a damaged record, or no blob any more, could not be deleted. With a damaged record it could not be
// written again either: Commit said that it was there, and gave up what was written.
func TestDamagedContent(t *testing.T) {
	ctx := context.Background()
	data := make([]byte, 1<<20)
	rows := []byte("content")
	for name, damage := range map[string]func(*holdfast.Tx, []byte, []byte) error{
		"no JSON":   func(tx *holdfast.Tx, k, _ []byte) error { return tx.Bucket(rows).Put(k, []byte("x")) },
		"no blob":   func(tx *holdfast.Tx, k, _ []byte) error { return tx.Bucket(rows).Put(k, []byte(`{"size":5}`)) },
		"lost blob": loseBlob,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "content.db")
			s := open(t, path)
			d := put(ctx, t, s, data)
			hurt := func() {
				err := s.DB().Update(func(tx *holdfast.Tx) error {
					k, v := tx.Bucket(rows).Cursor().First()
					return damage(tx, append([]byte(nil), k...), append([]byte(nil), v...))
				})
				if err := errors.Join(err, s.Freed(ctx)); err != nil {
					t.Fatal(err)
				}
			}
			hurt()
			if name != "lost blob" {
				if got := put(ctx, t, s, data); got != d {
					t.Errorf("it is %s now", got)
				}
				if _, err := read(ctx, s, d); err != nil {
					t.Errorf("what was written again: %v", err)
				}
				hurt()
			}
			if err := s.Delete(ctx, d); err != nil {
				t.Errorf("delete: %v", err)
			}
			put(ctx, t, s, data)
			if b, err := read(ctx, s, d); err != nil || len(b) != len(data) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
}

// loseBlob removes the blob of content, and leaves the record.
func loseBlob(tx *holdfast.Tx, _, v []byte) error {
	var r struct {
		Blob blob.Ref `json:"blob"`
	}
	if err := json.Unmarshal(v, &r); err != nil {
		return err
	}
	b, err := blob.Open(tx.Bucket([]byte("blobs")))
	if err != nil {
		return err
	}
	return b.Delete(r.Blob)
}

// A fading context ends when it was asked a number of times.
type fading struct {
	context.Context
	asked, ends int
}

func (c *fading) Err() error {
	if c.asked++; c.asked > c.ends {
		return context.Canceled
	}
	return nil
}

// TestExistsGivesUp: a client that left while its Commit found that there was such content already left what it had written, and
// nothing would remove that.
func TestExistsGivesUp(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	data := make([]byte, 5<<20) // enough to be saved
	put(ctx, t, s, data)
	for ends := range 4 {
		w, err := s.Writer(ctx, "a", content.Expected{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		_, err = w.Commit(&fading{ctx, 0, ends}, 0, "", nil)
		if errors.Is(err, content.ErrExists) {
			if got, err := s.Status(ctx, "a"); !errors.Is(err, content.ErrNotFound) {
				t.Errorf("%+v is left, %v", got, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Abort(ctx, "a"); err != nil && !errors.Is(err, content.ErrNotFound) {
			t.Fatal(err)
		}
	}
}

// TestMemoryOfWriters: each writer kept the buffer of its largest write until it ended: thousands of idle ones had many GiB.
func TestMemoryOfWriters(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	data := make([]byte, 8<<20)
	for i := range 40 {
		w, err := s.Writer(ctx, fmt.Sprint("ref", i), content.Expected{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	var m runtime.MemStats
	for range 50 { // the last saves end
		runtime.GC()
		if runtime.ReadMemStats(&m); m.HeapAlloc < 100<<20 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("40 writers that have saved all take %d MiB", m.HeapAlloc>>20)
}

// TestNotUTF8: a label of other bytes was changed to what JSON made of it; a ref of such could not be listed to clients.
func TestNotUTF8(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "content.db"))
	if w, err := s.Writer(ctx, "\xff", content.Expected{}); !errors.Is(err, content.ErrInvalid) {
		t.Errorf("a ref: %v", err)
		_ = w.Close()
	}
	d := put(ctx, t, s, []byte("content"))
	for _, labels := range []map[string]string{{"\xff": "v"}, {"k": "\xff"}} {
		if info, err := s.Update(ctx, content.Info{Digest: d, Labels: labels}); !errors.Is(err, content.ErrInvalid) {
			t.Errorf("%q: %q, %v", labels, info.Labels, err)
		}
	}
}

// TestAtOnce does all that ends a writer while it writes, and closes the store in the end: nothing waits for ever, and what was
// committed is there.
func TestAtOnce(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "content.db")
	s := open(t, path)
	var all sync.WaitGroup
	var mu sync.Mutex
	committed := map[digest.Digest]int64{}
	for g := range 3 {
		all.Go(func() {
			for i := 0; ; i++ {
				w, err := s.Writer(ctx, "a", content.Expected{})
				if errors.Is(err, content.ErrBusy) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					return
				}
				data := make([]byte, 3<<20)
				data[0], data[1] = byte(g), byte(i)
				var users sync.WaitGroup
				users.Go(func() { _, _ = w.Write(data) })
				users.Go(func() { _, _ = w.Write(data) })
				for j, fn := range []func(){
					func() { _ = w.Truncate(ctx, 0) }, func() { _ = s.Abort(ctx, "a") }, func() { _ = w.Close() },
					func() { _, _ = s.Status(ctx, "a") }, func() { _, _ = s.Statuses(ctx) }, func() { _ = w.Digest() },
				} {
					if j > 2 || (i+j)%4 == 0 {
						users.Go(fn)
					}
				}
				users.Go(func() {
					if info, err := w.Commit(ctx, 0, "", nil); err == nil {
						mu.Lock()
						defer mu.Unlock()
						committed[info.Digest] = info.Size
					}
				})
				users.Wait()
				_ = w.Close()
			}
		})
	}
	time.Sleep(3 * time.Second)
	ended := make(chan error, 1)
	go func() { ended <- s.Close(); all.Wait(); close(ended) }()
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("close: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("close, or a writer, hangs")
		}
	}
	s = open(t, path)
	for d, size := range committed {
		b, err := read(ctx, s, d)
		if err != nil || int64(len(b)) != size || digest.FromBytes(b) != d {
			t.Errorf("%s of %d bytes: %d, %v", d, size, len(b), err)
		}
	}
	t.Log(len(committed), "were committed")
}
