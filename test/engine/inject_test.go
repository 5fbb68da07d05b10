package engine

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// script is a fixed history of commits on a file in which one call fails. It
// returns the number of the last commit that was acknowledged and of the last
// that was tried.
type script struct {
	t     *testing.T
	mem   *vfs.Mem
	acked int
	tried int
}

// commit number n puts n under a few keys, makes the file grow now and then,
// and makes and deletes buckets.
func (s *script) commit(db *holdfast.DB, n int) error {
	s.tried = n
	err := db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		if err != nil {
			return err
		}
		for _, k := range []string{"first", fmt.Sprint("only", n%7), "last"} {
			if err := b.Put([]byte(k), fmt.Append(nil, n)); err != nil {
				return err
			}
		}
		if err := b.Put(fmt.Append(nil, "big", n%3), make([]byte, 1000*n)); err != nil {
			return err
		}
		name := fmt.Append(nil, "bucket", n%4)
		if n%8 >= 4 && tx.Bucket(name) != nil {
			return tx.DeleteBucket(name)
		}
		in, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		return in.Put([]byte("k"), make([]byte, 200*n))
	})
	if err == nil {
		s.acked = n
	}
	return err
}

// verify opens the file without faults: it holds the last acknowledged commit,
// or one that was tried after it, whole.
func (s *script) verify(where string) {
	s.t.Helper()
	db, err := bridge.Open(exactFile{s.mem.Open()}, nil)
	if err != nil {
		s.t.Fatalf("%s: opening again: %v", where, err)
	}
	defer db.Close()
	view(s.t, db, func(tx *holdfast.Tx) {
		checkTx(s.t, tx)
		b := tx.Bucket([]byte("b"))
		if b == nil {
			if s.acked >= 0 {
				s.t.Fatalf("%s: commit %d is lost", where, s.acked)
			}
			return
		}
		var n int
		_, err := fmt.Sscan(string(b.Get([]byte("first"))), &n)
		must(s.t, err)
		if n < s.acked || n > s.tried {
			s.t.Fatalf("%s: found commit %d, acknowledged %d, tried %d", where, n, s.acked, s.tried)
		}
		if string(b.Get([]byte("last"))) != fmt.Sprint(n) || len(b.Get(fmt.Append(nil, "big", n%3))) != 1000*n {
			s.t.Fatalf("%s: commit %d is not whole", where, n)
		}
	})
}

// Every call that a history makes on its file fails once, in turn: no panic, no
// acknowledged commit lost, the caller of what failed is told, and a database
// that goes on or that has stopped.
func TestEveryCallFails(t *testing.T) {
	const sessions, commits = 2, 12
	for kind := range vfs.KindCount {
		t.Run(kind.String(), func(t *testing.T) {
			for nth := int64(1); ; nth++ {
				if failOnce(t, kind, nth, sessions, commits) {
					return
				}
			}
		})
	}
}

// injectedPageSize, in bytes, is that of the databases in which calls fail.
const injectedPageSize = 1024

// failing is the one call that fails.
type failing struct {
	t     *testing.T
	kind  vfs.Kind
	nth   int64
	calls int64
	op    *vfs.Op // once it has failed
}

func (f *failing) String() string { return fmt.Sprintf("%v %d", f.kind, f.nth) }

func (f *failing) hook(op vfs.Op) error {
	if op.Kind != f.kind {
		return nil
	}
	if f.calls++; f.calls == f.nth {
		f.op = &op
		return syscall.EIO
	}
	return nil
}

// told runs a step and returns its error. If what makes bytes durable failed
// during the step, it must not have succeeded, nor blamed anything else.
func (f *failing) told(step string, do func() error) error {
	f.t.Helper()
	before := f.op
	err := do()
	if f.op == before {
		return err
	}
	must := false
	switch f.kind {
	case vfs.KindSync:
		must = true
		if err != nil && step != "open" && !errors.Is(err, holdfast.ErrStopped) {
			f.t.Fatalf("%v: %s: %v, want ErrStopped", f, step, err)
		}
	case vfs.KindWrite, vfs.KindGrow:
		// Close may go on without a freelist page: then nothing is lost.
		must = step != "close" || f.kind == vfs.KindWrite && f.op.Off < 2*injectedPageSize
	}
	if must && !errors.Is(err, syscall.EIO) {
		f.t.Fatalf("%v: %s: %v, want the error of the call", f, step, err)
	}
	return err
}

// failOnce runs the history with the nth call of a kind failing; true if there
// were not so many.
func failOnce(t *testing.T, kind vfs.Kind, nth int64, sessions, commits int) (done bool) {
	s := &script{t: t, mem: vfs.NewMem("mem"), acked: -1, tried: -1}
	f := &failing{t: t, kind: kind, nth: nth}
	where := f.String()
	for session := range sessions {
		options := &holdfast.Options{PageSize: injectedPageSize, Mlock: true}
		var file vfs.File = vfs.NewInject(s.mem.Open(), f.hook)
		if session > 0 || kind == vfs.KindMap { // both ways of growing
			file = exactFile{file}
		}
		var db *holdfast.DB
		err := f.told("open", func() (err error) {
			db, err = bridge.Open(file, options)
			return err
		})
		if err != nil {
			if f.op == nil || !errors.Is(err, syscall.EIO) {
				t.Fatalf("%s: open: %v", where, err)
			}
			continue
		}
		reader, err := db.Begin(false) // begin would keep each database until the test ends
		must(t, err)
		seen := hashOf(reader)
		db.AllocSize = 8 << 10
		stopped := false
		for i := range commits {
			n := session*commits + i
			err := f.told("commit", func() error { return s.commit(db, n) })
			switch {
			case err == nil && stopped:
				t.Fatalf("%s: commit %d succeeds after the database has stopped", where, n)
			case err == nil:
			case errors.Is(err, holdfast.ErrStopped):
				stopped = true
			case stopped:
				t.Fatalf("%s: commit %d: %v, want ErrStopped", where, n, err)
			case !errors.Is(err, syscall.EIO):
				t.Fatalf("%s: commit %d: %v", where, n, err)
			default: // undone; the same commit works now
				if err := s.commit(db, n); err != nil {
					t.Fatalf("%s: commit %d once more: %v", where, n, err)
				}
			}
			view(t, db, func(tx *holdfast.Tx) { checkTx(t, tx) })
		}
		if hashOf(reader) != seen {
			t.Fatalf("%s: a reader's state was overwritten", where)
		}
		must(t, reader.Rollback())
		if err := f.told("close", db.Close); err != nil && !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: close: %v", where, err)
		}
	}
	if f.op == nil {
		return true
	}
	s.verify(where)
	return false
}
