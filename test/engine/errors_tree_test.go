package engine

import (
	"fmt"
	"math"

	"holdfast"
	"holdfast/internal/page"
)

// treeCases are the rows of docs/errors.md about damage in a tree.
var treeCases = map[string]func(*errorRow){
	"page-type": func(r *errorRow) {
		for _, flags := range []uint16{0, page.FlagMeta, page.FlagLeaf | page.FlagBranch} {
			r.tryPages(func(s *sample, id page.ID) { s.set16(id, offFlags, flags) })
		}
	},
	"page-number": func(r *errorRow) {
		r.tryPages(func(s *sample, id page.ID) { s.set64(id, offID, 0) })
		r.tryPages(func(s *sample, id page.ID) { s.set64(id, offID, uint64(id)+1) })
	},
	"page-count": func(r *errorRow) {
		r.tryPages(func(s *sample, id page.ID) { s.set16(id, offCount, 0xFFFF) })
	},
	"page-overflow": func(r *errorRow) {
		r.tryPages(func(s *sample, id page.ID) { s.set32(id, offOverflow, uint32(s.meta.HighWater)) })
		r.tryPages(func(s *sample, id page.ID) { s.set32(id, offOverflow, math.MaxUint32) })
	},
	"element-offset": func(r *errorRow) {
		r.tryLeaves(func(s *sample, id page.ID) { s.set32(id, offLeafPos, 1<<20) })
		r.tryLeaves(func(s *sample, id page.ID) { s.set32(id, offLeafPos, math.MaxUint32) })
		r.tryDamage("branch", func(s *sample) { s.set32(s.keys, page.HeaderSize, math.MaxUint32) })
	},
	"element-key-length": func(r *errorRow) {
		r.tryLeaves(func(s *sample, id page.ID) { s.set32(id, offLeafKey, 1<<20) })
		r.tryDamage("branch", func(s *sample) { s.set32(s.keys, page.HeaderSize+4, 1<<20) })
	},
	"element-value-length": func(r *errorRow) {
		r.tryLeaves(func(s *sample, id page.ID) { s.set32(id, offLeafVal, 1<<20) })
	},
	"element-sum": func(r *errorRow) {
		r.tryLeaves(func(s *sample, id page.ID) {
			s.set32(id, offLeafPos, math.MaxUint32)
			s.set32(id, offLeafKey, math.MaxUint32)
			s.set32(id, offLeafVal, math.MaxUint32)
		})
		r.tryLeaves(func(s *sample, id page.ID) { s.set32(id, offLeafVal, math.MaxUint32) })
	},
	"elements-shared": func(r *errorRow) {
		s := newSample(r)
		id := s.leaf(s.keys)
		e, err := s.parse(id).Leaf(0)
		must(r, err)
		from, _, err := s.parse(id).Span(0)
		must(r, err)
		s.set32(id, offLeafVal, uint32(len(s.page(id))-from-len(e.Key))) // it reaches to the end of the page
		r.tryUse("check", s.data, checkOnly)
		r.try("delete", s.data, func(path string) error {
			return openUse(path, holdfast.Options{NoSeals: true}, func(db *holdfast.DB) error {
				return db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("keys")).Delete(sampleKey(1)) })
			})
		})
	},
	"dangling": func(r *errorRow) {
		for _, child := range []page.ID{0, 1, newSample(r).meta.HighWater, 1 << 40, math.MaxUint64} {
			r.tryDamage(fmt.Sprint("child ", child), func(s *sample) { s.set64(s.keys, offChild, uint64(child)) })
		}
	},
	"cycle-tree": func(r *errorRow) {
		r.tryDamage("first child", func(s *sample) { s.set64(s.keys, offChild, uint64(s.keys)) })
		r.tryDamage("all children", func(s *sample) {
			for i := range s.parse(s.keys).Count() {
				s.set64(s.keys, offChild+i*page.BranchElementSize, uint64(s.keys))
			}
		})
		r.tryDamage("from below", func(s *sample) {
			s.set64(s.child(s.keys, 0), offChild, uint64(s.keys))
		})
	},
	"cycle-bucket": func(r *errorRow) {
		r.tryDamage("in itself", func(s *sample) {
			page.EncodeBucket(s.bucketValue(s.nest, "deep"), page.Bucket{Root: s.nest})
		})
		r.tryDamage("the root in itself", func(s *sample) {
			page.EncodeBucket(s.bucketValue(s.meta.Root, "big"), page.Bucket{Root: s.meta.Root})
		})
		r.tryDamage("the root in itself, many times", func(s *sample) {
			for _, name := range []string{"big", "keys", "nest", "small"} {
				page.EncodeBucket(s.bucketValue(s.meta.Root, name), page.Bucket{Root: s.meta.Root})
			}
		})
	},
	"empty-branch": func(r *errorRow) {
		r.tryDamage("root", func(s *sample) { s.set16(s.keys, offCount, 0) })
	},
	"bucket-short": func(r *errorRow) {
		for _, n := range []uint32{0, 1, page.BucketHeaderSize - 1} {
			r.tryDamage(fmt.Sprint(n, " bytes"), func(s *sample) { s.set32(s.nest, offLeafVal, n) })
			r.tryDamage(fmt.Sprint(n, " bytes, top level"), func(s *sample) { s.set32(s.meta.Root, offLeafVal, n) })
		}
		// Header and nothing after it, where an inline page should be.
		r.tryDamage("header only", func(s *sample) {
			i, _, _ := s.parse(s.nest).Search([]byte("inline"))
			s.set32(s.nest, offLeafVal+i*page.LeafElementSize, page.BucketHeaderSize)
		})
	},
	"bucket-root": func(r *errorRow) {
		for _, root := range []page.ID{1, newSample(r).meta.HighWater, math.MaxUint64} {
			r.tryDamage(fmt.Sprint("root ", root), func(s *sample) {
				page.EncodeBucket(s.bucketValue(s.nest, "deep"), page.Bucket{Root: root})
			})
			r.tryDamage(fmt.Sprint("root ", root, ", top level"), func(s *sample) {
				page.EncodeBucket(s.bucketValue(s.meta.Root, "keys"), page.Bucket{Root: root})
			})
		}
	},
	"bucket-inline": func(r *errorRow) {
		for name, header := range map[string]page.Header{
			"a branch":   {Flags: page.FlagBranch, Count: 1},
			"a meta":     {Flags: page.FlagMeta},
			"a number":   {ID: 7, Flags: page.FlagLeaf, Count: 1},
			"many":       {Flags: page.FlagLeaf, Count: 0xFFFF},
			"a few more": {Flags: page.FlagLeaf, Count: 2},
		} {
			r.tryDamage(name, func(s *sample) {
				page.EncodeHeader(s.bucketValue(s.nest, "inline")[page.BucketHeaderSize:], header)
			})
		}
	},
	"used-twice": func(r *errorRow) {
		s := newSample(r)
		s.set64(s.keys, offChild, uint64(s.child(s.keys, 1)))
		r.tryUse("by two branches", s.data, checkOnly)
		s = newSample(r)
		page.EncodeBucket(s.bucketValue(s.nest, "deep"), page.Bucket{Root: s.leaf(s.keys)})
		r.tryUse("by two buckets", s.data, checkOnly)
	},
	"used-twice-scan": func(r *errorRow) {
		s := newSample(r)
		s.setMetas(func(m *page.Meta) { m.Freelist = page.NoFreelist })
		page.EncodeBucket(s.bucketValue(s.nest, "deep"), page.Bucket{Root: s.leaf(s.keys)})
		r.try("writable", s.data, func(path string) error { return openUse(path, holdfast.Options{}, nil) })
		r.try("read-only", s.data, func(path string) error {
			return openUse(path, holdfast.Options{ReadOnly: true, PreLoadFreelist: true}, nil)
		})
		r.try("read-only, checked", s.data, func(path string) error {
			return openUse(path, holdfast.Options{ReadOnly: true}, checkOnly)
		})
	},
	"unordered": func(r *errorRow) {
		s := newSample(r)
		e, err := s.parse(s.leaf(s.keys)).Leaf(1)
		must(r, err)
		e.Key[0] = 'a'
		r.tryUse("in a leaf", s.data, checkOnly)
		s = newSample(r)
		k, _, err := s.parse(s.keys).Branch(1)
		must(r, err)
		k[0] = 'a'
		r.tryUse("in a branch", s.data, checkOnly)
	},
	"commit-meets": func(r *errorRow) {
		s := newSample(r)
		branch := s.child(s.keys, 0)
		next, err := s.parse(s.child(branch, 1)).Leaf(0)
		must(r, err)
		next.Key[0] = 'a' // below the keys before it, beside which it would be written (a page that can't be read stays as it is)
		first, err := s.parse(s.child(branch, 0)).Leaf(s.parse(s.child(branch, 0)).Count() - 1)
		must(r, err)
		for way, options := range ways {
			if options.ReadOnly {
				continue
			}
			r.try(way, s.data, func(path string) error {
				return openUse(path, options, func(db *holdfast.DB) error {
					for range 2 { // the writer lock is free again
						tx := begin(r, db, true)
						b := tx.Bucket([]byte("keys"))
						for i := range 3000 { // all of the first leaf but its last key
							if string(sampleKey(i)) == string(first.Key) {
								break
							}
							must(r, b.Delete(sampleKey(i)))
						}
						if tx.Err() != nil {
							return fmt.Errorf("met too early: %v", tx.Err())
						}
						err = tx.Commit()
						if tx.Rollback() != holdfast.ErrTxClosed {
							return fmt.Errorf("the transaction goes on after %v", err)
						}
					}
					return err
				})
			})
		}
	},
	"sticky": func(r *errorRow) {
		r.trySticky(func(db *holdfast.DB) error {
			tx := begin(r, db, true)
			defer tx.Rollback()
			met := meet(r, tx)
			b := tx.Bucket([]byte("small"))
			if err := b.Put([]byte("k"), []byte("changed")); err != nil {
				return err
			}
			if err := tx.Commit(); err != met {
				return fmt.Errorf("Commit gives %v, Err %v", err, met)
			}
			if err := tx.Rollback(); err != holdfast.ErrTxClosed {
				return fmt.Errorf("the transaction goes on: %v", err)
			}
			// The writer lock is free again.
			return db.Update(func(tx *holdfast.Tx) error { _ = meet(r, tx); return nil })
		})
	},
	"sticky-rollback": func(r *errorRow) {
		r.trySticky(func(db *holdfast.DB) error {
			tx := begin(r, db, !db.IsReadOnly())
			_ = meet(r, tx)
			return tx.Rollback()
		})
	},
	"sticky-view": func(r *errorRow) {
		r.trySticky(func(db *holdfast.DB) error {
			return db.View(func(tx *holdfast.Tx) error { _ = meet(r, tx); return nil })
		})
	},
}

// tryDamage damages a sample and uses it in every way.
func (r *errorRow) tryDamage(name string, damage func(s *sample)) {
	r.Helper()
	s := newSample(r)
	damage(s)
	r.tryUse(name, s.data, useEverything)
	// A file without a freelist page is scanned when it is opened for writing.
	// Where damage leaves it clear which pages are used it is met later.
	s.setMetas(func(m *page.Meta) { m.Freelist = page.NoFreelist })
	r.try(name+", to be scanned", s.data, func(path string) error {
		return openUse(path, holdfast.Options{NoFreelistSync: true}, useEverything)
	})
}

// tryPages damages pages of each kind, one at a time.
func (r *errorRow) tryPages(damage func(s *sample, id page.ID)) {
	r.Helper()
	r.tryLeaves(damage)
	r.tryDamage("root of all", func(s *sample) { damage(s, s.meta.Root) })
	r.tryDamage("branch", func(s *sample) { damage(s, s.keys) })
	r.tryDamage("branch of leaves", func(s *sample) { damage(s, s.child(s.keys, 1)) })
	r.tryDamage("leaf of buckets", func(s *sample) { damage(s, s.nest) })
	r.tryDamage("nested root", func(s *sample) { damage(s, s.deep) })
}

func (r *errorRow) tryLeaves(damage func(s *sample, id page.ID)) {
	r.Helper()
	r.tryDamage("leaf", func(s *sample) { damage(s, s.leaf(s.keys)) })
	r.tryDamage("leaf with overflow", func(s *sample) { damage(s, s.big) })
	r.tryDamage("nested leaf", func(s *sample) { damage(s, s.leaf(s.deep)) })
}

// trySticky uses a file whose bucket "keys" has a damaged first leaf.
func (r *errorRow) trySticky(use func(db *holdfast.DB) error) {
	r.Helper()
	s := newSample(r)
	s.set16(s.leaf(s.keys), offFlags, 0)
	for way, options := range ways {
		if options.ReadOnly && r.Name() == "TestErrorTable/sticky" {
			continue
		}
		options.OnDamage = holdfast.DamageIsError // or a Get in what Begin(false) gave panics
		r.try(way, s.data, func(path string) error { return openUse(path, options, use) })
	}
}

// meet has the transaction meet the damage of trySticky, in a call that returns
// no error, and returns what it keeps.
func meet(r *errorRow, tx *holdfast.Tx) error {
	b := tx.Bucket([]byte("keys"))
	if v := b.Get(sampleKey(0)); v != nil {
		r.Errorf("Get in a damaged leaf gives %q", v)
	}
	if v := b.Get(sampleKey(2999)); v == nil {
		r.Error("Get in a sound leaf gives nothing")
	}
	if tx.Err() == nil {
		r.Error("the transaction keeps no error")
	}
	return tx.Err()
}
