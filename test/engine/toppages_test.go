package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
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

// What happened: a copy of a file in use, of which a leaf of the root bucket was older, was told as damage of a page, since
// Open looked at the pages that programs meet first before it looked whether all fit together.
func TestTornCopyIsToldFirst(t *testing.T) {
	db := open(t, tempPath(t), nil)
	name := func(i int) []byte { return fmt.Appendf(nil, "%05d", i) }
	update(t, db, func(tx *holdfast.Tx) {
		for i := range 1000 {
			b, err := tx.CreateBucket(name(i))
			must(t, err)
			must(t, b.Put([]byte("k"), []byte("v")))
		}
	})
	for i := range 20 {
		update(t, db, func(tx *holdfast.Tx) { must(t, tx.Bucket(name(999-i%3)).Put([]byte("k"), fmt.Appendf(nil, "%d", i))) })
	}
	must(t, db.Sync())
	data, err := os.ReadFile(db.Path())
	must(t, err)
	root := 0
	view(t, db, func(tx *holdfast.Tx) { root = int(hook.Bucket(tx.Cursor().Bucket()).Root()) })
	size := db.Info().PageSize
	leaf := int(binary.LittleEndian.Uint64(data[root*size+page.HeaderSize+8:])) // the child of the first element of a branch
	clear(data[leaf*size:][:size])                                              // as before it was written
	copied := db.Path() + ".copy"
	must(t, os.WriteFile(copied, data, 0o600))
	for _, damage := range []holdfast.OnDamage{holdfast.DamageIsError, holdfast.DamagePanics} {
		db, err := holdfast.Open(copied, 0o600, &holdfast.Options{OnDamage: damage})
		if !errors.Is(err, holdfast.ErrTornCopy) {
			t.Errorf("OnDamage %d: %v", damage, err)
		}
		if err == nil {
			must(t, db.Close())
		}
	}
	must(t, db.Close())
}

// What happened: a read-only opening looked at the root pages of all buckets where there is no freelist page. bbolt does not scan
// the file then, and programs read the other buckets.
func TestReadOnlyOpenBesideADamagedBucket(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{NoFreelistSync: true})
	for _, name := range []string{"a", "b"} {
		fillAndDelete(t, db, name, 1000, 100, func(int) bool { return true })
	}
	var root page.ID
	view(t, db, func(tx *holdfast.Tx) { root = hook.Bucket(tx.Bucket([]byte("b"))).Root() })
	path, size := db.Path(), db.Info().PageSize
	must(t, db.Close())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, page.HeaderSize), int64(root)*int64(size))
	must(t, errors.Join(err, f.Close()))
	for _, load := range []bool{false, true} {
		options := holdfast.Options{ReadOnly: true, PreLoadFreelist: load}
		db, err := holdfast.Open(path, 0o600, &options)
		var damage *holdfast.CorruptError
		if load != errors.As(err, &damage) {
			t.Errorf("PreLoadFreelist %v: %v", load, err)
		}
		if err == nil {
			must(t, db.Close())
		}
	}
}
