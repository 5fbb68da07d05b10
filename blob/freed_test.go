package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"holdfast"
)

// stopped makes a store in which Collect was stopped between taking chunks off the index and deleting their bytes. Those
// of gone are still there, those of kept are in use.
func stopped(t *testing.T) (db *holdfast.DB, kept, gone [][]byte, refs []Ref) {
	t.Helper()
	return stoppedIn(t, Options{LeafSize: MinLeafSize})
}

func stoppedIn(t *testing.T, o Options) (db *holdfast.DB, kept, gone [][]byte, refs []Ref) {
	t.Helper()
	db = newStore(t, o)
	update(t, db, func(s *Store) {
		for i := range uint64(40) {
			kept, gone = append(kept, random(2*i, 300)), append(gone, random(2*i+1, 300))
			refs = append(refs, must2(s.Put(kept[i])))
			putDead(t, s, gone[i])
		}
		long := random(1000, 200*MinLeafSize)
		gone = append(gone, long)
		putDead(t, s, long)
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stats CollectStats
	for stats.Chunks < 240 {
		s, err := Collect(ctx, db, openStoreOf, CollectOptions{Hold: 1e12, Progress: func(s CollectStats) {
			if stats = s; s.Chunks >= 240 {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	view(t, db, func(s *Store) {
		if ids, _ := must3(s.noted(nil, 1<<20)); len(ids) < 240 {
			t.Fatalf("%d ids are noted", len(ids))
		}
	})
	return db, kept, gone, refs
}

func must3[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}

// bytesIn is how many chunks have bytes in a store.
func bytesIn(s *Store) (n int) {
	for range s.leaves.All() {
		n++
	}
	for range s.packs.All() {
		n++
	}
	return n
}

// tidied sees that Collect has done all, and that what is kept is there.
func tidied(t *testing.T, db *holdfast.DB, refs []Ref, kept [][]byte) {
	t.Helper()
	view(t, db, func(s *Store) {
		must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)}))
		if b := s.bucket.Bucket(freedName); b != nil {
			t.Error("something is still noted")
		}
		u := must2(s.Usage())
		if n := bytesIn(s); int64(n) != u.Leaves+u.Nodes {
			t.Errorf("there are bytes of %d chunks, and %d chunks", n, u.Leaves+u.Nodes)
		}
		for i, ref := range refs {
			var b bytes.Buffer
			must2(must2(s.Reader(ref)).WriteTo(&b))
			if !bytes.Equal(b.Bytes(), kept[i]) {
				t.Errorf("blob %d has other bytes", i)
			}
		}
	})
}

// What Collect had not deleted when it was stopped is nothing that a check tells of, and the next Collect deletes it, also in one transaction.
func TestStoppedCollect(t *testing.T) {
	for name, again := range map[string]func(db *holdfast.DB){
		"many transactions": func(db *holdfast.DB) { must2(Collect(context.Background(), db, openStoreOf, CollectOptions{})) },
		"small ones": func(db *holdfast.DB) {
			must2(Collect(context.Background(), db, openStoreOf, CollectOptions{Hold: 1}))
		},
		"one": func(db *holdfast.DB) {
			update(t, db, func(s *Store) {
				if _, more, err := s.Collect(1 << 20); more || err != nil {
					t.Errorf("%v, %v", more, err)
				}
			})
		},
		"a repair": func(db *holdfast.DB) {
			update(t, db, func(s *Store) {
				if found, stats := problems(t, s, CheckOptions{Repair: true, Data: true}); len(found) > 0 {
					t.Errorf("%v, %+v", found, stats)
				}
			})
			must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, kept, _, refs := stopped(t)
			view(t, db, func(s *Store) { must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)})) })
			again(db)
			tidied(t, db, refs, kept)
		})
	}
}

// A repair of another version, which does not know what is noted, gives such bytes to chunks again, and they may be put again then: the next
// Collect must not delete them.
func TestStoppedCollectAndRepair(t *testing.T) {
	for _, c := range []Compression{NoCompression, Zstd} {
		t.Run(c.String(), func(t *testing.T) { stoppedCollectAndRepair(t, Options{LeafSize: MinLeafSize, Compression: c}) })
	}
}

func stoppedCollectAndRepair(t *testing.T, o Options) {
	db, kept, gone, refs := stoppedIn(t, o)
	update(t, db, func(s *Store) {
		c := checker{s: s, ctx: context.Background()}
		ids, _ := must3(s.noted(nil, 1<<20))
		for _, id := range ids {
			must(t, c.adopt(id.spot()))
		}
		for i, p := range gone {
			if i%2 == 0 {
				refs, kept = append(refs, must2(s.Put(p))), append(kept, p)
			}
		}
	})
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	tidied(t, db, refs, kept)
}

// Records that no version writes delete nothing that is in use, and are gone afterwards.
func TestHostileFreed(t *testing.T) {
	for name, fill := range map[string]func(s *Store, b *holdfast.Bucket){
		"all ids": func(s *Store, b *holdfast.Bucket) {
			var v []byte
			for id := range uint64(2000) {
				v = binary.LittleEndian.AppendUint64(v, id)
			}
			must(t, b.Put([]byte("12345678"), v))
		},
		"no ids":         func(s *Store, b *holdfast.Bucket) { must(t, b.Put([]byte("12345678"), []byte{})) },
		"half an id":     func(s *Store, b *holdfast.Bucket) { must(t, b.Put([]byte("x"), []byte{1, 2, 3})) },
		"a bucket":       func(s *Store, b *holdfast.Bucket) { must2(b.CreateBucket([]byte("12345678"))) },
		"the last key":   func(s *Store, b *holdfast.Bucket) { must(t, b.SetSequence(1<<64-1)) },
		"nothing at all": func(s *Store, b *holdfast.Bucket) {},
	} {
		t.Run(name, func(t *testing.T) {
			db, kept, _, refs := stopped(t)
			update2(t, db, func(s *Store) {
				b := s.bucket.Bucket(freedName)
				if name == "nothing at all" {
					must(t, s.bucket.DeleteBucket(freedName))
					b = must2(s.bucket.CreateBucket(freedName))
				}
				fill(s, b)
				putDead(t, s, random(5000, 100))
			})
			must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
			update2(t, db, func(s *Store) { _, _ = problems(t, s, CheckOptions{Repair: true, Data: true}) })
			must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
			tidied(t, db, refs, kept)
		})
	}
}

// Chunks were removed in the order of their addresses, and each page of small ones was written again for each of them. Now it is
// written once.
func TestCollectInTheOrderOfIDs(t *testing.T) {
	const many = 20_000
	db := newStore(t, Options{})
	var refs []Ref
	update(t, db, func(s *Store) {
		for i := range many {
			refs = append(refs, must2(s.Put(binary.BigEndian.AppendUint64(make([]byte, 300), uint64(i)))))
		}
	})
	update(t, db, func(s *Store) {
		for i := 0; i < many; i += 2 {
			must(t, s.Delete(refs[i]))
		}
	})
	before := db.Stats().TxStats
	// Transactions of a fixed length: those of Collect are as short as the machine is slow.
	noTime := func() time.Time { return time.Time{} }
	r := collection{db: db, open: openStoreOf, o: CollectOptions{Hold: time.Hour}, now: noTime}
	for !r.done {
		r.batch, r.deletes = 500, 500
		must(t, r.transaction())
	}
	pages := db.Stats().TxStats.PageCount - before.PageCount
	// There are some 1,600 pages of bytes, and 500 of the index and of marks.
	if r.stats.Chunks != many/2 || pages > 3500 {
		t.Errorf("%d pages for %d chunks in %d transactions", pages, r.stats.Chunks, r.stats.Transactions)
	}
}
