package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
)

// onlyOnce fails if a chunk stands in both buckets of the index.
func onlyOnce(s *Store) error {
	recent := s.fresh()
	if recent == nil {
		return nil
	}
	for k := range recent.All() {
		if s.index.Get(k) != nil {
			return fmt.Errorf("key %x stands in both buckets of the index", k)
		}
	}
	return s.tx.Err()
}

func entriesOf(b *holdfast.Bucket) (n uint64) {
	if b != nil {
		for range b.All() {
			n++
		}
	}
	return n
}

// Lookups, cursors and Check take the same entry of a chunk that a damaged store has in both buckets. (A move takes that of recent.)
func TestEntryOfBothBuckets(t *testing.T) {
	for _, where := range placings {
		must(t, newStore(t, Options{LeafSize: MinLeafSize}).Update(func(tx *holdfast.Tx) error {
			d := someStore(t, openIn(tx), where)
			k := d.child(3)
			key := k.encode()
			large := d.entry(k)
			small := large
			small.users = 7
			must(t, d.index.Put(key[:], large.append(nil)))
			must(t, value(t, must2(d.makeFresh()), nil).Put(key[:], small.append(nil)))
			users := map[string]uint64{"probe": d.entry(k).users}
			from := seekIndexOf(d.Store, key[:])
			users["cursor"] = from.users
			d.fresh()
			c := &checker{s: d.Store, ctx: t.Context(), gaps: map[string][]gap{}, elsewhere: d.elsewhere}
			must(t, c.each(nil, nil, func(of chunkKey, e entry) error {
				if of == k {
					users["check"] += e.users
				}
				return nil
			}, func(b *holdfast.Bucket, got []byte, _ error) error {
				if b == d.index || !bytes.Equal(got, key[:]) {
					t.Errorf("%s: %x is called malformed", where, got)
				}
				return nil
			}))
			if len(users) != 3 || users["probe"] != large.users || users["cursor"] != large.users || users["check"] != large.users {
				t.Errorf("%s: %v users, and not %d", where, users, large.users)
			}
			if d.at(key[:]) != d.index {
				t.Errorf("%s: it is changed in the small bucket", where)
			}
			m := mover{s: d.Store, b: &batch{}, from: d.fresh()}
			must(t, m.some(mergePiece))
			if got, _ := d.get(d.index, key[:]); !bytes.Equal(got, large.append(nil)) {
				t.Errorf("%s: a move has replaced the entry of the large bucket", where)
			}
			return nil
		}))
	}
}

func seekIndexOf(s *Store, key []byte) entry {
	c := s.seekIndex(key)
	_, v := c.next()
	e, _ := parseEntry(v)
	if k, _ := c.next(); bytes.Equal(k, key) {
		e.users += 100 // it comes a second time
	}
	return e
}

func nthBlob(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// Transactions that bring few chunks to a store of many change few pages of the index: recent has no more
// than it may, is merged now and then, and each chunk is found, whichever bucket it is in.
func TestRecent(t *testing.T) {
	const (
		many  = 20_000
		few   = 100
		times = 100
	)
	db := newStore(t, Options{})
	put := 0
	bring := func(n int) func(s *Store) error {
		return func(s *Store) error {
			for range n {
				if _, err := s.Put(nthBlob(put)); err != nil {
					return err
				}
				put++
			}
			return nil
		}
	}
	in := func(fn func(s *Store) error) {
		t.Helper()
		must(t, db.Update(func(tx *holdfast.Tx) error { return fn(openIn(tx)) }))
	}
	in(bring(many))
	moved, last := 0, uint64(many)
	before := db.Stats().TxStats
	for range times {
		in(bring(few))
		must(t, db.View(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			n := entriesOf(s.recent)
			if s.recent != nil && n != s.recent.Sequence()&comeMask {
				t.Errorf("recent has %d entries, and counts %d", n, s.recent.Sequence()&comeMask)
			}
			large := entriesOf(s.index)
			if n > s.mayWait(few)+2*few {
				t.Errorf("%d entries in recent, with %d in the index", n, large)
			}
			if large > last+2*few {
				t.Errorf("%d entries were moved at once", large-last)
			}
			if last > 0 && large > last {
				moved++
			}
			last = large
			return onlyOnce(s)
		}))
	}
	after := db.Stats().TxStats
	if moved < times/2 {
		t.Errorf("entries were moved %d times", moved)
	}
	// The index has some 400 pages, and 100 keys come to some 85 of them. Those of recent, and the share of the index to
	// which 100 are moved, are less; beside them stand the pages of what was put.
	if pages := float64(after.PageCount-before.PageCount) / times; pages > 65 {
		t.Errorf("%.1f pages for each transaction", pages)
	} else {
		t.Logf("%.1f pages for each transaction", pages)
	}
	view(t, db, func(s *Store) {
		u := must2(s.Usage())
		if int(u.Blobs) != put || int(u.Leaves) != put {
			t.Errorf("%d blobs, %d leaves, want %d", u.Blobs, u.Leaves, put)
		}
		for i := range put {
			ref := Ref{algorithm: SHA256, addr: SHA256.sum(nthBlob(i)), size: 8}
			if n := must2(s.Users(ref)); n != 1 {
				t.Fatalf("blob %d has %d users", i, n)
			}
		}
		must(t, checkClean(s, CheckOptions{Data: true}))
	})
}

// One Store makes recent, and moves entries of it, while another of the same transaction goes on with it.
func TestRecentOfTwoStores(t *testing.T) {
	db := newStore(t, Options{})
	var refs []Ref
	must(t, db.Update(func(tx *holdfast.Tx) error {
		a, b := openIn(tx), openIn(tx)
		put := func(s *Store, n int) {
			for range n {
				refs = append(refs, must2(s.Put(nthBlob(len(refs)))))
			}
			must(t, s.flush())
		}
		see := func(s *Store) {
			t.Helper()
			for i, ref := range refs {
				if n := must2(s.Users(ref)); n != 1 {
					t.Errorf("blob %d of %d has %d users", i, len(refs), n)
				}
			}
		}
		put(a, 100)
		must(t, a.came(farChunks))
		moves, last := 0, uint64(0)
		for i := range 60 {
			if b := a.fresh(); b != nil && i%10 == 0 {
				must(t, b.SetSequence(b.Sequence()&^comeMask|1<<47)) // so that some are moved
			}
			s := []*Store{a, b, b}[i%3]
			put(s, 5)
			if n := entriesOf(s.index); n > last {
				moves++
				last = n
			}
			see(a)
			see(b)
			if err := onlyOnce(a); err != nil {
				return err
			}
		}
		if moves < 4 {
			t.Errorf("entries were moved %d times", moves)
		}
		return nil
	}))
	view(t, db, func(s *Store) { must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)})) })
}

// What the sequences of a damaged store say decides what is moved, and nothing else.
func TestRecentSequences(t *testing.T) {
	for _, counts := range [][3]uint64{{1 << 63, 0, 1<<64 - 1}, {1<<64 - 2, 5, 1 << 63}, {7, 1 << 63, 1}, {0, 0, 1<<64 - 9}} {
		db := newStore(t, Options{})
		var refs []Ref
		for round := range 4 {
			must(t, db.Update(func(tx *holdfast.Tx) error {
				s := openIn(tx)
				if round == 1 {
					must(t, s.index.SetSequence(counts[0]))
					must(t, s.dead.SetSequence(counts[1]))
					b := must2(s.makeFresh())
					must(t, b.SetSequence(counts[2]))
					s = openIn(tx)
				}
				for i := range 30 {
					refs = append(refs, must2(s.Put(nthBlob(100*round+i))))
				}
				return nil
			}))
		}
		view(t, db, func(s *Store) {
			must(t, onlyOnce(s))
			must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)}))
		})
	}
}

// A transaction that brings no chunk, or few for so large a store, writes what it changes: it moves
// nothing, whatever a large one has left in recent.
func TestSmallTransactionsMoveNothing(t *testing.T) {
	db := newStore(t, Options{})
	var refs []Ref
	bring := func(n int) {
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			for range n {
				refs = append(refs, must2(s.Put(nthBlob(len(refs)))))
			}
			return nil
		}))
	}
	bring(60_000)
	bring(3_000)
	small := func(what string, fn func(s *Store) error) {
		t.Helper()
		before := db.Stats().TxStats
		must(t, db.Update(func(tx *holdfast.Tx) error { return fn(openIn(tx)) }))
		if pages := db.Stats().TxStats.PageCount - before.PageCount; pages > 40 {
			t.Errorf("%s: %d pages", what, pages)
		}
		view(t, db, func(s *Store) {
			must(t, onlyOnce(s))
			if n := entriesOf(s.recent); n < 2_900 {
				t.Errorf("%s: recent has %d entries", what, n)
			}
		})
	}
	small("retain", func(s *Store) error { return s.Retain(refs[5]) })
	small("delete", func(s *Store) error { return errors.Join(s.Delete(refs[6]), s.Delete(refs[61_000])) })
	small("collect", func(s *Store) error { _, _, err := s.Collect(10); return err })
	small("put", func(s *Store) error { _, err := s.Put([]byte("x")); return err })
	small("put again", func(s *Store) error { _, err := s.Put(nthBlob(62_000)); return err })
	bring(1_000)
	bring(35_000)
	view(t, db, func(s *Store) {
		if n := entriesOf(s.recent); n > 20_000 {
			t.Errorf("recent has %d entries: none are moved", n)
		}
		must(t, checkClean(s, CheckOptions{}))
	})
}

// Chunks that come and go before they are moved leave the count of the large bucket as it is, by which it
// is decided what to move.
func TestRecentCounts(t *testing.T) {
	db := newStore(t, Options{})
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		for i := range 5000 {
			must2(s.Put(nthBlob(i)))
		}
		return nil
	}))
	for round := range 30 {
		var refs []Ref
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			for i := range 200 {
				refs = append(refs, must2(s.Put(nthBlob(10_000+200*round+i))))
			}
			return nil
		}))
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			for _, ref := range refs {
				must(t, s.Delete(ref))
			}
			removed, _, err := s.Collect(1000)
			if removed != len(refs) {
				t.Errorf("%d removed", removed)
			}
			return err
		}))
	}
	view(t, db, func(s *Store) {
		if there, counted := entriesOf(s.index), s.index.Sequence()-s.dead.Sequence(); counted < there || counted > there+100 {
			t.Errorf("%d are in the large bucket, and %d counted", there, counted)
		}
		if there, counted := entriesOf(s.recent), s.recent.Sequence()&comeMask; there != counted {
			t.Errorf("%d are in recent, and %d counted", there, counted)
		}
	})
}

// A page of recent whose keys are in no order, which no version writes, is an error of the move and of the
// check: neither goes on for ever.
func TestRecentUnordered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	options := &holdfast.Options{NoSync: true, NoSeals: true, PageSize: 64 << 10}
	open := func() *holdfast.DB {
		db, err := holdfast.Open(path, 0o600, options)
		must(t, err)
		return db
	}
	db := open()
	var keys [][]byte
	must(t, db.Update(func(tx *holdfast.Tx) error {
		b := must2(tx.CreateBucket(storeName))
		s := inChunks(must2(Create(b, Options{})))
		must(t, s.came(farChunks))
		for i := range 600 {
			must2(s.Put(nthBlob(i)))
		}
		must(t, s.flush())
		for k := range s.fresh().All() {
			keys = append(keys, bytes.Clone(k))
		}
		return nil
	}))
	must(t, db.Close())
	file := must2(os.ReadFile(path))
	must(t, os.WriteFile(path, bytes.ReplaceAll(file, keys[2*mergePiece], keys[mergePiece]), 0o600))
	db = open()
	defer db.Close()
	err := db.View(func(tx *holdfast.Tx) error {
		_, err := openIn(tx).Check(context.Background(), CheckOptions{}, nil)
		return err
	})
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("check: %v", err)
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		must(t, s.fresh().SetSequence(1<<47))
		return s.move(must2(s.begin()), 0, 1<<40)
	})
	if damage := (*holdfast.CorruptError)(nil); !errors.Is(err, ErrCorrupt) && !errors.As(err, &damage) {
		t.Errorf("move: %v", err)
	}
}
