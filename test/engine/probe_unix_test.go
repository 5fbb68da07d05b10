//go:build unix

package engine

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
)

// Probe gives the damage that its function meets, in calls and in its own reads; a transaction that reads goes on as
// if there were none, and one that writes cannot be committed.
func TestProbe(t *testing.T) {
	name, key, far := []byte("b"), []byte("00000012"), []byte("00004990")
	for _, managed := range []bool{true, false} {
		t.Run(fmt.Sprint("managed ", managed), func(t *testing.T) {
			db, cut := shortened(t, nil)
			defer func() { _ = db.Close() }() // the file is damaged
			use := func(tx *holdfast.Tx) error {
				b := tx.Bucket(name)
				v := b.Get(key)
				if err := bridge.Probe(tx, func() { _ = b.Get(far) }); err != nil {
					t.Errorf("nothing is damaged: %v", err)
				}
				cut()
				for what, read := range map[string]func(){
					"Get":    func() { b.Get(far) },
					"Cursor": func() { b.Cursor().First() },
					"value":  func() { _ = fmt.Sprint(v[0]) },
					"nested": func() {
						wantUnreadable(t, "inner Probe", bridge.Probe(tx, func() { b.Get(far) }))
						if err := tx.Err(); err != nil {
							t.Errorf("the outer one has what the inner one met: %v", err)
						}
						b.Get(far)
					},
				} {
					wantUnreadable(t, what, bridge.Probe(tx, read))
					if err := tx.Err(); err != nil {
						t.Errorf("%s: the transaction has kept it: %v", what, err)
					}
				}
				return nil
			}
			if managed {
				must(t, db.View(use))
				return
			}
			tx := begin(t, db, false)
			must(t, use(tx))
			must(t, tx.Rollback())
			if err := bridge.Probe(tx, func() { t.Error("called") }); !errors.Is(err, holdfast.ErrTxClosed) {
				t.Errorf("ended: %v", err)
			}
		})
	}
}

// What a transaction has met before a Probe stays, and so does, in one that writes, what a Probe meets.
func TestProbeKeeps(t *testing.T) {
	db, cut := shortened(t, nil)
	defer func() { _ = db.Close() }()
	tx := begin(t, db, false)
	b := tx.Bucket([]byte("b"))
	cut()
	b.Get([]byte("00004990"))
	before := tx.Err()
	wantUnreadable(t, "Err", before)
	if err := bridge.Probe(tx, func() {}); err != nil {
		t.Errorf("a Probe that meets nothing: %v", err)
	}
	if err := tx.Err(); err != before {
		t.Errorf("behind it: %v", err)
	}
	wantUnreadable(t, "Rollback", tx.Rollback())

	db2, _ := shortened(t, nil)
	defer func() { _ = db2.Close() }()
	size := fileSize(t, db2.Path())
	err := db2.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket([]byte("b"))
		must(t, os.Truncate(db2.Path(), 8192))
		wantUnreadable(t, "Probe", bridge.Probe(tx, func() { b.Get([]byte("00004990")) }))
		wantUnreadable(t, "Err", tx.Err())
		return os.Truncate(db2.Path(), size)
	})
	wantUnreadable(t, "Update", err)

	// A panic of the function goes on, and so does what was before.
	tx = begin(t, openNew(t, 0), false)
	func() {
		defer func() {
			if r := recover(); r != "on purpose" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = bridge.Probe(tx, func() { panic("on purpose") })
	}()
	must(t, tx.Rollback())
}
