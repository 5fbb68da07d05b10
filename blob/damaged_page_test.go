package blob

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast"
)

// collectBy is Collect by a clock whose next look comes 2 ms after the last.
func collectBy(db *holdfast.DB, hold time.Duration) (CollectStats, error) {
	now := time.Unix(0, 0)
	r := collection{db: db, open: openStoreOf, o: CollectOptions{Hold: hold}, batch: collectPiece}
	r.now = func() time.Time { now = now.Add(2 * time.Millisecond); return now }
	for !r.done {
		if err := r.transaction(); err != nil {
			return r.stats, err
		}
	}
	return r.stats, nil
}

// Long chunks share pages with short ones. Bytes of the short ones can't be deleted where the page is damaged, which the commit says:
// Collect ended with its error each time, and freed nothing more.
func TestCollectBesideDamagedBytes(t *testing.T) {
	damaged := 0
	for seed := range uint64(12) {
		for _, hold := range []time.Duration{1, 2, 4, 8, 100} {
			rng := rand.New(rand.NewPCG(seed, 3))
			db := newStore(t, Options{LeafSize: 256 << 10})
			var long [][]byte
			all := 0
			update(t, db, func(s *Store) {
				for i := range uint64(100) {
					content := random(i, []int{100, 3000, 5000, 40000, 100000}[rng.IntN(5)])
					if putDead(t, s, content); len(content) >= 5000 {
						long = append(long, content)
					}
				}
				all = int(must2(s.Usage()).Leaves)
			})
			content := long[rng.IntN(len(long))]
			db = flipIn(t, db, content[len(content)/2:len(content)/2+500], 200)
			stats, err := collectBy(db, hold*time.Millisecond)
			if err != nil || int(stats.Chunks) != all || stats.Damaged > 40 || (stats.FirstDamaged != nil) != (stats.Damaged > 0) {
				t.Fatalf("seed %d, %d ms: %+v of %d, %v", seed, hold, stats, all, err)
			}
			if stats.Damaged > 0 {
				damaged++
			}
			view(t, db, func(s *Store) {
				if u := must2(s.Usage()); u.Leaves+u.Nodes+u.Dead != 0 {
					t.Errorf("%+v", u)
				}
			})
			must(t, db.Close())
		}
	}
	if damaged < 10 {
		t.Errorf("%d times bytes could not be deleted", damaged)
	}
}

// The damage that a commit meets is that of the one chunk whose bytes its transaction has deleted, also if that was the transaction that
// read which were left by an earlier Collect.
func TestCollectDamageAtCommit(t *testing.T) {
	for _, c := range []struct{ deleted, batch, skipped int }{{1, collectPiece, 1}, {2, 1, 0}} {
		before := collection{batch: collectPiece}
		r := before
		r.freeing.ids, r.freeing.at = []freedID{1, 2}, c.deleted
		if err := r.undo(&before, &holdfast.CorruptError{Page: 7}); err != nil {
			t.Error(err)
		}
		if _, skip := r.freeing.skip[1]; r.batch != c.batch || len(r.freeing.skip) != c.skipped || skip != (c.skipped > 0) {
			t.Errorf("after %d were deleted: %+v", c.deleted, r)
		}
	}
}

// With one damaged page, whichever it is, Collect passes over what is there and comes to its end, and puts do not fail because of
// entries of the index that others have brought. It ended with an error each time where a page of the small bucket of the index was damaged.
func TestOneDamagedPage(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	var refs []Ref
	for j := range uint64(5) {
		update(t, db, func(s *Store) {
			for i := range uint64(16) {
				refs = append(refs, must2(s.Put(random(i+j*1000, []int{100, 3000, 20000, 40000}[i%4]))))
			}
		})
	}
	var runs []holdfast.PageRun
	must(t, db.View(func(tx *holdfast.Tx) error {
		return tx.ForEachPage(func(r holdfast.PageRun) error {
			if r.Kind == holdfast.PageLeaf || r.Kind == holdfast.PageBranch {
				runs = append(runs, r)
			}
			return nil
		})
	}))
	path := db.Path()
	must(t, db.Close())
	whole := must2(os.ReadFile(path))
	put, collected := 0, 0
	for i, r := range runs {
		if i%5 != 0 && r.Kind == holdfast.PageLeaf {
			continue
		}
		file := append([]byte(nil), whole...)
		file[(2*int(r.ID)+int(r.Pages))*os.Getpagesize()/2] ^= 1
		must(t, os.WriteFile(path, file, 0o600))
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, OnDamage: holdfast.DamageIsError})
		must(t, err)
		var damage *holdfast.CorruptError
		if err := committed(db, func(s *Store) error { return nil }); err != nil { // above all of the store
			if !errors.As(err, &damage) {
				t.Error(err)
			}
			must(t, db.Close())
			continue
		}
		for i := range uint64(12) {
			err := committed(db, func(s *Store) error { _, err := s.Put(random(9000+i, int(3000*i))); return err })
			if err == nil {
				put++
			} else if !errors.As(err, &damage) || strings.Contains(err.Error(), "moving") {
				t.Errorf("page %d, %v of %d pages: %v", r.ID, r.Kind, r.Pages, err)
			}
		}
		for _, ref := range refs {
			_ = committed(db, func(s *Store) error { return s.Delete(ref) })
		}
		stats, err := collectBy(db, 4*time.Millisecond)
		if err != nil {
			t.Errorf("page %d, %v of %d pages: %+v, %v", r.ID, r.Kind, r.Pages, stats, err)
		}
		collected += int(stats.Chunks)
		must(t, db.Close())
	}
	if put < 12*len(runs)/5*3/4 || collected < 1000*len(runs)/5 {
		t.Errorf("with %d pages %d blobs were put and %d chunks collected", len(runs), put, collected)
	}
}

// committed is commits for a store that may be damaged.
func committed(db *holdfast.DB, fn func(s *Store) error) error {
	return db.Update(func(tx *holdfast.Tx) error {
		s, err := openStoreOf(tx)
		if err != nil {
			return err
		}
		return fn(s)
	})
}

// Entries before and after a damaged page of the small bucket of the index are moved to the large one. Each transaction that put something
// new failed once the next entry to be moved was on that page.
func TestMoveBesideDamagedPages(t *testing.T) {
	const all = 4000
	for name, every := range map[string]int{"a page": all, "many": 400, "neighbours": 30} {
		t.Run(name, func(t *testing.T) {
			db := newStore(t, Options{})
			must(t, commits(db, func(s *Store) error {
				recent := must2(s.makeFresh())
				for i := range all {
					key := (&chunkKey{addr: SHA256.sum(nthBlob(i))}).encode()
					must(t, recent.Put(key[:], (&entry{users: 1}).append(nil)))
				}
				return recent.SetSequence(all)
			}))
			var keys [][]byte
			view(t, db, func(s *Store) {
				n := 0
				for k := range s.recent.All() {
					if n++; n%every == every/2 {
						keys = append(keys, bytes.Clone(k))
					}
					if name == "neighbours" && len(keys) == 30 {
						break
					}
				}
			})
			for _, key := range keys {
				db = flipIn(t, db, key, len(key)-1)
			}
			readable := func() (n int) {
				for i := range all {
					key := (&chunkKey{addr: SHA256.sum(nthBlob(i))}).encode()
					if db.View(func(tx *holdfast.Tx) error {
						if openIn(tx).recent.Get(key[:]) != nil {
							n++
						}
						return nil
					}) != nil {
						continue
					}
				}
				return n
			}
			before, moved := readable(), 0
			for range 4 * all / mergePiece {
				must(t, commits(db, func(s *Store) error {
					large := s.large()
					err := s.move(&batch{}, 1, mergePiece)
					moved += int(s.large() - large)
					return err
				}))
			}
			view(t, db, func(s *Store) {
				left, may := readable(), int(s.mayWait(1))
				if before == all || before < all/2 || left > may || left+moved > before || left+moved < before*99/100 {
					t.Errorf("%d of %d entries could be read, %d were moved, %d are left, and %d may be", before, all, moved, left, may)
				}
				if n := int(entriesOf(s.index)); n != moved {
					t.Errorf("%d entries were moved, and the large bucket has %d", moved, n)
				}
			})
		})
	}
}
