package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// makeHoles makes a database of many shapes with holes of many lengths.
func makeHoles(t *testing.T, path string, options *holdfast.Options) {
	t.Helper()
	rng := random(t)
	db := openSized(t, path, options)
	defer func() { must(t, db.Close()) }()
	for range 12 {
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists(fmt.Append(nil, "bucket", rng.IntN(4)))
			must(t, err)
			nested, err := b.CreateBucketIfNotExists(fmt.Append(nil, "nested", rng.IntN(3)))
			must(t, err)
			for range rng.IntN(400) {
				size := rng.IntN(100)
				if rng.IntN(20) == 0 {
					size = rng.IntN(5 * options.PageSize)
				}
				must(t, []*holdfast.Bucket{b, nested}[rng.IntN(2)].Put(fmt.Append(nil, "key", rng.IntN(2000)), make([]byte, size)))
			}
			for range rng.IntN(200) {
				must(t, b.Delete(fmt.Append(nil, "key", rng.IntN(2000))))
			}
		})
	}
}

// layoutOf is all runs of pages of the database, which have to be without a gap.
func layoutOf(t *testing.T, tx *holdfast.Tx, pageSize int) (runs []holdfast.PageRun) {
	t.Helper()
	next := page.ID(0)
	must(t, tx.ForEachPage(func(r holdfast.PageRun) error {
		if r.ID != next || r.Pages == 0 || r.Err != nil {
			t.Fatalf("after page %d: %+v", next, r)
		}
		next = r.End()
		runs = append(runs, r)
		return nil
	}))
	if want := page.ID(tx.Size() / int64(pageSize)); next != want {
		t.Fatalf("%d pages, want %d", next, want)
	}
	return runs
}

// Each page of a file is in one run, and of the kind that the buckets, which are gone
// through for it, say; however the free pages are found.
func TestForEachPage(t *testing.T) {
	for _, pageSize := range []int{512, 1024, 4096, 16 << 10, 64 << 10} {
		for name, options := range map[string]holdfast.Options{
			"recorded": {}, "no freelist": {NoFreelistSync: true}, "freelist only": {StrictCompat: true}, "scan": {StrictCompat: true, NoFreelistSync: true},
		} {
			options.PageSize, options.NoSync = pageSize, true
			path := tempPath(t)
			makeHoles(t, path, &options)
			before := readFile(t, path)
			db := open(t, path, &holdfast.Options{ReadOnly: true})
			view(t, db, func(tx *holdfast.Tx) {
				runs := layoutOf(t, tx, pageSize)
				sum := map[holdfast.PageKind]holdfast.PageRun{} // pages of a kind, and overflow pages as UsedBytes
				var free []page.Extent
				for _, r := range runs {
					s := sum[r.Kind]
					s.Pages += r.Pages
					s.UsedBytes += r.Pages - 1
					sum[r.Kind] = s
					if r.Kind == holdfast.PageFree {
						free = append(free, page.Extent{Start: r.ID, N: r.Pages})
					}
				}
				root := tx.Cursor().Bucket().Stats() // with all buckets in it
				if got := sum[holdfast.PageBranch]; int(got.Pages-got.UsedBytes) != root.BranchPageN || int(got.UsedBytes) != root.BranchOverflowN {
					t.Errorf("%d, %s: branches: got %+v, want %+v", pageSize, name, got, root)
				}
				if got := sum[holdfast.PageLeaf]; int(got.Pages-got.UsedBytes) != root.LeafPageN || int(got.UsedBytes) != root.LeafOverflowN {
					t.Errorf("%d, %s: leaves: got %+v, want %+v", pageSize, name, got, root)
				}
				if n := int(sum[holdfast.PageFree].Pages); n == 0 || n != db.Stats().FreePageN+db.Stats().PendingPageN {
					t.Errorf("%d, %s: %d free pages, want %+v", pageSize, name, n, db.Stats())
				}
				if got := freeExtents(t, tx); !slices.Equal(got, free) {
					t.Errorf("%d, %s: free extents: got %v, want %v", pageSize, name, got, free)
				}
				if sum[holdfast.PageMeta].Pages != 2 || sum[holdfast.PageDamaged].Pages+sum[holdfast.PageUnknown].Pages != 0 {
					t.Errorf("%d, %s: %v", pageSize, name, sum)
				}
				if has := sum[holdfast.PageFreelist].Pages > 0; has == options.NoFreelistSync {
					t.Errorf("%d, %s: freelist pages: %t", pageSize, name, has)
				}
				checkTx(t, tx)
			})
			if !bytes.Equal(readFile(t, path), before) {
				t.Errorf("%d, %s: the file was changed", pageSize, name)
			}
		}
	}
}

func freeExtents(t *testing.T, tx *holdfast.Tx) (free []page.Extent) {
	t.Helper()
	extents, err := tx.FreeExtents()
	must(t, err)
	for id, n := range extents {
		if k := len(free); k > 0 && free[k-1].End() >= id {
			t.Errorf("%d pages from %d follow %v", n, id, free[k-1])
		}
		free = append(free, page.Extent{Start: id, N: n})
	}
	return free
}

// Beside writers: of the newest state both are told, of an older one neither is.
func TestForEachPageBesideWriters(t *testing.T) {
	db := openNew(t, 1024)
	fill(t, db, 2000, 50)
	old := begin(t, db, false)
	layoutOf(t, old, 1024)
	w := begin(t, db, true)
	must(t, w.Bucket([]byte("b")).Put([]byte("k"), make([]byte, 10_000)))
	before := layoutOf(t, old, 1024) // what is not committed does not show
	layoutOf(t, w, 1024)
	// What was begun goes on while others commit.
	first := true
	var during []holdfast.PageRun
	must(t, old.ForEachPage(func(r holdfast.PageRun) error {
		if during = append(during, r); first {
			first = false
			must(t, w.Commit())
			fill(t, db, 500, 100)
		}
		return nil
	}))
	inTrees := func(runs []holdfast.PageRun) []holdfast.PageRun {
		return slices.DeleteFunc(runs, func(r holdfast.PageRun) bool { return r.Kind != holdfast.PageLeaf && r.Kind != holdfast.PageBranch })
	}
	if !slices.Equal(inTrees(during), inTrees(before)) {
		t.Error("the pages of a state were others while somebody committed")
	}
	if _, err := old.FreeExtents(); !errors.Is(err, holdfast.ErrNewerCommit) {
		t.Errorf("got %v", err)
	}
	if err := old.ForEachPage(func(holdfast.PageRun) error { return errors.New("called") }); !errors.Is(err, holdfast.ErrNewerCommit) {
		t.Errorf("got %v", err)
	}
	view(t, db, func(tx *holdfast.Tx) {
		freeExtents(t, tx)
		stop := errors.New("enough")
		if err := tx.ForEachPage(func(holdfast.PageRun) error { return stop }); err != stop {
			t.Errorf("got %v", err)
		}
	})
	must(t, old.Rollback())
	if _, err := old.FreeExtents(); err != holdfast.ErrTxClosed {
		t.Errorf("got %v", err)
	}
	if err := old.ForEachPage(nil); err != holdfast.ErrTxClosed {
		t.Errorf("got %v", err)
	}
}

// Of a damaged file all pages are told, the damaged ones among them, and the damage
// that hides which pages are free.
func TestForEachPageDamaged(t *testing.T) {
	for _, c := range []struct {
		name    string
		damage  func(s *sample) page.ID
		kind    holdfast.PageKind // that there has to be besides damage
		not     holdfast.PageKind
		hidden  bool // damage hides which pages are free
		unnamed bool // the meta names no freelist
	}{
		{"a leaf", func(s *sample) page.ID { s.set16(s.busy, offFlags, 0x80); return s.busy }, holdfast.PageFree, holdfast.PageUnknown, false, false},
		{"a leaf, and a scan", func(s *sample) page.ID { s.set16(s.busy, offFlags, 0x80); return s.busy }, holdfast.PageUnknown, holdfast.PageFree, true, true},
		{"the freelist", func(s *sample) page.ID { s.set16(s.meta.Freelist, offFlags, 0x80); return s.meta.Freelist }, holdfast.PageFree, holdfast.PageUnknown, true, false},
		{"a number on the freelist", func(s *sample) page.ID {
			s.set64(s.meta.Freelist, page.HeaderSize, 1)
			return s.meta.Freelist
		}, holdfast.PageFree, holdfast.PageUnknown, true, false},
		{"the root", func(s *sample) page.ID { s.set64(s.meta.Root, offID, 77); return s.meta.Root }, holdfast.PageLeaf, holdfast.PageUnknown, false, false},
	} {
		s := newSample(t)
		id := c.damage(s)
		if c.unnamed {
			s.setMetas(func(m *page.Meta) { m.Freelist = page.NoFreelist })
		}
		path := tempPath(t)
		must(t, os.WriteFile(path, s.data, 0o600))
		db := open(t, path, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
		view(t, db, func(tx *holdfast.Tx) {
			kinds := map[holdfast.PageKind]int{}
			next := page.ID(0)
			err := tx.ForEachPage(func(r holdfast.PageRun) error {
				if r.ID != next || (r.Kind == holdfast.PageDamaged) != (r.Err != nil) || r.ID == id && r.Err == nil {
					t.Errorf("%s: after page %d: %+v", c.name, next, r)
				}
				next = r.End()
				kinds[r.Kind]++
				return nil
			})
			var damage *holdfast.CorruptError
			if c.hidden && (!errors.As(err, &damage) || damage.Page != id) || !c.hidden && err != nil {
				t.Errorf("%s: got %v", c.name, err)
			}
			if _, err := tx.FreeExtents(); (err != nil) != c.hidden {
				t.Errorf("%s: FreeExtents: %v", c.name, err)
			}
			if next != s.meta.HighWater || kinds[holdfast.PageDamaged] != 1 || kinds[c.kind] == 0 || kinds[c.not] > 0 {
				t.Errorf("%s: up to page %d, %v", c.name, next, kinds)
			}
		})
	}
}

// Whatever the bytes are, each page is told once.
func TestForEachPageAnyBytes(t *testing.T) {
	rng := random(t)
	for range 200 {
		s := newSample(t)
		if rng.IntN(2) == 0 {
			s = recordedSample(t)
		}
		for range 1 + rng.IntN(10) {
			at := 2*samplePageSize + rng.IntN(len(s.data)/samplePageSize-2)*samplePageSize + rng.IntN(1+rng.IntN(samplePageSize))
			s.data[at] = []byte{0, 1, 0xff, byte(rng.Uint32())}[rng.IntN(4)]
		}
		path := tempPath(t)
		must(t, os.WriteFile(path, s.data, 0o600))
		db := open(t, path, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
		view(t, db, func(tx *holdfast.Tx) {
			next := page.ID(0)
			_ = tx.ForEachPage(func(r holdfast.PageRun) error {
				if r.ID != next || r.Pages == 0 || r.UsedBytes > r.Pages*samplePageSize {
					t.Errorf("after page %d: %+v", next, r)
				}
				next = r.End()
				return nil
			})
			if next != s.meta.HighWater {
				t.Errorf("up to page %d of %d", next, s.meta.HighWater)
			}
		})
		must(t, db.Close())
	}
}
