package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// sparseBytes is a file of which four of five keys were deleted.
func sparseBytes(t *testing.T, pageSize, n, size int) []byte {
	t.Helper()
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{PageSize: pageSize, NoSync: true}
	db, err := bridge.Open(exactFile{sized(t, mem.Open(), options)}, options)
	must(t, err)
	fillAndDelete(t, db, "b", n, size, func(i int) bool { return i%5 == 0 })
	update(t, db, func(tx *holdfast.Tx) { createBucket(t, tx, "commits") })
	must(t, db.Close())
	return mem.Bytes()
}

// vacuumWithCommits does a vacuum with commits in its first pauses, and returns the
// last one that was acknowledged, and the error of one that was not.
func vacuumWithCommits(t *testing.T, db *holdfast.DB) (acked uint64, refused, err error) {
	commits := 0
	_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 8, Progress: func(holdfast.VacuumProgress) {
		if commits++; commits > 5 {
			return
		}
		done := make(chan error)
		go func() {
			done <- db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("commits")).SetSequence(uint64(commits)) })
		}()
		switch failed := <-done; {
		case failed == nil:
			acked = uint64(commits)
		case !errors.Is(failed, syscall.EIO):
			t.Errorf("a commit fails with %v", failed)
		default:
			refused = failed
		}
	}})
	return acked, refused, err
}

// Each call that a vacuum makes on its file fails once: no panic, nothing that was
// committed lost, and the database goes on or has stopped. Vacuum says what failed,
// unless it failed for another caller, or could be done without.
func TestVacuumEveryCallFails(t *testing.T) {
	file := sparseBytes(t, 512, 400, 100)
	for _, durability := range []holdfast.Durability{holdfast.Full, holdfast.Periodic} {
		for kind := range vfs.KindCount {
			t.Run(fmt.Sprint(kind, durability), func(t *testing.T) {
				nth := int64(1)
				for vacuumFailsOnce(t, file, kind, nth, durability) {
					if nth++; nth > 2000 {
						t.Fatal("there is no end of it")
					}
				}
				if least := map[vfs.Kind]int64{vfs.KindWrite: 30, vfs.KindSync: 10, vfs.KindTruncate: 1, vfs.KindSize: 10}[kind]; nth <= least {
					t.Errorf("%d calls failed: the test tests little", nth-1)
				}
			})
		}
	}
}

// vacuumFailsOnce has the nth call of a kind fail; false if there were not so many.
func vacuumFailsOnce(t *testing.T, file []byte, kind vfs.Kind, nth int64, durability holdfast.Durability) bool {
	t.Helper()
	where := fmt.Sprint(kind, " ", nth)
	// A flush that a timer begins may come at any time, also while this is set.
	var calls atomic.Int64
	var on, failed atomic.Bool
	disk := vfs.NewCrash("db", file, nil)
	inject := vfs.NewInject(disk.OpenAhead(16<<10), func(op vfs.Op) error {
		if !on.Load() || op.Kind != kind {
			return nil
		}
		if calls.Add(1) == nth {
			failed.Store(true)
			return syscall.EIO
		}
		return nil
	})
	options := &holdfast.Options{SettleDelay: -1, Durability: durability}
	db, err := bridge.Open(inject, options)
	must(t, err)
	db.AllocSize = 512
	reader, err := db.Begin(false)
	must(t, err)
	seen := hashOf(reader)
	want := contentOfBucket(t, db)
	on.Store(true)
	acked, refused, err := vacuumWithCommits(t, db)
	on.Store(false)
	if !failed.Load() {
		must(t, err)
	}
	if err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatalf("%s: vacuum fails with %v", where, err)
	}
	told := kind == vfs.KindWrite || kind == vfs.KindSync || kind == vfs.KindGrow || kind == vfs.KindTruncate
	if failed.Load() && told && err == nil && refused == nil {
		t.Fatalf("%s: it is not told", where)
	}
	if hashOf(reader) != seen {
		t.Fatalf("%s: a reader sees something else", where)
	}
	must(t, reader.Rollback())
	if errors.Is(errors.Join(err, refused), holdfast.ErrStopped) {
		_ = db.Close()
		db, err = bridge.Open(disk.OpenAhead(16<<10), options)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
	}
	for range 2 {
		view(t, db, func(tx *holdfast.Tx) {
			checkTx(t, tx)
			if n := tx.Bucket([]byte("commits")).Sequence(); n < acked || n > 5 {
				t.Fatalf("%s: commit %d is found, %d was acknowledged", where, n, acked)
			}
		})
		if contentOfBucket(t, db) != want {
			t.Fatalf("%s: the content is another", where)
		}
		if _, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{}); err != nil {
			t.Fatalf("%s: vacuum once more: %v", where, err)
		}
	}
	if size := len(disk.Bytes()); size > len(file)/2 {
		t.Fatalf("%s: the file still has %d of %d bytes", where, size, len(file))
	}
	must(t, db.Close())
	return failed.Load()
}

// contentOfBucket is what no commit beside the vacuum changes.
func contentOfBucket(t *testing.T, db *holdfast.DB) (s string) {
	view(t, db, func(tx *holdfast.Tx) { s = fmt.Sprint(collect(tx.Bucket([]byte("b")).All())) })
	return s
}

// On a disk that is full, a file with free pages becomes shorter without having been
// longer for a while. Where no page is free, vacuum fails with the system's error or
// does nothing, and harms nothing; with room for some steps it does its work.
func TestVacuumOnAFullDisk(t *testing.T) {
	const pageSize, step = 1024, 4
	scattered := sparseBytes(t, pageSize, 3000, 200)
	for _, room := range []int64{0, 16 * step * pageSize} {
		for _, holes := range []bool{true, false} {
			t.Run(fmt.Sprint(room, holes), func(t *testing.T) {
				limit, longest := int64(len(scattered))+room, int64(0)
				disk := vfs.NewCrash("db", scattered, nil)
				db, err := bridge.Open(vfs.NewInject(disk.OpenAhead(1<<20), func(op vfs.Op) error {
					end := op.Len
					if op.Kind == vfs.KindWrite {
						end += op.Off
					} else if op.Kind != vfs.KindGrow {
						return nil
					}
					if longest = max(longest, end); end > limit {
						return syscall.ENOSPC
					}
					return nil
				}), &holdfast.Options{SettleDelay: -1})
				must(t, err)
				if holes { // a bucket at the front
					update(t, db, func(tx *holdfast.Tx) {
						for i := 0; i < 1500; i++ {
							must(t, tx.Bucket([]byte("b")).Delete(fmt.Appendf(nil, "key%08d", i)))
						}
					})
				} else {
					fillUp(t, db)
				}
				want, before := content(t, db), len(disk.Bytes())
				for range 2 {
					_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: step})
					if err != nil && (holes || !errors.Is(err, syscall.ENOSPC)) {
						t.Fatal(err)
					}
				}
				if content(t, db) != want {
					t.Error("the content is another")
				}
				checkDB(t, db)
				if after := len(disk.Bytes()); after > before || holes && after > before/2 {
					t.Errorf("the file has %d bytes, %d before (limit %d, longest %d): %v", after, before, limit, longest, err)
				}
				update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
				_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: step})
				must(t, err)
				must(t, db.Close())
			})
		}
	}
}

// fillUp commits until there is no room.
func fillUp(t *testing.T, db *holdfast.DB) {
	t.Helper()
	for _, size := range []int{20_000, 800, 1} {
		for i := 0; ; i++ {
			err := db.Update(func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("fill"))
				if err != nil {
					return err
				}
				return b.Put(fmt.Appendf(nil, "%d %d", size, i), make([]byte, size))
			})
			if errors.Is(err, syscall.ENOSPC) {
				break
			}
			must(t, err)
			if i > 5000 {
				t.Fatal("the disk is never full")
			}
		}
	}
}
