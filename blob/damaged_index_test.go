package blob

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"holdfast"
)

// besideDamage is a store whose small bucket of the index has chunks that can be read, and whose large bucket has a damaged
// page where some of them would be.
func besideDamage(t *testing.T, fill func(s *Store, refs []Ref)) (db *holdfast.DB, refs []Ref) {
	t.Helper()
	db = newStore(t, Options{LeafSize: MinLeafSize})
	update2(t, db, func(s *Store) {
		for i := range uint64(400) {
			must2(s.Put(random(i, 300)))
		}
		must(t, s.flush())
		must(t, s.came(farChunks))
		for i := range uint64(60) {
			refs = append(refs, must2(s.Put(random(1000+i, 300))))
		}
		must(t, s.flush())
		if n := entriesOf(s.recent); n != 60 {
			t.Fatalf("%d chunks are in recent", n)
		}
		fill(s, refs)
	})
	var key []byte
	view(t, db, func(s *Store) {
		n := 0
		for k := range s.index.All() {
			if n++; n == 135 { // not the first one of its page, which is in the branch, too
				key = bytes.Clone(k)
			}
		}
	})
	db = flipIn(t, db, key, 3)
	bad := 0
	for _, ref := range refs {
		k := ref.key()
		at := k.encode()
		if db.View(func(tx *holdfast.Tx) error { openIn(tx).index.Get(at[:]); return nil }) != nil {
			bad++
		}
	}
	if bad == 0 || bad == len(refs) {
		t.Fatalf("of %d chunks, %d would be on the damaged page", len(refs), bad)
	}
	return db, refs
}

// When the large bucket of the index came to be searched first, a damaged page of it was noted as the transaction's though the
// chunk was found in the small one: reading it failed, and so did what changed it, when it was committed.
func TestChunkBesideDamagedIndex(t *testing.T) {
	db, refs := besideDamage(t, func(*Store, []Ref) {})
	for i, ref := range refs {
		content := random(1000+uint64(i), 300)
		must(t, db.View(func(tx *holdfast.Tx) error { return reads(openIn(tx), ref, content) }))
		r, err := OpenReader(t.Context(), db, openStoreOf, ref)
		must(t, err)
		if p, err := io.ReadAll(r); err != nil || !bytes.Equal(p, content) {
			t.Fatalf("%d bytes, %v", len(p), err)
		}
		must(t, r.Close())
		must(t, commits(db, func(s *Store) error { // each has a use more, and a lease
			if again, err := s.Put(content); err != nil || again != ref {
				t.Fatal(again, err)
			}
			return s.Retain(ref)
		}))
		must(t, commits(db, func(s *Store) error { return s.Delete(ref) }))
		view(t, db, func(s *Store) {
			if n := must2(s.Users(ref)); n != 2 {
				t.Fatalf("%d users", n)
			}
		})
	}
	missing, unknown := 0, 0 // of what is nowhere, and would be on that page, it is not said that it is missing
	for i := range uint64(100) {
		err := db.View(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			_, found, err := s.probe(&chunkKey{addr: s.options.sum(random(5000+i, 300))})
			if found {
				t.Error("found")
			}
			return err
		})
		if err == nil {
			missing++
		} else {
			unknown++
		}
	}
	if missing == 0 || unknown == 0 {
		t.Errorf("%d are missing, %d not known", missing, unknown)
	}
}

// Check called nodes unreadable that were in the small bucket of the index, and counted no users of what is below them.
func TestCheckBesideDamagedIndex(t *testing.T) {
	var tree Ref
	db, _ := besideDamage(t, func(s *Store, _ []Ref) {
		tree = must2(s.Put(random(7000, 300*MinLeafSize)))
		must(t, s.flush())
	})
	view(t, db, func(s *Store) {
		c := &checker{s: s, ctx: t.Context(), gaps: map[string][]gap{}, elsewhere: s.elsewhere, bad: map[chunkKey]error{}}
		nodes := 0
		must(t, c.children(func(chunkKey, chunkKey, int64) error { nodes++; return nil }))
		if nodes < 300 {
			t.Errorf("%d children of nodes", nodes)
		}
		if _, err := s.Check(context.Background(), CheckOptions{}, func(p Problem) error {
			if p.Level > 0 {
				t.Errorf("of %v: %v", tree, p)
			}
			return nil
		}); err != nil && !bytes.Contains([]byte(err.Error()), []byte("page")) {
			t.Error(err)
		}
	})
}

// Collect ended with an error each time, where a dead chunk was in the small bucket of the index and the page of the large one
// damaged: nothing after it was collected any more.
func TestCollectBesideDamagedIndex(t *testing.T) {
	db, _ := besideDamage(t, func(s *Store, refs []Ref) {
		for _, ref := range refs {
			must(t, s.Delete(ref))
		}
	})
	stats, err := Collect(t.Context(), db, openStoreOf, CollectOptions{})
	must(t, err)
	if stats.Damaged == 0 || stats.Chunks < 40 || stats.Chunks+int64(stats.Damaged) != 60 {
		t.Errorf("%+v", stats)
	}
}

// Of a chunk whose entry in the large bucket of the index is malformed, or a bucket, a repair dropped the one in the small bucket, too, and with
// it the users.
func TestMalformedBesideRecent(t *testing.T) {
	for name, spoil := range map[string]func(s *Store, key []byte) error{
		"malformed": func(s *Store, key []byte) error { return s.index.Put(key, []byte{0xff}) },
		"a bucket":  func(s *Store, key []byte) error { _, err := s.index.CreateBucket(key); return err },
	} {
		db := newStore(t, Options{LeafSize: MinLeafSize})
		update2(t, db, func(s *Store) {
			must(t, s.came(farChunks))
			ref := must2(s.Put(random(1, 300)))
			must(t, s.flush())
			k := ref.key()
			key := k.encode()
			must(t, spoil(s, key[:]))
			found, text := problems(t, s, CheckOptions{Repair: true})
			if len(found) == 0 {
				t.Errorf("%s: no problem is found", name)
			}
			if n, err := s.Users(ref); n != 1 || err != nil {
				t.Errorf("%s: %d users, %v, after a repair of\n%s", name, n, err, text)
			}
			if name == "malformed" { // buckets are never removed
				must(t, checkClean(s, CheckOptions{Data: true}))
			}
		})
	}
}

// Each transaction that put something new failed, once what is moved from the small bucket of the index next belonged on a damaged page
// of the large one: the next began there again.
func TestPutBesideDamagedIndex(t *testing.T) {
	db, _ := besideDamage(t, func(s *Store, _ []Ref) {
		must(t, s.index.SetSequence(400)) // so that more is in recent than may wait
	})
	stay := 0 // of recent, those that belong on the damaged page
	view(t, db, func(s *Store) {
		for k := range s.recent.All() {
			if db.View(func(tx *holdfast.Tx) error { openIn(tx).index.Get(k); return nil }) != nil {
				stay++
			}
		}
	})
	var refs []Ref
	for i := uint64(3000); len(refs) < 150; i++ {
		sum := (&Options{Algorithm: SHA256}).sum(random(i, 300))
		key := (&chunkKey{addr: sum}).encode()
		if db.View(func(tx *holdfast.Tx) error { openIn(tx).index.Get(key[:]); return nil }) != nil {
			continue // of that nothing is known
		}
		must(t, commits(db, func(s *Store) error {
			ref, err := s.Put(random(i, 300))
			refs = append(refs, ref)
			return err
		}))
	}
	view(t, db, func(s *Store) {
		moved := 0
		for _, ref := range refs {
			k := ref.key()
			key := k.encode()
			if s.index.Get(key[:]) != nil {
				moved++
			}
			if n := must2(s.Users(ref)); n != 1 {
				t.Errorf("%d users", n)
			}
		}
		if n := int(entriesOf(s.recent)); moved == 0 || n < stay || n > int(s.mayWait(1))+stay {
			t.Errorf("%d were moved, and %d are in recent, of which %d stay", moved, n, stay)
		}
	})
}

// A transaction that brought one chunk looked at all that stays in the small bucket, as below a damaged branch of the large one, until it had
// moved two: now at a number of them, and the next one goes on there.
func TestManyStay(t *testing.T) {
	update2(t, newStore(t, Options{}), func(s *Store) {
		recent := must2(s.makeFresh())
		put := func(b *holdfast.Bucket, i uint64) {
			key := (&chunkKey{addr: SHA256.sum(nthBlob(int(i)))}).encode()
			must(t, b.Put(key[:], (&entry{users: 1}).append(nil)))
		}
		const stay, all = 2000, 2100
		for i := range uint64(all) {
			if put(recent, i); i < stay { // in both, as it is left alone as well
				put(s.index, i)
			}
		}
		must(t, recent.SetSequence(all))
		calls := 0
		for ; entriesOf(recent) > stay && calls < 3*all/mergePiece; calls++ {
			must(t, s.move(&batch{}, 1, all))
			if calls == 0 && recent.Sequence()>>comeBits == 0 {
				t.Error("all entries were looked at")
			}
		}
		if n := entriesOf(recent); n != stay {
			t.Errorf("%d entries are left after %d moves, of which %d stay", n, calls, stay)
		}
	})
}

// A dead chunk in the large bucket of the index was not collected where the damaged page of the small one would have it, and its
// transaction failed when it was committed: Collect ended with that error each time.
func TestCollectBesideDamagedRecent(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	var key []byte
	update2(t, db, func(s *Store) {
		var refs []Ref
		for i := range uint64(400) {
			refs = append(refs, must2(s.Put(random(i, 300))))
		}
		must(t, s.flush())
		for _, ref := range refs {
			must(t, s.Delete(ref))
		}
		must(t, s.came(farChunks))
		for i := range uint64(200) {
			must2(s.Put(random(1000+i, 300)))
		}
		must(t, s.flush())
		n := 0
		for k := range s.recent.All() {
			if n++; n == 100 {
				key = bytes.Clone(k)
			}
		}
	})
	db = flipIn(t, db, key, 3)
	stats, err := collectBy(db, 4*time.Millisecond)
	if err != nil || stats.Damaged > 0 || stats.Chunks != 400 {
		t.Errorf("%+v, %v", stats, err)
	}
}
