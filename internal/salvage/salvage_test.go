package salvage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

// pageSize of the files here, in bytes.
const pageSize = 1024

// file is one that is laid out page by page.
type file []byte

func newFile(pages int) file { return make(file, pages*pageSize) }

// metas writes both metas. freelist is an empty freelist page, or page.NoFreelist.
func (f file) metas(root, freelist page.ID) {
	for slot := range page.ID(2) {
		m := page.Meta{PageSize: pageSize, Root: root, Freelist: freelist, HighWater: page.ID(len(f) / pageSize), Label: page.Label(10 + slot)}
		page.EncodeMeta(f[slot*pageSize:][:pageSize], slot, m, nil)
	}
	if freelist != page.NoFreelist {
		page.EncodeFreelist(f.run(freelist, 1), freelist, 0, 0, slices.Values([]page.Extent{}), true)
	}
}

func (f file) run(id page.ID, n int) []byte { return f[int(id)*pageSize:][:n*pageSize] }

// leaf writes a leaf page of n pages with keys whose values are their own bytes.
func (f file) leaf(id page.ID, n int, keys ...string) {
	e := page.NewLeaf(f.run(id, n), id, len(keys), uint32(n-1))
	for _, key := range keys {
		e.Leaf(0, []byte(key), []byte(key))
	}
	e.Finish(true)
}

// bucket is an element of a leaf that holds buckets.
type bucket struct {
	name     string
	root     page.ID
	sequence uint64
}

func (f file) buckets(id page.ID, all ...bucket) {
	e := page.NewLeaf(f.run(id, 1), id, len(all), 0)
	for _, b := range all {
		header := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, uint64(b.root)), b.sequence)
		e.Leaf(page.BucketFlag, []byte(b.name), header)
	}
	e.Finish(true)
}

// branch writes a branch page of n pages over children from page first on, as many as there
// are keys; step is 0 if all are the same.
func (f file) branch(id page.ID, n int, first page.ID, step int, keys ...string) {
	e := page.NewBranch(f.run(id, n), id, len(keys), uint32(n-1))
	for i, key := range keys {
		e.Branch([]byte(key), first+page.ID(i*step))
	}
	e.Finish(true)
}

// numbered are n keys in their order.
func numbered(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s%06d", prefix, i))
	}
	return keys
}

// held is a sink that keeps what it is given, by its path, with how often it came.
type held map[string]int

func (h held) at(p *salvage.Place, key []byte) string {
	return string(bytes.Join(append(p.Path(), key), []byte("/")))
}

func (h held) Begin(int) error                     { return nil }
func (h held) Fresh(name string) (string, error)   { return name, nil }
func (h held) Bucket(*salvage.Place) (bool, error) { return true, nil }
func (h held) Put(p *salvage.Place, key, _ []byte) (salvage.Outcome, error) {
	h[h.at(p, key)]++
	return salvage.Saved, nil
}

func (h held) keys() string { return strings.Join(slices.Sorted(maps.Keys(h)), " ") }

func run(t *testing.T, f file) (held, *salvage.Report) {
	t.Helper()
	h := held{}
	r, err := salvage.Run(t.Context(), bytes.NewReader(f), int64(len(f)), h, salvage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h, r
}

// TestOrphanOfAnotherHeight: pages that nothing names are not taken for what a damaged page
// named if their leaves would not be where all others of the bucket are.
func TestOrphanOfAnotherHeight(t *testing.T) {
	f := newFile(13)
	f.metas(3, 2)
	f.buckets(3, bucket{"b", 4, 0})
	f.branch(4, 1, 5, 1, "a", "m") // page 6, over page 9, is damaged
	f.branch(5, 1, 7, 1, "a")
	f.branch(7, 1, 8, 1, "a")
	f.leaf(8, 1, "a", "b")
	f.branch(9, 1, 10, 1, "m")
	f.leaf(10, 1, "m", "n")
	f.leaf(11, 1, "q", "r") // too low for its place
	f.branch(12, 1, 8, 1, "s")
	h, r := run(t, f)
	if got, want := h.keys(), "b/a b/b b/m b/n lost+found/page-11/q lost+found/page-11/r"; got != want {
		t.Errorf("saved %s, want %s", got, want)
	}
	if r.Found != 2 {
		t.Errorf("%d keys found below a damaged page, want 2", r.Found)
	}
}

// TestSuspectOnce: a leaf whose seal is wrong is saved once, however many pages name it, it
// itself among them.
func TestSuspectOnce(t *testing.T) {
	f := newFile(7)
	f.metas(3, 2)
	f.buckets(3, bucket{"b", 4, 0})
	f.branch(4, 1, 5, 0, numbered("", 20)...)
	f.buckets(5, bucket{"itself", 5, 0}, bucket{"keys", 6, 0})
	f.leaf(6, 1, "a", "b")
	f.run(5, 1)[pageSize-200]++ // where nothing is
	h, r := run(t, f)
	if got, want := h.keys(), "lost+found/page-5/keys/a lost+found/page-5/keys/b"; got != want || h["lost+found/page-5/keys/a"] != 1 {
		t.Errorf("saved %v, want each of %s once", h, want)
	}
	if len(r.Places) != 1 {
		t.Errorf("in %v, want one place", r.Places)
	}
}

// TestRootOfMany: of many states that share their pages one is chosen in a time that
// follows the length of the file.
func TestRootOfMany(t *testing.T) {
	const shared, roots = 1000, 1000
	f := newFile(2 + shared + roots*shared*32/pageSize + 2*roots)
	clear(f[:2*pageSize])
	for i := range page.ID(shared) {
		f.buckets(2+i, bucket{fmt.Sprintf("%06d", i), 0, 1})
	}
	const each = 32 // pages
	id := page.ID(2 + shared)
	last := id
	for ; uint64(id)+each <= uint64(len(f)/pageSize); id += each {
		f.branch(id, each, 2, 1, numbered("", shared)...)
		last = id
	}
	_, r := run(t, f)
	if r.Root != last || r.Buckets != shared {
		t.Errorf("page %d is taken for the root, with %d buckets; want page %d with %d", r.Root, r.Buckets, last, shared)
	}
	if most := 10 * uint64(len(f)/pageSize); r.PagesRead > most {
		t.Errorf("%d pages were read of %d", r.PagesRead, len(f)/pageSize)
	}
}

// ending is a file during whose reading the context ends.
type ending struct {
	*bytes.Reader
	reads, at int
	end       func()
}

func (e *ending) ReadAt(b []byte, off int64) (int, error) {
	if e.reads++; e.reads == e.at {
		e.end()
	}
	return e.Reader.ReadAt(b, off)
}

// TestEnds: whenever the context ends, the work does soon.
func TestEnds(t *testing.T) {
	const n = 3000
	rootless := newFile(3 + n + 100)
	rootless.branch(2, 100, 102, 1, numbered("", n)...)
	for i := range page.ID(n) {
		rootless.buckets(102+i, bucket{fmt.Sprintf("%06d", i), 0, 1})
	}
	suspects := newFile(4 + n + 100)
	suspects.metas(3, 2)
	suspects.buckets(3, bucket{"b", 4, 0})
	suspects.branch(4, 100, 104, 1, numbered("", n)...)
	for i := range page.ID(n) {
		suspects.leaf(104+i, 1, fmt.Sprintf("%06d", i))
		suspects.run(104+i, 1)[pageSize-200]++
	}
	for name, f := range map[string]file{"rootless": rootless, "suspects": suspects} {
		all := &ending{Reader: bytes.NewReader(f), at: -1}
		if _, err := salvage.Run(t.Context(), all, int64(len(f)), held{}, salvage.Options{}); err != nil {
			t.Fatal(name, err)
		}
		for at := 10; at < all.reads-20; at += 97 {
			ctx, cancel := context.WithCancel(t.Context())
			e := &ending{Reader: bytes.NewReader(f), at: at, end: cancel}
			_, err := salvage.Run(ctx, e, int64(len(f)), held{}, salvage.Options{})
			if !errors.Is(err, context.Canceled) || e.reads > at+10 {
				t.Errorf("%s: ended at read %d of %d: %d reads, %v", name, at, all.reads, e.reads, err)
			}
			cancel()
		}
	}
}

// measured is a sink that keeps nothing and looks at the memory in use now and then.
type measured struct {
	calls, keys int
	begun, most uint64 // bytes
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (m *measured) Begin(int) error { m.begun = inUse(); return nil }

func (m *measured) look() {
	if m.calls++; m.calls%20_000 == 1 {
		m.most = max(m.most, inUse())
	}
}

// Fresh comes when the first is saved of what was put off.
func (m *measured) Fresh(name string) (string, error) {
	m.most = max(m.most, inUse())
	return name, nil
}

func (m *measured) Bucket(*salvage.Place) (bool, error) { m.look(); return true, nil }

func (m *measured) Put(*salvage.Place, []byte, []byte) (salvage.Outcome, error) {
	m.look()
	m.keys++
	return salvage.Saved, nil
}

// measure is how many bytes a salvage of f holds at most, besides one for each page.
func measure(t *testing.T, f file) (m measured, bytesHeld int64) {
	t.Helper()
	if _, err := salvage.Run(t.Context(), bytes.NewReader(f), int64(len(f)), &m, salvage.Options{}); err != nil {
		t.Fatal(err)
	}
	return m, int64(m.most) - int64(m.begun)
}

// TestMemoryOfStrangers: keys that do not fit what names their pages are not all kept in
// memory until they are saved, and are saved all the same.
func TestMemoryOfStrangers(t *testing.T) {
	const branches, leaves, keyPages, room = 50, 1000, 420, 400
	f := newFile(5 + branches*(keyPages+leaves))
	f.metas(3, 2)
	f.buckets(3, bucket{"b", 4, 0})
	f.branch(4, 1, 5, keyPages+leaves, numbered("", branches)...)
	for i := range branches {
		at := page.ID(5 + i*(keyPages+leaves))
		keys := numbered(fmt.Sprintf("%06d/%0*d/", i, room, 0), leaves)
		f.branch(at, keyPages, at+keyPages, 1, keys...)
		for j, key := range keys {
			f.leaf(at+keyPages+page.ID(j), 1, key, "~"+key[room:])
		}
	}
	m, held := measure(t, f)
	if most := int64(24 << 20); held > most {
		t.Errorf("%d bytes held, more than %d", held, most)
	}
	if m.keys < 2*branches*leaves {
		t.Errorf("%d keys saved of %d", m.keys, 2*branches*leaves)
	}
}

// TestMemoryOfSuspects: a page that may be damaged takes no memory for each page that names it.
func TestMemoryOfSuspects(t *testing.T) {
	const branches, names, pages = 10, 60_000, 1420
	f := newFile(6 + branches*pages)
	f.metas(3, 2)
	f.buckets(3, bucket{"b", 4, 0})
	f.branch(4, 1, 6, pages, strings.Split("00 01 02 03 04 05 06 07 08 09", " ")...)
	f.leaf(5, 1, "a")
	f.run(5, 1)[pageSize-200]++
	for i := range branches {
		f.branch(page.ID(6+i*pages), pages, 5, 0, numbered(fmt.Sprintf("%02d", i), names)...)
	}
	if _, held := measure(t, f); held > 6<<20 {
		t.Errorf("%d bytes held", held)
	}
}
