package bucket_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/tree"
)

// inlineBucket is the value of an inline bucket with one bucket in it for each
// name, of which each has value as its value.
func inlineBucket(value []byte, names ...string) []byte {
	size := page.HeaderSize
	for _, name := range names {
		size += page.LeafElementSize + len(name) + len(value)
	}
	v := make([]byte, page.BucketHeaderSize+size)
	enc := page.NewLeaf(v[page.BucketHeaderSize:], 0, len(names), 0)
	for _, name := range names {
		enc.Leaf(page.BucketFlag, []byte(name), value)
	}
	enc.Finish(true)
	return v
}

// An inline bucket in an inline bucket was believed. No file of bbolt has one,
// and as elements of a damaged page can share their bytes, six levels of them
// in a page of 4 KiB were a million buckets: deleting, scanning and counting
// took hours. It is damage now, whoever meets it.
func TestInlineBucketHoldsNone(t *testing.T) {
	s := newStore(t)
	value := inlineBucket(inlineBucket(inlineBucket(nil), "c1", "c2"), "b1", "b2")
	id, buf, _ := s.Allocate(1, true)
	enc := page.NewLeaf(buf, id, 1, 0)
	enc.Leaf(page.BucketFlag, []byte("a"), value)
	enc.Finish(true)
	s.root = id

	isDamage := func(what string, err error) {
		t.Helper()
		var damage *page.CorruptError
		if !errors.As(err, &damage) || !strings.Contains(err.Error(), "an inline bucket holds a bucket") {
			t.Errorf("%s: %v", what, err)
		}
	}
	isDamage("EachRun", bucket.EachRun(s, s.root, func(page.Extent) error { return nil }))
	s.view(func(root *bucket.Bucket) {
		var a, b bucket.Bucket
		ok, err := root.OpenChild([]byte("a"), &a)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		_, err = a.OpenChild([]byte("b1"), &b)
		isDamage("OpenChild", err)
		_, err = root.Stats(pageSize, 100)
		isDamage("Stats", err)
	})
	tx := &bucket.Tx{Source: s, Writer: s, Edit: tree.NewEdit(s)}
	var root bucket.Bucket
	root.OpenRoot(tx, s.root, 0)
	isDamage("DeleteChild", root.DeleteChild([]byte("a")))
}

// Buckets were created as deep as one liked, but believed only 1,000 deep: then
// they could not be deleted, and a file without a freelist could not be opened
// any more. What can be created can be used.
func TestNestingLimit(t *testing.T) {
	s := newStore(t)
	s.update(func(root *bucket.Bucket) {
		b := root
		for i := range bucket.MaxNesting {
			c := new(bucket.Bucket)
			if err := b.Create([]byte("b"), c); err != nil {
				t.Fatalf("level %d: %v", i+1, err)
			}
			b = c
		}
		if err := b.Create([]byte("b"), new(bucket.Bucket)); err != bucket.ErrTooDeep {
			t.Errorf("one level more: %v, want ErrTooDeep", err)
		}
		put(t, b, "k", 10) // the deepest can be used
	}) // and scanned, which update does
	s.view(func(root *bucket.Bucket) {
		if got, err := root.Stats(pageSize, 1<<20); err != nil || got.BucketN != bucket.MaxNesting+1 {
			t.Errorf("%d buckets, %v", got.BucketN, err)
		}
		b := root
		for range bucket.MaxNesting {
			c := new(bucket.Bucket)
			if ok, err := b.OpenChild([]byte("b"), c); !ok || err != nil {
				t.Fatal(ok, err)
			}
			b = c
		}
	})
	s.update(func(root *bucket.Bucket) { // counted from the root also in a later transaction
		b := root
		for range bucket.MaxNesting {
			b = child(t, b, "b")
		}
		if err := b.Create([]byte("c"), new(bucket.Bucket)); err != bucket.ErrTooDeep {
			t.Errorf("later: %v, want ErrTooDeep", err)
		}
	})
	s.update(func(root *bucket.Bucket) { must(t, root.DeleteChild([]byte("b"))) })
	if len(s.runs) != 1 {
		t.Errorf("%d pages are left", len(s.runs))
	}
}

// Elements of a damaged page that share one inline bucket made a scan, and the
// counting of a bucket, visit it as often as there are elements.
func TestSharedInlineBucket(t *testing.T) {
	s := newStore(t)
	id, buf, _ := s.Allocate(1, true)
	value := make([]byte, page.BucketHeaderSize+pageSize/3)
	in := page.NewLeaf(value[page.BucketHeaderSize:], 0, 0, 0)
	in.Finish(true)
	const n = 4
	enc := page.NewLeaf(buf, id, n, 0)
	enc.Leaf(page.BucketFlag, []byte("a"), value)
	for range n - 1 {
		enc.Leaf(page.BucketFlag, []byte("b"), nil)
	}
	enc.Finish(true)
	s.root = id
	first := buf[page.HeaderSize:][:page.LeafElementSize]
	for i := 1; i < n; i++ { // all are what the first is
		e := buf[page.HeaderSize+i*page.LeafElementSize:][:page.LeafElementSize]
		copy(e, first)
		binary.NativeEndian.PutUint32(e[4:], binary.NativeEndian.Uint32(first[4:])-uint32(i*page.LeafElementSize))
	}
	isDamage := func(what string, err error) {
		t.Helper()
		var damage *page.CorruptError
		if !errors.As(err, &damage) || damage.Page != id || !strings.Contains(err.Error(), "more bytes than it has") {
			t.Errorf("%s: %v", what, err)
		}
	}
	isDamage("EachRun", bucket.EachRun(s, s.root, func(page.Extent) error { return nil }))
	s.view(func(root *bucket.Bucket) {
		_, err := root.Stats(pageSize, 100)
		isDamage("Stats", err)
	})
}
