package engine

import (
	"errors"
	"fmt"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// On a full disk nothing could be deleted: now and then the record of free pages wants a
// run of some pages, there was none so long, and each commit that would have
// freed some failed for want of it.
func TestCommitsWithoutRoomForTheRecord(t *testing.T) {
	const pageSize, keys = 1024, 3000
	mem := vfs.NewMem("mem")
	db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: pageSize, SettleDelay: -1, NoFreelistSync: true})
	must(t, err)
	put := func(i, size int) error {
		return db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err == nil && size < 0 {
				return b.Delete(fmt.Appendf(nil, "%05d", i))
			}
			if err == nil {
				err = b.Put(fmt.Appendf(nil, "%05d", i), make([]byte, size))
			}
			return err
		})
	}
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		for i := range keys {
			must(t, b.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 900)))
		}
	})
	must(t, db.Sync())
	db.MaxSize = int(db.Stats().PagesWritten) * pageSize / 2 // no growth from here on
	for i := keys; ; i++ {
		if err := put(i, 900); errors.Is(err, holdfast.ErrMaxSizeReached) {
			break
		} else {
			must(t, err)
		}
	}
	// One page in four becomes free, and none beside another.
	failed := 0
	for i := 0; i < keys; i += 4 {
		err := put(i, -1)
		if errors.Is(err, holdfast.ErrMaxSizeReached) { // its pages come free with the next flush
			failed++
			err = put(i, -1)
		}
		if err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
	}
	for i := range 3 * keys {
		k := 1 + i*7%(keys-1)
		if k%4 == 0 {
			continue
		}
		err := put(k, 890)
		if errors.Is(err, holdfast.ErrMaxSizeReached) {
			failed++
			err = put(k, 890)
		}
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
	t.Logf("%d of %d commits succeeded the second time only", failed, 3*keys*3/4+keys/4)
	checkDB(t, db)
	must(t, db.Close())
	db, err = bridge.Open(mem.Open(), nil)
	must(t, err)
	checkDB(t, db)
	must(t, db.Close())
}
