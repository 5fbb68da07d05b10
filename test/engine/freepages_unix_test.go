//go:build unix

package engine

import (
	"errors"
	"os"
	"testing"

	"holdfast"
)

// Pages that the system cannot deliver are damaged, and the others are told.
func TestForEachPageShortened(t *testing.T) {
	db, cut := shortened(t, nil)
	defer db.Close()
	tx, err := db.Begin(false)
	must(t, err)
	defer tx.Rollback() // before Close, which waits for it
	cut()
	kinds := map[holdfast.PageKind]uint64{}
	must(t, tx.ForEachPage(func(r holdfast.PageRun) error {
		kinds[r.Kind] += r.Pages
		if r.Err != nil && !errors.Is(r.Err, holdfast.ErrUnreadable) {
			t.Errorf("page %d: %v", r.ID, r.Err)
		}
		return nil
	}))
	if n := uint64(tx.Size()) / uint64(os.Getpagesize()); kinds[holdfast.PageDamaged] == 0 || kinds[holdfast.PageLeaf] != 0 || kinds[holdfast.PageMeta] != 2 ||
		kinds[holdfast.PageDamaged]+kinds[holdfast.PageFree]+kinds[holdfast.PageRecord]+kinds[holdfast.PageFreelist]+2 != n {
		t.Errorf("of %d pages: %v", n, kinds)
	}
}
