package real

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
)

// TestBadSectors reads a database of whose device a part cannot be read: that
// is an error of the transaction that needs it, and no more.
func TestBadSectors(t *testing.T) {
	for seed := range seeds(t, 2) {
		againWith(t, seed)
		d := newDisk(t, 32, lieOptions...)
		path := filepath.Join(d.dir, "db")
		elsewhere := filepath.Join(t.TempDir(), "db")
		m := newModel(history{seed: seed, large: 60 << 10})
		made, err := openHoldfast(elsewhere, openOptions{})
		must(t, err)
		// The first read of a file gets 32 pages; a history whose content was in these saw no bad sector.
		last := uint64(0)
		for last < 100 || lastInUse(t, made.DB) < 64 {
			last++
			must(t, made.update(func(tx transaction) error { return m.edit(tx.root, last) }))
		}
		must(t, made.Close())
		must(t, m.forward(last))
		must(t, copyFile(path, elsewhere, 1<<20))
		d.remount()

		db, err := openHoldfast(path, openOptions{})
		must(t, err)
		t.Cleanup(func() { db.Close() })
		f, err := os.Open(path)
		must(t, err)
		where, err := extents(f)
		must(t, errors.Join(err, f.Close()))
		read := func(tx transaction) error {
			lines, err := tx.lines()
			return errors.Join(err, compare(lines, m.lines()))
		}
		err = d.failDuring(lowest(where)+4*4096, func() error { return db.view(read) })
		var damage *holdfast.CorruptError
		if !errors.Is(err, holdfast.ErrUnreadable) || !errors.As(err, &damage) || damage.Page < 4 {
			t.Fatalf("reading from a bad sector gave %v, want ErrUnreadable with a page", err)
		}
		if err := db.view(read); err != nil {
			t.Fatalf("the device is sound again, and reading gave %v", err)
		}
		must(t, db.update(func(tx transaction) error { return m.edit(tx.root, last+1) }))
		must(t, m.forward(last+1))
		must(t, db.view(func(tx transaction) error { return errors.Join(read(tx), tx.check()) }))
		must(t, db.Close())
		d.remount()
	}
}

// lastInUse is the last page that is part of a tree.
func lastInUse(t *testing.T, db *holdfast.DB) (last int) {
	must(t, db.View(func(tx *holdfast.Tx) error {
		for id := 0; ; id++ {
			info, err := tx.Page(id)
			if err != nil || info == nil {
				return err
			}
			if info.Type == "leaf" || info.Type == "branch" {
				last = id
			}
		}
	}))
	return last
}
