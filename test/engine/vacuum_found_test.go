package engine

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// Four writers appended all the time, past the cut, and vacuum ran after them for ever.
func TestVacuumEndsBesideInserters(t *testing.T) {
	db := openNew(t, 4096)
	fillAndDelete(t, db, "b", 5000, 1000, func(int) bool { return true })
	db.NoSync = false
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := db.Update(func(tx *holdfast.Tx) error {
					b, err := tx.CreateBucketIfNotExists(fmt.Append(nil, "i", w))
					if err != nil {
						return err
					}
					return b.Put(fmt.Appendf(nil, "%012d", n), make([]byte, 2500))
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	must(t, within(t, "vacuum", func() error {
		_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		return err
	}))
	close(stop)
	wg.Wait()
	checkDB(t, db)
}

// Joining long values left holes too short for the next ones, and the file of an idle
// database became longer.
func TestVacuumMakesNothingLonger(t *testing.T) {
	for _, size := range []int{1500, 3000, 5000, 9000, 13_000, 20_000} {
		db := open(t, tempPath(t), &holdfast.Options{NoSync: true, PageSize: 4096})
		db.AllocSize = 64 << 10
		rng := rand.New(rand.NewPCG(3, 4))
		n := 10_000_000 / size
		perm := rng.Perm(n)
		for at := 0; at < n; at += 10 {
			update(t, db, func(tx *holdfast.Tx) {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				must(t, err)
				for _, i := range perm[at:min(at+10, n)] {
					must(t, b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, size)))
				}
			})
		}
		for range 2 {
			before := length(t, db)
			r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
			must(t, err)
			if after := length(t, db); after > before {
				t.Errorf("values of %d bytes: %d bytes, and %d before", size, after, before)
			}
			if size := fileSize(t, db.Path()); r.SizeAfter != size {
				t.Errorf("the result says %d bytes, and the file has %d", r.SizeAfter, size)
			}
		}
		must(t, db.Close())
	}
}

// In steps of one page each piece of the walk was full after the root and one leaf, so
// nothing was joined, and the file stayed twice as long as a copy.
func TestVacuumJoinsInSmallSteps(t *testing.T) {
	for _, pageSize := range []int{512, 4096} {
		db := openNew(t, pageSize)
		rng := rand.New(rand.NewPCG(3, 4))
		fillAndDelete(t, db, "b", 20_000, 100, func(int) bool { return rng.IntN(5) > 2 })
		_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 1})
		must(t, err)
		if size, compacted := length(t, db), compactSize(t, db); float64(size) > 1.1*float64(compacted) {
			t.Errorf("pages of %d bytes: the file has %d bytes, a compacted copy %d", pageSize, size, compacted)
		}
		must(t, db.Close())
	}
}

// The age of a reader was that of the newest state: states in between, which no reader
// held, were gone. It is at least as old as the first commit after it.
func TestOldestReaderAge(t *testing.T) {
	db := openNew(t, 4096)
	update(t, db, func(tx *holdfast.Tx) { createBucket(t, tx, "b") })
	reader := begin(t, db, false)
	defer func() { must(t, reader.Rollback()) }()
	touch := func() { update(t, db, func(tx *holdfast.Tx) { put(t, tx.Bucket([]byte("b")), "key", "value") }) }
	touch()
	first := time.Now()
	for range 5 {
		time.Sleep(2 * time.Millisecond)
		touch()
	}
	least := time.Since(first)
	if age := db.Stats().OldestReader.Age; age < least {
		t.Errorf("the reader is %v old, and at least %v", age, least)
	}
}

// Vacuum left no free page, Close took one for the freelist that bbolt reads, and made the
// file as long as the next power of two.
func TestCloseLeavesNoRoom(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, nil)
	fillAndDelete(t, db, "b", 40_000, 100, func(i int) bool { return i%10 == 0 })
	_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	before := length(t, db)
	must(t, db.Close())
	if size := fileSize(t, path); size > before+64<<10 {
		t.Errorf("the closed file has %d bytes, and %d before", size, before)
	}
}

// The runs that a step moves get their pages together, at its end: several were promised
// the same hole, those that came late lay past the end, and the file was longer in the
// end than before, or the disk full.
func TestVacuumPromisesAHoleOnce(t *testing.T) {
	shorter := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		disk := vfs.NewCrash("db", nil, nil)
		db, err := bridge.Open(disk.OpenAhead(1<<20), &holdfast.Options{PageSize: 1024, SettleDelay: -1})
		must(t, err)
		db.AllocSize = 1024
		for n := range 120 { // few holes, of all lengths
			update(t, db, func(tx *holdfast.Tx) {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				must(t, err)
				for range 1 + rng.IntN(4) {
					must(t, b.Put(fmt.Appendf(nil, "%03d%d", rng.IntN(60), n), make([]byte, []int{50, 900, 2600, 2600, 5000}[rng.IntN(5)])))
				}
				if n%4 == 3 {
					k, _ := b.Cursor().Seek(fmt.Appendf(nil, "%03d", rng.IntN(60)))
					must(t, b.Delete(bytes.Clone(k)))
				}
			})
		}
		must(t, db.Sync())
		want := content(t, db)
		r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepTime: time.Hour})
		must(t, err)
		if r.SizeAfter > r.SizeBefore {
			t.Errorf("seed %d: %d bytes, and %d before", seed, r.SizeAfter, r.SizeBefore)
		}
		if r.SizeAfter < r.SizeBefore {
			shorter++
		}
		if content(t, db) != want {
			t.Errorf("seed %d: the content is another", seed)
		}
		checkDB(t, db)
		must(t, db.Close())
	}
	if shorter < 40 {
		t.Errorf("%d of 60 files became shorter", shorter)
	}
}
