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
		for n := uint64(1); n <= 100; n++ {
			must(t, made.update(func(tx transaction) error { return m.edit(tx.root, n) }))
		}
		must(t, made.Close())
		must(t, m.forward(100))
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
		must(t, db.update(func(tx transaction) error { return m.edit(tx.root, 101) }))
		must(t, m.forward(101))
		must(t, db.view(func(tx transaction) error { return errors.Join(read(tx), tx.check()) }))
		must(t, db.Close())
		d.remount()
	}
}
