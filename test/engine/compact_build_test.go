package engine

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// fillExtremes fills a database with what is at the limits of a page, of an inline
// bucket and of the format.
func fillExtremes(t *testing.T, tx *holdfast.Tx) {
	t.Helper()
	for i := range 700 {
		b := createBucket(t, tx, fmt.Sprintf("top%04d", i))
		must(t, b.SetSequence(uint64(i)))
		for k := range i % 12 { // some are inline, and some are not
			put(t, b, fmt.Sprintf("%02d", k), "a value of some bytes")
		}
	}
	keys := createBucket(t, tx, "keys of all sizes")
	for i := range 30 {
		put(t, keys, fmt.Sprintf("%03d", i)+string(make([]byte, holdfast.MaxKeySize-3-i)), "v")
		put(t, keys, fmt.Sprintf("%03d", i), "")
	}
	values := createBucket(t, tx, "values of all sizes")
	for i := range 120 {
		must(t, values.Put(fmt.Appendf(nil, "%03d", i), bytes.Repeat([]byte{byte(i)}, i*i*i%40_000)))
	}
	must(t, values.Put([]byte("large"), make([]byte, 9<<20))) // more than is held at once
	in := createBucket(t, tx, "nested")
	for i := range 300 {
		put(t, in, "k", "v")
		createBucket(t, in, "empty")
		in = createBucket(t, in, fmt.Sprintf("down%d", i))
		must(t, in.SetSequence(uint64(i)<<40))
	}
}

// What is at a limit is copied as it is, for all durabilities, and is there after the
// copy was closed and opened again. A copy of a copy has the same size.
func TestCompactExtremes(t *testing.T) {
	src := openNew(t, 1024)
	update(t, src, func(tx *holdfast.Tx) { fillExtremes(t, tx) })
	want := dumpDB(t, src)
	for name, options := range map[string]holdfast.Options{
		"Full": {}, "Periodic": {Durability: holdfast.Periodic}, "None": {Durability: holdfast.None}, "NoSync": {NoSync: true},
		"StrictCompat": {StrictCompat: true}, "larger pages": {PageSize: 4096}, "no freelist": {NoFreelistSync: true},
	} {
		t.Run(name, func(t *testing.T) {
			if options.PageSize == 0 {
				options.PageSize = 1024
			}
			path := tempPath(t)
			dst := open(t, path, &options)
			must(t, holdfast.Compact(dst, src, 0))
			again := openNew(t, options.PageSize)
			must(t, holdfast.Compact(again, dst, 100_000))
			var sizes [2]int64
			for i, db := range []*holdfast.DB{dst, again} {
				view(t, db, func(tx *holdfast.Tx) { sizes[i] = tx.Size() })
			}
			if sizes[0] != sizes[1] {
				t.Errorf("a copy has %d bytes, its copy %d", sizes[0], sizes[1])
			}
			must(t, dst.Close())
			dst = open(t, path, nil)
			checkDB(t, dst)
			if !reflect.DeepEqual(dumpDB(t, dst), want) {
				t.Error("the copy differs")
			}
			update(t, dst, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("nested"))) })
			checkDB(t, dst)
		})
	}
}

// Compact into a database with other buckets leaves them there.
func TestCompactBeside(t *testing.T) {
	src, dst := openNew(t, 1024), openNew(t, 1024)
	update(t, src, func(tx *holdfast.Tx) { must(t, fillSample(tx)) })
	update(t, dst, func(tx *holdfast.Tx) {
		put(t, createBucket(t, tx, "mine"), "k", "v")
		createBucket(t, tx, "zzz")
	})
	want := dumpDB(t, src)
	for name, d := range dumpDB(t, dst) {
		want[name] = d
	}
	must(t, holdfast.Compact(dst, src, 5000))
	checkDB(t, dst)
	if !reflect.DeepEqual(dumpDB(t, dst), want) {
		t.Error("the copy differs")
	}
	empty := openNew(t, 1024)
	must(t, holdfast.Compact(dst, empty, 0))
	before := readerID(t, empty)
	if must(t, holdfast.Compact(empty, openNew(t, 1024), 0)); readerID(t, empty) != before {
		t.Error("a copy of nothing is a commit")
	}
	if err := holdfast.Compact(empty, dst, 0); err != nil || !reflect.DeepEqual(dumpDB(t, empty), want) {
		t.Errorf("the copy of both differs, %v", err)
	}
}

// A copy that ends in the middle leaves the destination as it was, and of use.
func TestCompactFails(t *testing.T) {
	src := openNew(t, 1024)
	update(t, src, func(tx *holdfast.Tx) { fillExtremes(t, tx) })
	for name, c := range map[string]struct {
		kind vfs.Kind
		err  error
	}{
		"a full disk":        {vfs.KindWrite, syscall.ENOSPC},
		"a full disk, grown": {vfs.KindGrow, syscall.ENOSPC},
		"a write error":      {vfs.KindWrite, syscall.EIO},
	} {
		for _, nth := range []int{1, 3} {
			t.Run(fmt.Sprint(name, nth), func(t *testing.T) {
				calls := -1 << 30
				mem := vfs.NewMem("dst")
				dst, err := bridge.Open(vfs.NewInject(mem.Open(), func(op vfs.Op) error {
					if op.Kind == c.kind {
						if calls++; calls >= nth {
							return c.err
						}
					}
					return nil
				}), &holdfast.Options{PageSize: 1024})
				must(t, err)
				dst.AllocSize = 1 << 20
				update(t, dst, func(tx *holdfast.Tx) { put(t, createBucket(t, tx, "mine"), "k", "v") })
				must(t, dst.Sync())
				want, tx := dumpDB(t, dst), readerID(t, dst)
				calls = 0
				if err := holdfast.Compact(dst, src, 200_000); !errors.Is(err, c.err) {
					t.Fatalf("got %v", err)
				}
				calls = -1 << 30
				checkDB(t, dst)
				if !reflect.DeepEqual(dumpDB(t, dst), want) || readerID(t, dst) != tx {
					t.Error("part of the copy is there")
				}
				must(t, holdfast.Compact(dst, src, 200_000))
				checkDB(t, dst)
				must(t, dst.Close())
			})
		}
	}
	readOnly := tempPath(t)
	must(t, open(t, readOnly, nil).Close())
	dst := open(t, readOnly, &holdfast.Options{ReadOnly: true})
	if err := holdfast.Compact(dst, src, 0); err != holdfast.ErrDatabaseReadOnly {
		t.Errorf("into a database that is open for reading: %v", err)
	}
}
