package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

// BuildKit makes a database anew whose Open fails or panics. With every page after the metas overwritten stock
// bbolt's does, and ours did not: the daemon then did not start. Open reads the path to the elements of the root bucket
// and, where there is no freelist page, so that bbolt scans the file, the root pages of its buckets; unless the program asks
// for damage as errors: it may want what is left.
func TestOpenReadsTheTop(t *testing.T) {
	t.Run("freelist", func(t *testing.T) { openReadsTheTop(t, false) })
	t.Run("no freelist", func(t *testing.T) { openReadsTheTop(t, true) })
}

func openReadsTheTop(t *testing.T, scanned bool) {
	const pageSize = 1024
	data := sealedFile(t, pageSize, holdfast.Options{NoFreelistSync: scanned})
	opens := func(damaged []byte, options holdfast.Options) error {
		mem := vfs.NewMem("mem")
		_, err := mem.Open().WriteAt(damaged, 0)
		must(t, err)
		db, err := bridge.Open(exactFile{mem.Open()}, &options)
		if err == nil {
			must(t, db.Close())
		}
		return err
	}
	for what, fill := range map[string]byte{"zeros": 0, "ones": 0xff, "letters": 'x'} {
		damaged := slices.Clone(data)
		for i := 2 * pageSize; i < len(damaged); i++ {
			damaged[i] = fill
		}
		for _, readOnly := range []bool{false, true} {
			var damage *holdfast.CorruptError
			if err := opens(damaged, holdfast.Options{ReadOnly: readOnly}); !errors.As(err, &damage) {
				t.Errorf("%s, read-only %v: %v", what, readOnly, err)
			}
		}
		if err := opens(damaged, holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError}); err != nil {
			t.Errorf("%s, for a program that asks: %v", what, err)
		}
	}
	top, below := topPages(t, data, pageSize)
	if !scanned {
		top, below = top[:1], append(below, top[1:]...)
	}
	for _, id := range append(top, below...) {
		damaged := slices.Clone(data)
		clear(damaged[int(id)*pageSize:][:page.HeaderSize])
		var damage *holdfast.CorruptError
		if err := opens(damaged, holdfast.Options{}); errors.As(err, &damage) != slices.Contains(top, id) {
			t.Errorf("page %d of %v and %v: %v", id, top, below, err)
		}
	}
}

// topPages are the root pages of the root bucket and of those in it, and the other pages of trees.
func topPages(t *testing.T, data []byte, pageSize int) (top, below []page.ID) {
	t.Helper()
	db, _ := openSealed(t, data, nil)
	view(t, db, func(tx *holdfast.Tx) {
		runs, err := hook.RunsOf(tx)
		must(t, err)
		slots := page.DecodeSlots(data, data[pageSize:])
		best, err := slots.Best()
		must(t, err)
		top = append(top, slots.Meta[best].Root)
		must(t, tx.ForEach(func(_ []byte, b *holdfast.Bucket) error {
			if root := hook.Bucket(b).Root(); root != 0 {
				top = append(top, root)
			}
			return nil
		}))
		for _, run := range runs {
			if !slices.Contains(top, run.Start) {
				below = append(below, run.Start)
			}
		}
	})
	if len(top) < 3 || len(below) < 20 {
		t.Fatalf("%v, %v", top, below)
	}
	return top, below
}

// However many buckets there are, Open reads a few pages.
func TestOpenReadsFewPages(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{PageSize: 1024, NoFreelistSync: true})
	update(t, db, func(tx *holdfast.Tx) {
		for i := range 1000 {
			b, err := tx.CreateBucket([]byte(fmt.Sprintf("bucket %04d", i)))
			must(t, err)
			must(t, b.Put([]byte("key"), make([]byte, 700)))
		}
	})
	path := db.Path()
	must(t, db.Close())
	db = open(t, path, nil)
	if n := db.Stats().SealsVerified; n < 5 || n > 40 {
		t.Errorf("Open read %d pages", n)
	}
	if faults, err := db.Verify(context.Background()); err != nil || len(faults) > 0 {
		t.Error(faults, err)
	}
}
