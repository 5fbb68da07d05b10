package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// damagedFile writes a file whose root is page 3, with the leaves given from
// there on, in pages of samplePageSize bytes.
func damagedFile(t *testing.T, leaves [][]byte, list page.ID) string {
	t.Helper()
	n := 3 + len(leaves)
	data := make([]byte, n*samplePageSize)
	at := func(id int) []byte { return data[id*samplePageSize:][:samplePageSize] }
	for slot := range 2 {
		page.EncodeMeta(at(slot), page.ID(slot), page.Meta{
			PageSize: samplePageSize, Root: 3, Freelist: list, HighWater: page.ID(n), Label: page.Label(10 + slot),
		}, nil)
	}
	page.EncodeFreelist(at(2), 2, 0, 0, func(func(page.Extent) bool) {}, true)
	for i, leaf := range leaves {
		if len(leaf) > samplePageSize {
			t.Fatalf("a leaf of %d bytes", len(leaf))
		}
		copy(at(3+i), leaf)
		binary.NativeEndian.PutUint64(at(3+i), uint64(3+i))
	}
	path := tempPath(t)
	must(t, os.WriteFile(path, data, 0o600))
	return path
}

// endsAsDamaged fails the test unless each way of walking all buckets ends with
// the damage, soon.
func endsAsDamaged(t *testing.T, leaves [][]byte) {
	t.Helper()
	isDamage := func(what string, err error) {
		t.Helper()
		var damage *holdfast.CorruptError
		if !errors.As(err, &damage) {
			t.Errorf("%s: %v, want a *CorruptError", what, err)
		}
	}
	path := damagedFile(t, leaves, 2)
	src := open(t, path, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
	isDamage("Check", checkOnly(src))
	isDamage("Inspect", src.View(func(tx *holdfast.Tx) error { tx.Inspect(); return nil }))
	isDamage("Stats", src.View(func(tx *holdfast.Tx) error {
		for name := range topNames(tx) {
			tx.Bucket([]byte(name)).Stats()
		}
		return nil
	}))
	for _, limit := range []int64{0, 1000} {
		isDamage(fmt.Sprint("Compact by ", limit), holdfast.Compact(openNew(t, 0), src, limit))
	}
	must(t, src.Close())
	_, err := holdfast.Open(damagedFile(t, leaves, page.NoFreelist), 0o600, nil)
	isDamage("Open with a scan", err)
}

func topNames(tx *holdfast.Tx) map[string]bool {
	names := map[string]bool{}
	for c, k := topLevel(tx); k != nil; k, _ = c.Next() {
		names[string(k)] = true
	}
	return names
}

// bomb is a leaf with ten buckets that all use the same bytes as their value, an
// inline bucket that is again one of those, and so on.
func bomb(levels int) []byte {
	const fan = 10
	if levels == 0 {
		leaf := make([]byte, page.HeaderSize)
		page.EncodeHeader(leaf, page.Header{Flags: page.FlagLeaf})
		return leaf
	}
	value := append(make([]byte, page.BucketHeaderSize), bomb(levels-1)...)
	keys := page.HeaderSize + fan*page.LeafElementSize
	leaf := make([]byte, keys, keys+fan+len(value))
	page.EncodeHeader(leaf, page.Header{Flags: page.FlagLeaf, Count: fan})
	for i := range fan { // key i is the rest of "abcdefghij" from its letter on
		e := page.HeaderSize + i*page.LeafElementSize
		binary.NativeEndian.PutUint32(leaf[e:], page.BucketFlag)
		binary.NativeEndian.PutUint32(leaf[e+4:], uint32(keys+i-e))
		binary.NativeEndian.PutUint32(leaf[e+8:], uint32(fan-i))
		binary.NativeEndian.PutUint32(leaf[e+12:], uint32(len(value)))
		leaf = append(leaf, byte('a'+i))
	}
	return append(leaf, value...)
}

// Elements of a damaged page can share their bytes. Inline buckets in inline
// buckets that did were ten times as many with each level, a few hundred bytes
// each, and whatever walked them took time without end.
func TestBucketsThatShareBytes(t *testing.T) {
	endsAsDamaged(t, [][]byte{bomb(4)})
}

// Buckets that share a root are as many again with each level of them: ten in
// each of twelve pages would be a walk over a million millions. Only circles
// were looked for, and this has none.
func TestBucketsThatShareRoots(t *testing.T) {
	const levels, fan = 12, 10
	var leaves [][]byte
	for l := range levels {
		leaf := make([]byte, samplePageSize)
		enc := page.NewLeaf(leaf, 0, fan, 0)
		value := make([]byte, page.BucketHeaderSize)
		page.EncodeBucket(value, page.Bucket{Root: page.ID(3 + l + 1)})
		for i := range fan {
			enc.Leaf(page.BucketFlag, []byte{byte('a' + i)}, value)
		}
		enc.Finish(false)
		leaves = append(leaves, leaf)
	}
	last := make([]byte, samplePageSize)
	enc := page.NewLeaf(last, 0, 1, 0)
	enc.Leaf(0, []byte("k"), []byte("v"))
	enc.Finish(false)
	endsAsDamaged(t, append(leaves, last))
}

// Inspect in a writing transaction of a new file reported damage: it believed
// as many buckets as fit into the file, which did not hold the new ones yet.
func TestInspectBeforeCommit(t *testing.T) {
	db := openNew(t, 0)
	const count = 1500
	update(t, db, func(tx *holdfast.Tx) {
		for i := range count {
			createBucket(t, tx, fmt.Sprint("bucket ", i))
		}
		if got := len(tx.Inspect().Children); got != count {
			t.Errorf("%d buckets, want %d", got, count)
		}
		must(t, tx.Err())
	})
	view(t, db, func(tx *holdfast.Tx) {
		if got := len(tx.Inspect().Children); got != count {
			t.Errorf("%d buckets after the commit, want %d", got, count)
		}
	})
}

// Pages of several MiB have room for more elements than a page can count. With
// FillPercent set, a bucket of 100,000 tiny keys, edited once more, kept a third
// of them; the count of the others wrapped around.
func TestManyKeysInLargePages(t *testing.T) {
	const count = 100_000
	db := openNew(t, 4<<20)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		b.FillPercent = 0.9
		key := func(i uint32) []byte { return binary.BigEndian.AppendUint32(nil, i) }
		for i := range uint32(count) {
			must(t, b.Put(key(i), nil))
		}
		must(t, b.Delete(key(count-1)))
	})
	if got := keys(t, db); got != count-1 {
		t.Errorf("%d keys, want %d", got, count-1)
	}
}
