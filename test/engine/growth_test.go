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

// What happened: the flush before the file grows was made for pages of which no flush frees any more: a reader had kept them, and
// had ended after the transaction began. The file became longer by all that was written besides.
func TestNoFlushForWhatReadersHadKept(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true, SettleDelay: -1})
	fillAndDelete(t, db, "b", 10_000, 1000, func(int) bool { return true })
	reader := begin(t, db, false)
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
	tx := begin(t, db, true) // pages that no reader holds become free here; this reader holds them
	must(t, reader.Rollback())
	b, err := tx.CreateBucket([]byte("c"))
	must(t, err)
	for i := range 2000 {
		must(t, b.Put(binary.BigEndian.AppendUint32(nil, uint32(i)), make([]byte, 1000)))
	}
	before, size := db.Stats(), tx.Size()
	must(t, tx.Commit())
	after := db.Stats()
	reader = begin(t, db, false)
	if diff := after.Sub(&before); diff.Flushes != 0 || reader.Size() > size+1<<20 {
		t.Errorf("%d flushes, and %d bytes in use after %d", diff.Flushes, reader.Size(), size)
	}
	must(t, reader.Rollback())
	must(t, db.Close())
}

// What happened: a transaction that began while another, committed without a flush, was being written had all of it flushed before
// the file grew.
func TestNoFlushForWhatIsBeingWritten(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true, SettleDelay: -1})
	db.AllocSize = 4096
	fill := func(b *holdfast.Bucket, n, size int) error {
		for i := range n {
			if err := b.Put(binary.BigEndian.AppendUint32(nil, uint32(i)), make([]byte, size)); err != nil {
				return err
			}
		}
		return nil
	}
	create := func(tx *holdfast.Tx, name string) *holdfast.Bucket {
		b, err := tx.CreateBucket([]byte(name))
		must(t, err)
		return b
	}
	update(t, db, func(tx *holdfast.Tx) {
		create(tx, "c")
		must(t, fill(create(tx, "b"), 30_000, 1000))
	})
	before, began, ended := db.Stats(), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- db.Update(func(tx *holdfast.Tx) error {
			close(began)
			if err := tx.DeleteBucket([]byte("b")); err != nil {
				return err
			}
			return fill(tx.Bucket([]byte("c")), 8000, 32<<10) // long to write
		})
	}()
	<-began
	update(t, db, func(tx *holdfast.Tx) { must(t, fill(create(tx, "d"), 9000, 1000)) })
	must(t, <-ended)
	after := db.Stats()
	if diff := after.Sub(&before); diff.Flushes != 0 {
		t.Errorf("%d flushes with NoSync", diff.Flushes)
	}
	must(t, db.Close())
}
