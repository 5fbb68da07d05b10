package bucket_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/tree"
)

const pageSize = 1024

// inlineLimit is the largest page that an inline bucket may have: a quarter of
// a page, as in bbolt.
const inlineLimit = pageSize / 4

// store keeps the pages of one state in memory; it knows which of them a
// transaction allocates and frees.
type store struct {
	t     *testing.T
	next  page.ID
	runs  map[page.ID][]byte
	freed map[page.ID]bool
	root  page.ID
	seq   uint64
}

func newStore(t *testing.T) *store {
	s := &store{t: t, next: page.FirstDataPage, runs: map[page.ID][]byte{}, freed: map[page.ID]bool{}}
	id, buf, _ := s.Allocate(1, true)
	enc := page.NewLeaf(buf, id, 0, 0)
	enc.Finish(true)
	s.root = id
	return s
}

func (s *store) PageSize() int { return pageSize }

func (s *store) Page(id page.ID) (page.Page, error) {
	run, ok := s.runs[id]
	if !ok {
		return page.Page{}, page.Corruptf(id, "no such page")
	}
	return page.Parse(run, id)
}

func (s *store) Verify(p page.Page) (page.Page, error) { return p, nil }

func (s *store) Allocate(n uint64, _ bool) (page.ID, []byte, error) {
	id := s.next
	s.next += page.ID(n)
	s.runs[id] = bytes.Repeat([]byte{0xEE}, int(n)*pageSize)
	return id, s.runs[id], nil
}

func (s *store) Seal(int) {}

func (s *store) Free(id page.ID, n uint64) error {
	run, ok := s.runs[id]
	if !ok || s.freed[id] || len(run) != int(n)*pageSize {
		return page.Corruptf(id, "freed twice or never allocated")
	}
	s.freed[id] = true
	return nil
}

// update runs fn on the root bucket of a writing transaction and commits it.
// Then exactly the pages that the buckets use must be left.
func (s *store) update(fn func(root *bucket.Bucket)) {
	s.t.Helper()
	tx := &bucket.Tx{Source: s, Writer: s, Edit: tree.NewEdit(s)}
	var root bucket.Bucket
	root.OpenRoot(tx, s.root, s.seq)
	fn(&root)
	var err error
	if s.root, s.seq, err = root.Commit(); err != nil {
		s.t.Fatal(err)
	}
	for id := range s.freed {
		delete(s.runs, id)
	}
	clear(s.freed)
	used := map[page.ID]bool{}
	err = bucket.EachRun(s, s.root, func(e page.Extent) error {
		if used[e.Start] || len(s.runs[e.Start]) != int(e.N)*pageSize {
			s.t.Errorf("page %d is used twice, or is not there", e.Start)
		}
		used[e.Start] = true
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(used) != len(s.runs) {
		s.t.Fatalf("%d page runs are used, %d are there", len(used), len(s.runs))
	}
}

// view runs fn on the root bucket of a reading transaction.
func (s *store) view(fn func(root *bucket.Bucket)) {
	var root bucket.Bucket
	root.OpenRoot(&bucket.Tx{Source: s}, s.root, s.seq)
	fn(&root)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// child opens or makes a nested bucket.
func child(t *testing.T, b *bucket.Bucket, name string) *bucket.Bucket {
	t.Helper()
	if c := b.Child([]byte(name)); c != nil {
		return c
	}
	c := new(bucket.Bucket)
	ok, err := b.OpenChild([]byte(name), c)
	must(t, err)
	if !ok {
		must(t, b.Create([]byte(name), c))
	}
	return c
}

// path opens or makes buckets down to the last name.
func path(t *testing.T, b *bucket.Bucket, names ...string) *bucket.Bucket {
	t.Helper()
	for _, name := range names {
		b = child(t, b, name)
	}
	return b
}

func put(t *testing.T, b *bucket.Bucket, key string, size int) {
	t.Helper()
	must(t, b.Put([]byte(key), bytes.Repeat([]byte(key[:1]), size)))
}

// isInline tells whether the bucket at the path is inline in the last commit.
func (s *store) isInline(names ...string) (inline bool) {
	s.t.Helper()
	s.view(func(root *bucket.Bucket) {
		b := root
		for _, name := range names {
			c := new(bucket.Bucket)
			ok, err := b.OpenChild([]byte(name), c)
			must(s.t, err)
			if !ok {
				s.t.Fatalf("no bucket %s", name)
			}
			b = c
		}
		inline = b.Root() == 0
	})
	return inline
}

// A bucket is inline up to a quarter page, header and element included, and not
// with one byte more: where bbolt draws the line.
func TestInlineThreshold(t *testing.T) {
	const overhead = page.HeaderSize + page.LeafElementSize + 1 // of one key of one byte
	for _, size := range []int{0, inlineLimit - overhead - 1, inlineLimit - overhead, inlineLimit - overhead + 1, 2000} {
		s := newStore(t)
		s.update(func(root *bucket.Bucket) { put(t, child(t, root, "b"), "k", size) })
		if got, want := s.isInline("b"), size <= inlineLimit-overhead; got != want {
			t.Errorf("value of %d bytes: inline %t, want %t", size, got, want)
		}
		s.view(func(root *bucket.Bucket) {
			if e, ok, err := child(t, root, "b").Get([]byte("k")); err != nil || !ok || len(e.Value) != size {
				t.Errorf("reads %d bytes, %v; want %d", len(e.Value), err, size)
			}
		})
	}
}

// Growing over the line gives a bucket pages of its own, shrinking below takes
// them back, in one transaction and over several, and none is lost.
func TestInlineGrowsAndShrinks(t *testing.T) {
	s := newStore(t)
	steps := []struct {
		size   int
		inline bool
	}{{10, true}, {500, false}, {10, true}, {0, true}, {3000, false}, {100, true}, {100, true}, {1000, false}, {1001, false}, {5, true}}
	for i, step := range steps {
		s.update(func(root *bucket.Bucket) { put(t, child(t, root, "b"), "k", step.size) })
		if got := s.isInline("b"); got != step.inline {
			t.Errorf("step %d, %d bytes: inline %t", i, step.size, got)
		}
		s.update(func(root *bucket.Bucket) { // there and back in one transaction
			b := child(t, root, "b")
			put(t, b, "other", 5000)
			must(t, b.Delete([]byte("other")))
			put(t, b, "k", step.size)
		})
		if got := s.isInline("b"); got != step.inline {
			t.Errorf("step %d again, %d bytes: inline %t", i, step.size, got)
		}
	}
	s.update(func(root *bucket.Bucket) { // many keys, and then one again
		for i := range 500 {
			put(t, child(t, root, "b"), fmt.Sprintf("%03d", i), 20)
		}
	})
	if s.isInline("b") {
		t.Error("five hundred keys are inline")
	}
	s.update(func(root *bucket.Bucket) {
		for i := range 500 {
			must(t, child(t, root, "b").Delete(fmt.Appendf(nil, "%03d", i)))
		}
	})
	if !s.isInline("b") {
		t.Error("one key is not inline")
	}
}

// A bucket that holds a bucket is not inline, however small; it is again when
// that has gone.
func TestNestedIsNotInline(t *testing.T) {
	s := newStore(t)
	inline := func() string {
		return fmt.Sprint(s.isInline("a"), s.isInline("a", "b"), s.isInline("a", "b", "c"))
	}
	s.update(func(root *bucket.Bucket) { put(t, path(t, root, "a", "b", "c"), "k", 1) })
	if got := inline(); got != "false false true" {
		t.Errorf("nested: inline %s", got)
	}
	s.update(func(root *bucket.Bucket) { put(t, path(t, root, "a", "b", "c"), "k", 5000) })
	if got := inline(); got != "false false false" {
		t.Errorf("innermost grown: inline %s", got)
	}
	s.update(func(root *bucket.Bucket) { put(t, path(t, root, "a", "b", "c"), "k", 1) })
	if got := inline(); got != "false false true" {
		t.Errorf("innermost shrunk: inline %s", got)
	}
	s.update(func(root *bucket.Bucket) { must(t, path(t, root, "a", "b").DeleteChild([]byte("c"))) })
	if !s.isInline("a", "b") || s.isInline("a") {
		t.Error("innermost deleted: the one above it is not inline")
	}
	s.update(func(root *bucket.Bucket) { must(t, path(t, root, "a").DeleteChild([]byte("b"))) })
	if !s.isInline("a") {
		t.Error("all nested ones deleted: the outer is not inline")
	}
	s.update(func(root *bucket.Bucket) { must(t, root.DeleteChild([]byte("a"))) })
	if len(s.runs) != 1 {
		t.Errorf("%d page runs are left of nothing", len(s.runs))
	}
}

// A sequence alone changes the header: of inline buckets, of others, of the
// root; and is kept when nothing but keys change.
func TestSequenceAlone(t *testing.T) {
	s := newStore(t)
	s.update(func(root *bucket.Bucket) {
		put(t, child(t, root, "inline"), "k", 1)
		put(t, child(t, root, "paged"), "k", 3000)
		put(t, path(t, root, "outer", "in"), "k", 1)
	})
	before := len(s.runs)
	names := [][]string{{}, {"inline"}, {"paged"}, {"outer"}, {"outer", "in"}}
	s.update(func(root *bucket.Bucket) {
		for i, n := range names {
			must(t, path(t, root, n...).SetSequence(uint64(i+1)))
		}
		if !root.Changed() {
			t.Error("nothing has changed")
		}
	})
	s.update(func(root *bucket.Bucket) {
		put(t, child(t, root, "inline"), "l", 1)
		put(t, child(t, root, "paged"), "k", 3001)
	})
	s.view(func(root *bucket.Bucket) {
		for i, n := range names {
			b := root
			for _, name := range n {
				c := new(bucket.Bucket)
				if ok, err := b.OpenChild([]byte(name), c); err != nil || !ok {
					t.Fatalf("no bucket %v, %v", n, err)
				}
				b = c
			}
			if got := b.Sequence(); got != uint64(i+1) {
				t.Errorf("%v: sequence %d, want %d", n, got, i+1)
			}
		}
	})
	if len(s.runs) != before {
		t.Errorf("%d page runs, %d before", len(s.runs), before)
	}
}

// What was only read is not changed, and a commit of it writes nothing.
func TestUnchanged(t *testing.T) {
	s := newStore(t)
	s.update(func(root *bucket.Bucket) { put(t, path(t, root, "a", "b"), "k", 2000) })
	root, next := s.root, s.next
	s.update(func(b *bucket.Bucket) {
		if e, ok, err := path(t, b, "a", "b").Get([]byte("k")); err != nil || !ok || len(e.Value) != 2000 {
			t.Errorf("reads %d bytes, %v", len(e.Value), err)
		}
		must(t, path(t, b, "a").Delete([]byte("no such key")))
		if b.Changed() {
			t.Error("reading counts as a change")
		}
	})
	if s.root != root || s.next != next {
		t.Error("something was written")
	}
}

// A reading transaction has no children of its own, and refuses edits.
func TestReadOnly(t *testing.T) {
	s := newStore(t)
	s.update(func(root *bucket.Bucket) { put(t, child(t, root, "b"), "k", 1) })
	s.view(func(root *bucket.Bucket) {
		b := child(t, root, "b")
		if root.Child([]byte("b")) != nil || root.Writable() || b.Writable() {
			t.Error("a reading transaction remembers, or writes")
		}
		var c bucket.Bucket
		for i, err := range []error{
			b.Put([]byte("k"), nil), b.Delete([]byte("k")), b.Create([]byte("c"), &c), root.DeleteChild([]byte("b")),
			root.Move([]byte("b"), b), b.SetSequence(1),
		} {
			if err != bucket.ErrTxNotWritable {
				t.Errorf("edit %d: %v", i, err)
			}
		}
	})
	var top bucket.Bucket
	if ok, err := bucket.OpenTop(&bucket.Tx{Source: s}, s.root, []byte("b"), &top); !ok || err != nil || top.Root() != 0 {
		t.Errorf("OpenTop: %t, %v", ok, err)
	}
	if ok, err := bucket.OpenTop(&bucket.Tx{Source: s}, s.root, []byte("no"), &top); ok || err != nil {
		t.Errorf("OpenTop of what is not there: %t, %v", ok, err)
	}
}

// Walks over a bucket that contains itself end, with an error.
func TestCircularBuckets(t *testing.T) {
	s := newStore(t)
	s.update(func(root *bucket.Bucket) {
		for _, name := range []string{"a", "b", "c"} {
			put(t, child(t, root, name), "k", 2000)
		}
	})
	// Every bucket's root becomes the root of all.
	p, err := s.Page(s.root)
	must(t, err)
	for i := range p.Count() {
		e, err := p.Leaf(i)
		must(t, err)
		page.EncodeBucket(e.Value, page.Bucket{Root: s.root})
	}
	var damage *page.CorruptError
	seen := map[page.ID]bool{}
	stop := errors.New("twice")
	if err := bucket.EachRun(s, s.root, func(e page.Extent) error {
		if seen[e.Start] {
			return stop
		}
		seen[e.Start] = true
		return nil
	}); err != stop {
		t.Errorf("EachRun: %v", err)
	}
	if err := bucket.EachRun(s, s.root, func(e page.Extent) error { return nil }); !errors.As(err, &damage) || !strings.Contains(err.Error(), "nested more than") {
		t.Errorf("EachRun: %v", err)
	}
	s.view(func(root *bucket.Bucket) {
		if _, err := root.Stats(pageSize, 1000); !errors.As(err, &damage) {
			t.Errorf("Stats: %v", err)
		}
	})
	tx := &bucket.Tx{Source: s, Writer: s, Edit: tree.NewEdit(s)}
	var root bucket.Bucket
	root.OpenRoot(tx, s.root, 0)
	if err := root.DeleteChild([]byte("a")); !errors.As(err, &damage) {
		t.Errorf("DeleteChild: %v", err)
	}
}
