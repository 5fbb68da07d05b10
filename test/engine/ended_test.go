package engine

import (
	"iter"
	"testing"

	"holdfast"
)

// A cursor, an iterator or a Get of a transaction that had ended answered nothing, and Tx.Err
// was nil: to a program that asked, the bucket was empty.
func TestErrAfterTheEnd(t *testing.T) {
	db := open(t, tempPath(t), nil)
	fill(t, db, 100, 10)
	k, to := []byte("00000001"), []byte("00000050")
	reads := map[string]func(b *holdfast.Bucket, c *holdfast.Cursor){
		"nothing":  func(*holdfast.Bucket, *holdfast.Cursor) {},
		"Get":      func(b *holdfast.Bucket, _ *holdfast.Cursor) { b.Get(k) },
		"First":    func(b *holdfast.Bucket, _ *holdfast.Cursor) { b.Cursor().First() },
		"Last":     func(_ *holdfast.Bucket, c *holdfast.Cursor) { c.Last() },
		"Next":     func(_ *holdfast.Bucket, c *holdfast.Cursor) { c.Next() },
		"Prev":     func(_ *holdfast.Bucket, c *holdfast.Cursor) { c.Prev() },
		"Seek":     func(_ *holdfast.Bucket, c *holdfast.Cursor) { c.Seek(k) },
		"Bucket":   func(b *holdfast.Bucket, _ *holdfast.Cursor) { b.Bucket(k); b.Tx().Bucket(k) },
		"All":      func(b *holdfast.Bucket, _ *holdfast.Cursor) { drain(b.All()) },
		"Range":    func(b *holdfast.Bucket, _ *holdfast.Cursor) { drain(b.Range(k, to)) },
		"Backward": func(b *holdfast.Bucket, _ *holdfast.Cursor) { drain(b.Backward()) },
		"Stats":    func(b *holdfast.Bucket, _ *holdfast.Cursor) { b.Stats(); b.Inspect(); b.Tx().Inspect() },
	}
	for name, read := range reads {
		for _, way := range []string{"Rollback", "reading Rollback", "Commit", "View", "Update"} {
			var tx *holdfast.Tx
			var b *holdfast.Bucket
			var c *holdfast.Cursor
			use := func(begun *holdfast.Tx) error {
				tx, b = begun, begun.Bucket([]byte("b"))
				c = b.Cursor()
				c.First()
				return tx.Err()
			}
			switch way {
			case "View":
				must(t, db.View(use))
			case "Update":
				must(t, db.Update(use))
			default:
				must(t, use(begin(t, db, way != "reading Rollback")))
				if way == "Commit" {
					must(t, tx.Commit())
				} else {
					must(t, tx.Rollback())
				}
			}
			if read(b, c); tx.Err() != holdfast.ErrTxClosed {
				t.Errorf("%s after %s: Err is %v", name, way, tx.Err())
			}
		}
	}
}

// An iteration during which the transaction ended, as by another goroutine, ended early
// as if that were all.
func TestErrOfAnIterationThatLostItsTransaction(t *testing.T) {
	db := open(t, tempPath(t), nil)
	fill(t, db, 100, 10)
	tx := begin(t, db, false)
	n := 0
	for range tx.Bucket([]byte("b")).All() {
		if n++; n == 10 {
			must(t, tx.Rollback())
		}
	}
	if n != 10 || tx.Err() != holdfast.ErrTxClosed {
		t.Errorf("%d keys, and then %v", n, tx.Err())
	}
	tx = begin(t, db, false)
	err := tx.Bucket([]byte("b")).ForEach(func(k, _ []byte) error { return tx.Rollback() })
	if err != holdfast.ErrTxClosed {
		t.Errorf("ForEach: %v", err)
	}
}

func drain(pairs iter.Seq2[[]byte, []byte]) {
	for range pairs {
	}
}
