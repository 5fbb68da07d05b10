package append

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

// writers are who writes what is appended, as hook.WriteEarly has it, and how it is put in.
var writers = map[string]appendedFile{
	"caller":             {behind: -1},
	"goroutine":          {behind: 1},
	"caller, spilled":    {behind: -1, spills: true},
	"goroutine, spilled": {behind: 1, spills: true},
}

// appendedFile is a history of transactions that append, put, delete and roll back, on one
// file; what is in it says how many there were.
type appendedFile struct {
	behind       int8 // as hook.WriteEarly has it
	acked, tried int
	spills       bool // Put and Spill in place of Append
}

const (
	appendedPage = 1024
	appendedEach = 10 // elements that a transaction appends
)

// appendedSize is the size of element i.
func appendedSize(i int) int { return []int{40, 700, 1500, 5000, 8, 1024 - 40, 333}[i%7] }

func (f *appendedFile) options() *holdfast.Options {
	return &holdfast.Options{PageSize: appendedPage, SettleDelay: -1}
}

// commit does transaction n, the first is 1: what was appended goes on in the same bucket,
// and in one that is new each time and goes two later.
func (f *appendedFile) commit(db *holdfast.DB, n int) error {
	hook.WriteEarly(db, appendedPage, f.behind) // so that small ones are written early too
	f.tried = n
	err := db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		if err != nil {
			return err
		}
		fresh, err := tx.CreateBucket(fmt.Append(nil, "fresh", n))
		if err != nil {
			return err
		}
		if err := b.Put([]byte("\x00version"), fmt.Append(nil, n)); err != nil {
			return err
		}
		for i := (n - 1) * appendedEach; i < n*appendedEach; i++ {
			for _, to := range []*holdfast.Bucket{b, fresh} {
				if err := f.add(to, fmt.Appendf(nil, "%08d", i), appendValue(i, appendedSize(i))); err != nil {
					return err
				}
			}
		}
		if n <= 2 {
			return nil
		}
		return tx.DeleteBucket(fmt.Append(nil, "fresh", n-2))
	})
	if err == nil {
		f.acked = n
	}
	return err
}

func (f *appendedFile) add(b *holdfast.Bucket, key, value []byte) error {
	if !f.spills {
		return b.Append(key, value)
	}
	err := b.Put(key, value)
	if err == nil {
		_, err = b.Tx().Spill(4 << 10)
	}
	return err
}

// rolledBack appends and rolls back.
func (f *appendedFile) rolledBack(db *holdfast.DB) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	b, err := tx.CreateBucket([]byte("given up"))
	for i := 0; i < 20 && err == nil; i++ {
		err = f.add(b, fmt.Appendf(nil, "%08d", i), make([]byte, 300*i))
	}
	return errors.Join(err, tx.Rollback())
}

// holds is how many transactions the file holds, whole; an error if one is not.
func (f *appendedFile) holds(db *holdfast.DB) (n int, err error) {
	err = db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			return err
		}
		b := tx.Bucket([]byte("b"))
		if b == nil {
			return nil
		}
		if _, err := fmt.Sscan(string(b.Get([]byte("\x00version"))), &n); err != nil {
			return fmt.Errorf("the version: %w", err)
		}
		if err := f.whole(b, 0, n*appendedEach, 1); err != nil {
			return err
		}
		for i := 1; i <= n+1; i++ {
			fresh := tx.Bucket(fmt.Append(nil, "fresh", i))
			if want := i == n || i == n-1; want != (fresh != nil) {
				return fmt.Errorf("version %d, and bucket %d: %t", n, i, fresh != nil)
			} else if want {
				if err := f.whole(fresh, (i-1)*appendedEach, i*appendedEach, 0); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return n, err
}

func (f *appendedFile) whole(b *holdfast.Bucket, from, to, more int) error {
	keys := 0
	for range b.All() {
		keys++
	}
	if keys != to-from+more {
		return fmt.Errorf("%d keys, want %d", keys, to-from+more)
	}
	for i := from; i < to; i++ {
		if v := b.Get(fmt.Appendf(nil, "%08d", i)); string(v) != string(appendValue(i, appendedSize(i))) {
			return fmt.Errorf("element %d has %d bytes, want %d", i, len(v), appendedSize(i))
		}
	}
	return nil
}

// opens opens a file without faults: it holds what was acknowledged, or what was tried
// behind that, and can be written.
func (f *appendedFile) opens(data []byte, acked, tried int) error {
	mem := vfs.NewMem("mem")
	if _, err := mem.Open().WriteAt(data, 0); err != nil {
		return err
	}
	db, err := bridge.Open(mem.Open(), f.options())
	if err != nil {
		return err
	}
	defer db.Close()
	n, err := f.holds(db)
	if err != nil {
		return err
	}
	if n < acked || n > tried {
		return fmt.Errorf("transaction %d is there; %d was acknowledged, and %d tried", n, acked, tried)
	}
	next := &appendedFile{}
	if err := next.commit(db, n+1); err != nil {
		return err
	}
	_, err = next.holds(db)
	return err
}

// Wherever the power goes in a history with transactions that append, the file opens at the
// state before or behind the one that was under way, and is sound.
func TestAppendPowerCut(t *testing.T) {
	for _, mode := range []holdfast.Durability{holdfast.Full, holdfast.Periodic} {
		for _, strict := range []bool{false, true} {
			if strict && mode == holdfast.Periodic {
				continue
			}
			for name, how := range writers {
				t.Run(fmt.Sprint(mode, strict, name), func(t *testing.T) {
					t.Parallel()
					f := &how
					rng := rand.New(rand.NewPCG(7, uint64(mode)))
					type disk struct {
						data         []byte
						acked, tried int
					}
					var disks []disk
					durable := 0
					calls, step, meta := 0, 2, false
					if testing.Short() {
						step = 8
					}
					var c *vfs.Crash
					c = vfs.NewCrash("crash", nil, func(vfs.Kind) {
						n := 1
						if calls++; meta { // what it refers to may be there or not
							n = 12
						} else if calls%step != 0 {
							return
						}
						least := f.acked
						if mode == holdfast.Periodic {
							least = durable
						}
						for data := range c.Disks(rng, appendedPage, n) {
							disks = append(disks, disk{data, least, f.tried})
						}
					})
					options := f.options()
					options.Durability, options.StrictCompat = mode, strict
					db, err := bridge.Open(vfs.NewInject(c.Open(), func(op vfs.Op) error {
						meta = op.Kind == vfs.KindWrite && op.Off < 2*appendedPage
						return nil
					}), options)
					if err != nil {
						t.Fatal(err)
					}
					defer db.Close()
					var reader *holdfast.Tx
					for n := 1; n <= 5; n++ {
						if err := f.commit(db, n); err != nil {
							t.Fatal(err)
						}
						durable = n // the commit flushes, whatever the mode
						if err := f.rolledBack(db); err != nil {
							t.Fatal(err)
						}
						if n == 2 {
							reader, _ = db.Begin(false)
						}
						if n == 4 {
							err = reader.Rollback()
						}
						if got, err2 := f.holds(db); err != nil || err2 != nil || got != n {
							t.Fatal(got, err, err2)
						}
					}
					for i, d := range disks {
						if err := f.opens(d.data, d.acked, d.tried); err != nil && (d.tried > 0 || !errors.Is(err, holdfast.ErrInvalid)) {
							t.Fatalf("disk %d of %d: %v", i, len(disks), err)
						}
					}
					t.Logf("%d disks", len(disks))
				})
			}
		}
	}
}

// Each write, growth and flush of transactions that append fails once, in turn: the
// caller is told, the transaction can only be rolled back, nothing of it is there, and the
// next goes on unless writing has stopped.
func TestAppendFails(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.KindWrite, vfs.KindGrow, vfs.KindSync} {
		for _, failure := range []error{syscall.EIO, syscall.ENOSPC} {
			for name, how := range writers {
				t.Run(fmt.Sprint(kind, failure, name), func(t *testing.T) {
					t.Parallel()
					for nth := 1; ; nth++ {
						if appendFails(t, kind, nth, failure, how) {
							return
						}
					}
				})
			}
		}
	}
}

func appendFails(t *testing.T, kind vfs.Kind, nth int, failure error, f appendedFile) (done bool) {
	mem := vfs.NewMem("mem")
	armed, failed := false, false
	db, err := bridge.Open(vfs.NewInject(mem.Open(), func(op vfs.Op) error {
		if !armed || op.Kind != kind {
			return nil
		}
		if nth--; nth == 0 {
			failed = true
			return failure
		}
		return nil
	}), f.options())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.commit(db, 1); err != nil {
		t.Fatal(err)
	}
	armed = true
	for n := 2; n <= 4; n++ {
		was := failed
		err := f.commit(db, n)
		if failed == was && err == nil {
			continue
		}
		if err == nil && kind == vfs.KindGrow && failure == syscall.ENOSPC {
			continue // it grew by less
		}
		if err == nil || !errors.Is(err, failure) || kind == vfs.KindSync && !errors.Is(err, holdfast.ErrStopped) {
			t.Fatalf("%v fails, and the commit with %v", kind, err)
		}
		again := f.commit(db, n)
		stopped := errors.Is(err, holdfast.ErrStopped)
		if stopped != (again != nil) || stopped && !errors.Is(again, holdfast.ErrStopped) {
			t.Fatalf("after %v: %v", err, again)
		}
		if stopped {
			break
		}
	}
	if n, err := f.holds(db); err != nil || n != f.acked {
		t.Fatalf("%d transactions, want %d: %v", n, f.acked, err)
	}
	if err := db.Close(); err != nil && !errors.Is(err, holdfast.ErrStopped) && !failed {
		t.Fatal(err)
	}
	if err := f.opens(mem.Bytes(), f.acked, f.tried); err != nil {
		t.Fatalf("%v %d: %v", kind, nth, err)
	}
	return !failed
}

// A transaction that could not write can only be rolled back: all calls on it give the
// error, or nothing; and then its pages are free again.
func TestAppendDoomed(t *testing.T) {
	for name, how := range writers {
		t.Run(name, func(t *testing.T) { testAppendDoomed(t, how) })
	}
}

func testAppendDoomed(t *testing.T, f appendedFile) {
	for _, limit := range []bool{true, false} {
		mem := vfs.NewMem("mem")
		full := false
		options := &holdfast.Options{PageSize: appendedPage, SettleDelay: -1}
		db, err := bridge.Open(vfs.NewInject(mem.Open(), func(op vfs.Op) error {
			if full && op.Kind == vfs.KindGrow {
				return syscall.ENOSPC
			}
			return nil
		}), options)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := f.commit(db, 1); err != nil {
			t.Fatal(err)
		}
		want := error(syscall.ENOSPC)
		if full = !limit; limit {
			db.MaxSize, want = 256<<10, holdfast.ErrMaxSizeReached
		}
		if err := db.Sync(); err != nil {
			t.Fatal(err)
		}
		before := db.Stats()
		for _, end := range []string{"rollback", "commit", "update"} {
			tx, err := db.Begin(true)
			if err != nil {
				t.Fatal(err)
			}
			b := tx.Bucket([]byte("b"))
			for i := 0; err == nil; i++ {
				err = f.add(b, fmt.Append(nil, "x", 1000000+i), make([]byte, 9000))
			}
			_, created := tx.CreateBucket([]byte("n"))
			for what, got := range map[string]error{
				"append": err, "append again": b.Append([]byte("y"), nil), "put": b.Put([]byte("a"), nil), "delete": b.Delete([]byte("a")),
				"create": created, "delete bucket": tx.DeleteBucket([]byte("fresh1")), "for each": b.ForEach(func(_, _ []byte) error { return nil }),
				"sequence": b.SetSequence(3), "err": tx.Err(), "move": tx.MoveBucket([]byte("fresh1"), nil, b),
			} {
				if !errors.Is(got, want) {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			if b.Get([]byte("\x00version")) != nil || tx.Bucket([]byte("b")) != nil {
				t.Error("it can be read")
			}
			if end == "rollback" {
				err = tx.Rollback()
			} else if err = tx.Commit(); errors.Is(err, want) {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: %v", end, err)
			}
			after := db.Stats()
			if free := before.FreePageN + before.PendingPageN; after.FreePageN+after.PendingPageN != free {
				t.Errorf("%s: %d pages are free, before there were %d", end, after.FreePageN+after.PendingPageN, free)
			}
			if n, err := f.holds(db); n != 1 || err != nil {
				t.Errorf("%s: %d %v", end, n, err)
			}
		}
		full, db.MaxSize = false, 0
		if err := f.commit(db, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := f.holds(db); err != nil {
			t.Fatal(err)
		}
	}
}
