package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/blob"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// fullDisk is a disk that is full from its n-th write on, until it has room again.
type fullDisk struct {
	*vfs.Mem
	left atomic.Int64 // writes that succeed; below 0: all
}

func (d *fullDisk) open(t *testing.T) *holdfast.DB {
	t.Helper()
	db, err := bridge.Open(vfs.NewInject(d.Open(), func(op vfs.Op) error {
		// The metas are there already.
		if op.Kind != vfs.KindGrow && (op.Kind != vfs.KindWrite || op.Off < 2*4096) || d.left.Load() < 0 {
			return nil
		}
		if d.left.Add(-1) < 0 {
			d.left.Store(0)
			return syscall.ENOSPC
		}
		return nil
	}), &holdfast.Options{PageSize: 4096, SettleDelay: -1})
	must(err)
	return db
}

// fullScene is a store of which something is written, saved and removed.
type fullScene struct {
	t       *testing.T
	disk    fullDisk
	db      *holdfast.DB
	whole   []byte // what is written
	kept    []byte // what was there, and stays
	keptRef blob.Ref
}

const (
	fullIngest = "ingest"
	fullLeaf   = blob.MinLeafSize
)

// must fails the test; in a transaction, by a panic that rolls it back.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must2[T any](v T, err error) T {
	must(err)
	return v
}

// randomBytes gives n bytes that depend on the seed only.
func randomBytes(seed byte, n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(p)
	return p
}

func newFullScene(t *testing.T) *fullScene {
	f := &fullScene{t: t, whole: randomBytes(1, 2<<20), kept: randomBytes(2, 140*fullLeaf)}
	f.disk.Mem = vfs.NewMem("full.db")
	f.disk.left.Store(-1)
	f.db = f.disk.open(t)
	must(f.db.Update(func(tx *holdfast.Tx) error {
		s := must2(blob.Create(must2(tx.CreateBucket([]byte("blobs"))), blob.Options{LeafSize: fullLeaf}))
		f.keptRef = must2(s.Put(f.kept))
		for i := range byte(3) { // which share leaves with it
			must(s.Delete(must2(s.Put(append(randomBytes(10+i, 200*fullLeaf), f.kept...)))))
		}
		return nil
	}))
	return f
}

// fullSteps are transactions, and Collect, that need room.
var fullSteps = map[string][]func(f *fullScene) error{
	"writer": {func(f *fullScene) error {
		return f.db.Update(func(tx *holdfast.Tx) error {
			w := must2(storeOf(tx)).Writer()
			w.Concurrent(true)
			w.Digest(true)
			for p := f.whole; len(p) > 0; p = p[min(len(p), 100_000):] {
				if _, err := w.Write(p[:min(len(p), 100_000)]); err != nil {
					return err
				}
			}
			_, err := w.Commit()
			return err
		})
	}},
	"ingest": {
		func(f *fullScene) error { return f.ingest(1_200_000, false) },
		func(f *fullScene) error { return f.ingest(2_000_000, false) },
		func(f *fullScene) error { return f.ingest(len(f.whole), true) },
	},
	"collect": {
		func(f *fullScene) error {
			_, err := blob.Collect(context.Background(), f.db, storeOf, blob.CollectOptions{})
			return err
		},
		func(f *fullScene) error {
			return f.db.Update(func(tx *holdfast.Tx) error {
				_, err := must2(storeOf(tx)).Put(f.whole)
				return err
			})
		},
	},
}

// ingest goes on with the ingest up to so many bytes.
func (f *fullScene) ingest(to int, commit bool) error {
	return f.db.Update(func(tx *holdfast.Tx) error {
		in, err := must2(storeOf(tx)).Ingest(fullIngest, blob.IngestOptions{WholeDigest: true})
		if err != nil {
			return err
		}
		if _, err := in.ReadFrom(bytes.NewReader(f.whole[in.Offset():to])); err != nil {
			return err
		}
		if !commit {
			return in.Save()
		}
		_, err = in.Commit()
		return err
	})
}

// sound fails the test unless the file and the store are sound and hold what they must: the blob if it is
// there, an ingest that has come so far, and what was kept.
func (f *fullScene) sound(there bool, offset int64) {
	f.t.Helper()
	must(f.db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			f.t.Error(err)
		}
		s := must2(storeOf(tx))
		refs := []blob.Ref{f.keptRef}
		for ref, err := range s.Roots() {
			if err == nil && ref.Size() == int64(len(f.whole)) {
				if refs = append(refs, ref); !bytes.Equal(fullRead(s, ref), f.whole) {
					f.t.Error("the blob has other content")
				}
			}
		}
		if (len(refs) == 2) != there {
			f.t.Errorf("the blob is there: %v", !there)
		}
		if !bytes.Equal(fullRead(s, f.keptRef), f.kept) {
			f.t.Error("what was kept has other content")
		}
		for info, err := range s.Ingests() {
			if err != nil || info.Offset != offset {
				f.t.Errorf("the ingest is at %d, not %d: %v", info.Offset, offset, err)
			}
			offset = 0
		}
		if offset != 0 {
			f.t.Error("the ingest is not there")
		}
		_, err := s.Check(context.Background(), blob.CheckOptions{Data: true, Roots: func(yield func(blob.Ref, error) bool) {
			for _, ref := range refs {
				if !yield(ref, nil) {
					return
				}
			}
		}}, func(p blob.Problem) error {
			f.t.Error(p)
			return nil
		})
		return err
	}))
}

func fullRead(s *blob.Store, ref blob.Ref) []byte {
	var b bytes.Buffer
	must2(must2(s.Reader(ref)).WriteTo(&b))
	return b.Bytes()
}

// A disk is full from some write on, in the middle of a blob, of an ingest, of a Collect: that is the error
// of the call or the commit, the store is as the last commit has left it, and when there is room again the
// same goes on; behind a Collect nothing is left but what blobs need.
func TestBlobDiskFull(t *testing.T) {
	for name, steps := range fullSteps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := 0
			for n := int64(0); ; n += 1 + n/8 {
				f := newFullScene(t)
				errs := f.run(steps, n)
				if t.Failed() {
					t.Fatalf("the disk is full behind %d writes", n)
				}
				if errs == 0 {
					break
				}
				failed++
			}
			if least := 3 * len(steps); failed < least {
				t.Errorf("the disk was full in %d places, want %d", failed, least)
			}
			t.Logf("the disk was full in %d places", failed)
		})
	}
}

// run takes all steps on a disk that is full behind n writes, and says how many had an error.
func (f *fullScene) run(steps []func(*fullScene) error, n int64) (errs int) {
	offsets := []int64{0, 1_200_000, 2_000_000, 0}
	state := func(done int) (there bool, offset int64) {
		if len(steps) == 3 {
			offset = offsets[done]
		}
		return done == len(steps), offset
	}
	f.disk.left.Store(n)
	for i, step := range steps {
		if err := step(f); err != nil {
			errs++
			if !errors.Is(err, syscall.ENOSPC) {
				f.t.Errorf("step %d: %v", i, err)
			}
			f.sound(state(i))
			f.disk.left.Store(-1)
			if err := step(f); err != nil {
				f.t.Errorf("step %d with room again: %v", i, err)
			}
		}
		f.sound(state(i + 1))
	}
	f.disk.left.Store(-1)
	f.collected()
	must(f.db.Close())
	f.db = f.disk.open(f.t)
	f.collected()
	must(f.db.Close())
	return errs
}

// collected collects: then nothing but the two blobs is there.
func (f *fullScene) collected() {
	f.t.Helper()
	must2(blob.Collect(context.Background(), f.db, storeOf, blob.CollectOptions{}))
	f.sound(true, 0)
	must(f.db.View(func(tx *holdfast.Tx) error {
		s := must2(storeOf(tx))
		u, chunks := must2(s.Usage()), int64(0)
		for ref, err := range s.Roots() {
			must(err)
			chunks += must2(s.Stat(ref)).Chunks
		}
		if u.Dead != 0 || u.Leaves+u.Nodes != chunks {
			f.t.Error(fmt.Errorf("%+v where %d chunks should be", u, chunks))
		}
		return nil
	}))
}
