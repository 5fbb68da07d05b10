package engine

import (
	"encoding/binary"
	"testing"
	"time"

	"holdfast"
)

// What happened: a value of 1 MiB that was put right after most of the file had been deleted made the file longer, since
// what a commit frees waits for two flushes. BuildKit measures that to decide whether to compact, and its metadata took two to four times as
// much room as with bbolt.
func TestFreedBeforeGrowth(t *testing.T) {
	for name, options := range map[string]holdfast.Options{"full": {}, "periodic": {Durability: holdfast.Periodic, PeriodicDelay: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			options.SettleDelay = -1
			db := open(t, tempPath(t), &options)
			fillAndDelete(t, db, "b", 4096, 1000, func(i int) bool { return i%10 == 0 })
			before := length(t, db)
			update(t, db, func(tx *holdfast.Tx) { must(t, tx.Bucket([]byte("b")).Put([]byte("large"), make([]byte, 1<<20))) })
			if after := length(t, db); after > before {
				t.Errorf("the file has become longer, from %d to %d bytes, though nearly all of it was free", before, after)
			}
			checkDB(t, db)
			must(t, db.Close())
		})
	}
}

// TestNoFlushForGrowth: a reader that holds what was freed, and commits that each give up as much as they take, have no more
// flushes than there are commits.
func TestNoFlushForGrowth(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{SettleDelay: -1})
	fillAndDelete(t, db, "c", 4096, 100, func(int) bool { return true })
	put := func(i int) {
		update(t, db, func(tx *holdfast.Tx) {
			must(t, tx.Bucket([]byte("c")).Put(binary.BigEndian.AppendUint32(nil, uint32(i)), make([]byte, 1<<20)))
		})
	}
	put(1)
	before := db.Stats()
	for range 20 {
		put(1)
	}
	after := db.Stats()
	if diff := after.Sub(&before); diff.Flushes > diff.Commits+2 {
		t.Errorf("%d commits that each replace a value in %d flushes", diff.Commits, diff.Flushes)
	}
	reader := begin(t, db, false)
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("c"))) })
	update(t, db, func(tx *holdfast.Tx) {
		_, err := tx.CreateBucket([]byte("c"))
		must(t, err)
	})
	before = db.Stats()
	put(2)
	put(3)
	after = db.Stats()
	if diff := after.Sub(&before); diff.Flushes != diff.Commits {
		t.Errorf("beside a reader, %d commits in %d flushes", diff.Commits, diff.Flushes)
	}
	must(t, reader.Rollback())
	must(t, db.Close())
}

// TestNoFlushWithNoSync: without flushes nothing waits for one.
func TestNoFlushWithNoSync(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true, SettleDelay: -1})
	fillAndDelete(t, db, "b", 4096, 1000, func(i int) bool { return i%10 == 0 })
	before, size := db.Stats(), length(t, db)
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.Bucket([]byte("b")).Put([]byte("large"), make([]byte, 1<<20))) })
	after := db.Stats()
	if diff := after.Sub(&before); diff.Flushes != 0 || length(t, db) > size {
		t.Errorf("%d flushes, and %d bytes after %d", diff.Flushes, length(t, db), size)
	}
	must(t, db.Close())
}
