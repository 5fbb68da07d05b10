//go:build unix

package engine

import (
	"os"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
)

// Pages that cannot be read are damage for the caller that asks for them. A hint that they will be
// read is none, and ends neither the program nor the transaction.
func TestShortenedUnderPrefetch(t *testing.T) {
	path := tempPath(t)
	size := os.Getpagesize()
	db := open(t, path, nil)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		put(t, b, "a", string(make([]byte, 40*size)))
		put(t, b, "b", string(make([]byte, 400*size)))
	})
	must(t, db.Close())
	data := readFile(t, path)
	shorten := func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		v, err := bridge.GetUnsealed(b, []byte("a"), 0)
		must(t, err)
		must(t, os.Truncate(path, int64(2*size)))
		bridge.Prefetch(tx, v, 0)
		bridge.Prefetch(tx, v[:10], 1<<30)
		_, err = bridge.GetUnsealed(b, []byte("b"), 0)
		wantUnreadable(t, "GetUnsealed", err)
		_, _, err = bridge.Find(b, []byte("b"))
		wantUnreadable(t, "Find", err)
		if err := tx.Err(); err != nil {
			t.Error(err)
		}
	}
	db = open(t, path, nil)
	must(t, db.View(func(tx *holdfast.Tx) error { shorten(tx); return nil }))
	_ = db.Close()

	must(t, os.WriteFile(path, data, 0o600))
	db = open(t, path, nil)
	tx := begin(t, db, false)
	shorten(tx)
	must(t, tx.Rollback())
	_ = db.Close()
}
