package engine

import (
	"fmt"
	"testing"

	"holdfast"
)

// A database made with Options.PageSize of 512 was lost to bbolt when its first meta was torn:
// bbolt looks for the second one at 1,024 bytes, or twice, four times, ... as many. So new databases
// get such pages, and those that have others keep them.
func TestNewPageSize(t *testing.T) {
	for asked, want := range map[int]int{512: 1024, 513: 1024, 1000: 1024, 1024: 1024, 1025: 2048, 3000: 4096, 4096: 4096, 16 << 20: 16 << 20} {
		db := open(t, tempPath(t), &holdfast.Options{PageSize: asked, NoSync: true})
		if got := db.Info().PageSize; got != want {
			t.Errorf("asked for pages of %d bytes, a new database has %d", asked, got)
		}
		update(t, db, func(tx *holdfast.Tx) { put(t, createBucket(t, tx, "b"), "k", fmt.Sprint(asked)) })
		checkDB(t, db)
		must(t, db.Close())
	}
	path := tempPath(t)
	must(t, openSized(t, path, &holdfast.Options{PageSize: 512}).Close())
	for range 3 {
		db := open(t, path, &holdfast.Options{PageSize: 4096})
		if got := db.Info().PageSize; got != 512 {
			t.Fatalf("a database with pages of 512 bytes is opened with %d", got)
		}
		update(t, db, func(tx *holdfast.Tx) {
			_, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
		})
		checkDB(t, db)
		must(t, db.Close())
	}
}
