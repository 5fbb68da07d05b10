package differential

import (
	"bytes"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/test/soak"
	"holdfast/test/stock/ops"
)

// appendHoldfast is a follower that runs Holdfast, and appends where a history puts a key
// behind all others of its bucket.
func appendHoldfast() *Follower {
	r := ops.NewRunner(ops.Engine[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]{
		Open:    OpenHoldfast,
		Check:   func(tx *holdfast.Tx) <-chan error { return tx.Check() },
		SetFill: func(b *holdfast.Bucket, percent float64) { b.FillPercent = percent },
		Compact: compactHoldfast,
		Put:     appendOrPut,
	})
	return &Follower{Name: "holdfast, appending", Moves: true, Do: r.Do}
}

func appendOrPut(b *holdfast.Bucket, key, value []byte) error {
	if last, _ := b.Cursor().Last(); bytes.Compare(last, key) >= 0 {
		return b.Put(key, value)
	}
	key, value = bytes.Clone(key), bytes.Clone(value)
	err := b.Append(key, value)
	clear(key)
	clear(value)
	return err
}

// TestAppending has Holdfast append where bbolt puts.
func TestAppending(t *testing.T) { atLeast(t, histories(t, appendingKind), 5) }

var appendingKind = kind{"appending", 20, func(t *testing.T, seed uint64, tally *soak.Tally) {
	h := New(seed, pageSize(seed))
	h.Stock = true
	r := newRun(t, h, tally)
	dir := t.TempDir()
	r.follow(appendHoldfast(), filepath.Join(dir, "holdfast.db"))
	r.follow(Stock(), filepath.Join(dir, "stock.db"))
	for range 1 + h.rand.IntN(4) {
		r.session(h.options(), 1+h.rand.IntN(20))
	}
}}
