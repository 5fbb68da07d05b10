package blob

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holdfast"
)

// One Collect deleted what another one had noted, and with it the bucket. The next record had the number 1 again, and the other
// Collect took it for its own: it forgot it, and what stood there was never deleted if the Collect that had written it was stopped.
func TestCollectForgetsItsOwn(t *testing.T) {
	db, kept, _, refs := stopped(t)
	first := true
	stats, err := Collect(context.Background(), db, openStoreOf, CollectOptions{Hold: 1, Progress: func(s CollectStats) {
		if !first {
			return
		}
		first = false // it has taken up what was noted
		must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
		update2(t, db, func(s *Store) {
			for i := range uint64(100) {
				putDead(t, s, random(2000+i, 300))
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := Collect(ctx, db, openStoreOf, CollectOptions{Hold: 1, Progress: func(s CollectStats) {
			if s.Chunks >= 100 {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}})
	if err != nil || stats.Damaged > 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	tidied(t, db, refs, kept)
}

// A Collect that went on with what an earlier one had noted read it again in each transaction, and went on at the same place of
// what others had noted meanwhile. Here they begin, are stopped and go on within each other.
func TestCollectsWithinEachOther(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		db, kept, gone, refs := stopped(t)
		next := uint64(10_000)
		var collect func(depth int)
		collect = func(depth int) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			n := 0
			_, err := Collect(ctx, db, openStoreOf, CollectOptions{Hold: 1, Progress: func(s CollectStats) {
				n++
				switch act := rng.IntN(40); {
				case n > 300 && depth > 0:
					cancel()
				case n > 300:
				case act < 2:
					update2(t, db, func(s *Store) {
						for range rng.IntN(30) {
							next++
							putDead(t, s, random(next, 200))
						}
					})
				case act == 2 && depth < 3:
					collect(depth + 1)
				case act == 3 && depth > 0:
					cancel()
				case act == 4:
					update2(t, db, func(s *Store) { must3(s.Collect(1 + rng.IntN(30))) })
				case act == 5: // what was removed comes again
					update2(t, db, func(s *Store) { putDead(t, s, gone[rng.IntN(len(gone))]) })
				case act == 6:
					update2(t, db, func(s *Store) { problems(t, s, CheckOptions{Repair: true, Data: true}) })
				}
			}})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		collect(0)
		view(t, db, func(s *Store) { must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)})) })
		must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
		tidied(t, db, refs, kept)
	}
}

// Bytes that an earlier Collect has noted lie in a damaged page: each Collect after it ended there with an error. They are passed over.
func TestStoppedCollectDamagedFile(t *testing.T) {
	db, kept, _, refs := stopped(t)
	var all [][]byte
	view(t, db, func(s *Store) {
		for _, v := range s.leaves.All() {
			all = append(all, bytes.Clone(v))
		}
	})
	db = flipIn(t, db, all[7], 20)
	stats, err := Collect(context.Background(), db, openStoreOf, CollectOptions{})
	must(t, err)
	var damage *holdfast.CorruptError
	if stats.Damaged == 0 || !errors.As(stats.FirstDamaged, &damage) {
		t.Errorf("%+v", stats)
	}
	view(t, db, func(s *Store) {
		for i, ref := range refs {
			if !bytes.Equal(readAll(t, s, ref), kept[i]) {
				t.Errorf("blob %d has other bytes", i)
			}
		}
	})
	_ = db.View(func(tx *holdfast.Tx) error { // which cannot read that page
		s := openIn(tx)
		if left := bytesIn(s); left > len(kept)+3 || s.bucket.Bucket(freedName) != nil {
			t.Errorf("there are bytes of %d chunks, and %d chunks are in use", left, len(kept))
		}
		return nil
	})
}

// Keys of what is noted that are not in their order, of a damaged page, let neither Collect go on for ever.
func TestFreedUnordered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	options := &holdfast.Options{NoSync: true, NoSeals: true, PageSize: 4096}
	db := must2(holdfast.Open(path, 0o600, options))
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := inChunks(must2(Create(must2(tx.CreateBucket(storeName)), Options{})))
		b := must2(s.bucket.CreateBucket(freedName))
		for _, key := range []string{"record 1", "record 2", "record 3", "record 4"} {
			must(t, b.Put([]byte(key), bytes.Repeat([]byte{0}, 600)))
		}
		return nil
	}))
	must(t, db.Close())
	file := must2(os.ReadFile(path))
	must(t, os.WriteFile(path, bytes.ReplaceAll(file, []byte("record 1"), []byte("record 9")), 0o600))
	db = must2(holdfast.Open(path, 0o600, options))
	defer db.Close()
	for range 2 {
		_, err := Collect(context.Background(), db, openStoreOf, CollectOptions{})
		if damage := (*holdfast.CorruptError)(nil); err != nil && !errors.Is(err, ErrCorrupt) && !errors.As(err, &damage) {
			t.Errorf("Collect: %v", err)
		}
	}
	_ = db.Update(func(tx *holdfast.Tx) error {
		more, err := true, error(nil)
		for n := 0; more && err == nil; n++ {
			if _, more, err = openIn(tx).Collect(1); n > 10_000 {
				t.Fatal("Store.Collect goes on for ever")
			}
		}
		return errors.New("not to be committed")
	})
}

// The page of what Collect had noted was damaged: Check ended there with an error, or reported the bytes as those of no chunk. It
// reports that page, and nothing else.
func TestCheckDamagedFreed(t *testing.T) {
	db, _, _, refs := stopped(t)
	var v []byte
	view(t, db, func(s *Store) {
		for _, record := range s.bucket.Bucket(freedName).All() {
			v = bytes.Clone(record)
		}
	})
	path := db.Path()
	must(t, db.Close())
	file := must2(os.ReadFile(path))
	file[bytes.LastIndex(file, v)+5] ^= 1
	must(t, os.WriteFile(path, file, 0o600))
	db = must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true}))
	defer db.Close()
	view(t, db, func(s *Store) {
		unreadable := 0
		_, err := s.Check(context.Background(), CheckOptions{Data: true, Roots: rootsOf(refs...)}, func(p Problem) error {
			if unreadable++; p.Kind != Unreadable {
				t.Errorf("%+v", p)
			}
			return nil
		})
		if err != nil || unreadable == 0 {
			t.Errorf("%d unreadable, %v", unreadable, err)
		}
	})
}

// Between two transactions of a Collect the store was deleted, and made anew. What the first one had in memory of ids are those of
// other chunks then: it deleted their bytes.
func TestCollectOfStoreMadeAnew(t *testing.T) {
	for at, more := 1, true; more; at += 29 {
		db, kept, _, refs := stopped(t)
		update2(t, db, func(s *Store) {
			for i := range uint64(200) {
				putDead(t, s, random(3000+i, 300))
			}
		})
		n := 0
		_, err := Collect(context.Background(), db, openStoreOf, CollectOptions{Hold: 1, Progress: func(CollectStats) {
			if n++; n != at {
				return
			}
			must(t, db.Update(func(tx *holdfast.Tx) error {
				must(t, tx.DeleteBucket(storeName))
				s := inChunks(must2(Create(must2(tx.CreateBucket(storeName)), Options{LeafSize: MinLeafSize})))
				refs, kept = nil, nil
				for i := range uint64(400) {
					p := random(50_000+i, 300)
					refs, kept = append(refs, must2(s.Put(p))), append(kept, p)
				}
				refs, kept = append(refs, must2(s.Put(random(7, 300*MinLeafSize)))), append(kept, random(7, 300*MinLeafSize))
				for i := range uint64(30) {
					putDead(t, s, random(60_000+i, 300))
				}
				return nil
			}))
			if at%2 == 0 {
				return
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, _ = Collect(ctx, db, openStoreOf, CollectOptions{Progress: func(s CollectStats) { cancel() }})
		}})
		must(t, err)
		must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
		tidied(t, db, refs, kept)
		more = n >= at
	}
}

// What a malformed entry of the index names is not known: bytes that are said to be deleted stay then.
func TestFreedOfMalformedEntry(t *testing.T) {
	db := newStore(t, Options{})
	content := random(1, 300)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(content)) })
	update2(t, db, func(s *Store) {
		k := ref.key()
		key, e := k.encode(), must2(value2(s.probe(&k)))
		must(t, s.at(key[:]).Put(key[:], []byte{0xff}))
		id, _ := idOf(&e)
		must2(s.noteFreed([]freedID{id}))
	})
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	update2(t, db, func(s *Store) { problems(t, s, CheckOptions{Repair: true, Roots: rootsOf(ref)}) })
	view(t, db, func(s *Store) {
		if !bytes.Equal(readAll(t, s, ref), content) {
			t.Error("the blob has other bytes")
		}
	})
}

func value2(e entry, _ bool, err error) (entry, error) { return e, err }

// Several goroutines collect while another one puts and deletes.
func TestCollectsAtOnce(t *testing.T) {
	db, kept, _, refs := stopped(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for range 4 {
				if _, err := Collect(context.Background(), db, openStoreOf, CollectOptions{Hold: 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range uint64(40) {
		update2(t, db, func(s *Store) {
			for j := range uint64(10) {
				putDead(t, s, random(100*i+j, 200))
			}
		})
	}
	group.Wait()
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	tidied(t, db, refs, kept)
}
