package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// TestVacuumMixed: small values fill the holes at the front, and the large ones at the
// end find no place in between before small ones have been moved out of the way.
func TestVacuumMixed(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			db := openNew(t, 4096)
			defer db.Close()
			db.NoSync = true
			rnd := rand.New(rand.NewPCG(seed, 2))
			sizes := []int{50, 500, 3000, 9000, 30_000, 120_000, 500_000}
			left := 60 << 20
			for left > 0 {
				update(t, db, func(tx *holdfast.Tx) {
					for range 200 {
						b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "b%d", rnd.IntN(5)))
						must(t, err)
						size := sizes[rnd.IntN(1+rnd.IntN(len(sizes)))]
						must(t, b.Put(fmt.Appendf(nil, "%08x", rnd.Uint32()), make([]byte, size)))
						left -= size
					}
				})
				if rnd.IntN(3) == 0 {
					deleteSome(t, db, rnd, 3)
				}
			}
			deleteSome(t, db, rnd, 4)
			const longest = 500_000 // can only be moved into a hole that is as long
			vacuumDense(t, db, longest)
		})
	}
}

// deleteSome deletes all keys but one in keep.
func deleteSome(t *testing.T, db *holdfast.DB, rnd *rand.Rand, keep int) {
	update(t, db, func(tx *holdfast.Tx) {
		must(t, tx.ForEach(func(_ []byte, b *holdfast.Bucket) error {
			var doomed [][]byte
			must(t, b.ForEach(func(k, _ []byte) error {
				if rnd.IntN(keep) > 0 {
					doomed = append(doomed, k)
				}
				return nil
			}))
			for _, k := range doomed {
				must(t, b.Delete(k))
			}
			return nil
		}))
	})
}

// TestVacuumCheckerboard: every second page at the front is free, and behind them lie
// runs of fifty pages, which fit in none of these.
func TestVacuumCheckerboard(t *testing.T) {
	db := openNew(t, 4096)
	defer db.Close()
	db.NoSync = true
	fillAndDelete(t, db, "small", 10_000, 3000, func(int) bool { return true })
	fillAndDelete(t, db, "large", 100, 200_000, func(int) bool { return true })
	update(t, db, func(tx *holdfast.Tx) {
		for i := range 5_000 {
			must(t, tx.Bucket([]byte("small")).Delete(fmt.Appendf(nil, "key%08d", 2*i)))
		}
	})
	vacuumDense(t, db, 64<<10)
}

// Windows cannot shorten a file that is mapped: there the end is cut off by Close.
func TestVacuumWhereAMappedFileStays(t *testing.T) {
	mem := vfs.NewMem("db")
	db, err := bridge.Open(exactFile{mem.Open()}, nil)
	must(t, err)
	defer db.Close()
	bloat(t, db)
	want := content(t, db)
	size := func() int64 {
		file := mem.Open()
		defer file.Close()
		n, err := file.Size()
		must(t, err)
		return n
	}
	before := size()
	r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	if size() != before || r.SizeAfter != before {
		t.Errorf("the file has %d bytes, before %d; %+v", size(), before, r)
	}
	bloat(t, db) // again: nothing is cut off of what is in use
	bloated := content(t, db)
	must(t, db.Close())
	db, err = bridge.Open(exactFile{mem.Open()}, nil)
	must(t, err)
	if content(t, db) != bloated || bloated != want {
		t.Error("the content is another")
	}
	_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	must(t, db.Close())
	if size() > 512<<10 {
		t.Errorf("the closed file has %d bytes", size())
	}
	db, err = bridge.Open(exactFile{mem.Open()}, nil)
	must(t, err)
	if content(t, db) != want {
		t.Error("the content is another")
	}
	checkDB(t, db)
	must(t, db.Close())
}
