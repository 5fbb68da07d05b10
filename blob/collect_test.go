package blob

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"holdfast"
)

func openStoreOf(tx *holdfast.Tx) (*Store, error) { return openAny(tx.Bucket(storeName)) }

// deleted makes a store in which blobs of several levels have been deleted, and one is kept
// which shares leaves with them.
func deleted(t testing.TB) (db *holdfast.DB, kept Ref) {
	db = newStore(t, Options{LeafSize: MinLeafSize})
	update(t, db, func(s *Store) {
		kept = must2(s.Put(random(1, 140*MinLeafSize)))
		for _, p := range [][]byte{random(1, 200*MinLeafSize), random(2, 300*MinLeafSize), random(3, 5), random(4, MinLeafSize),
			random(5, 50*MinLeafSize)} {
			putDead(t, s, p)
		}
	})
	return db, kept
}

// putDead leaves a blob that waits for Collect: one that is put and deleted at once leaves nothing.
func putDead(t testing.TB, s *Store, p []byte) Ref {
	t.Helper()
	ref := value(t, must2(s.Put(p)), s.flush())
	must(t, s.Delete(ref))
	must(t, s.flush())
	return ref
}

// only fails the test unless the store holds one blob and nothing else.
func only(t testing.TB, db *holdfast.DB, ref Ref) {
	t.Helper()
	view(t, db, func(s *Store) {
		must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(ref)}))
		u, st := must2(s.Usage()), must2(s.Stat(ref))
		if u.Dead != 0 || u.Blobs != 1 || u.Leaves+u.Nodes != st.Chunks || u.LeafBytes+u.NodeBytes != st.Stored {
			t.Errorf("%+v is in use, the blob has %+v", u, st)
		}
	})
}

// Collect removes at most as many chunks as it may, and says whether there are more.
func TestCollectLimit(t *testing.T) {
	db, kept := deleted(t)
	total := 0
	for more := true; more; {
		update(t, db, func(s *Store) {
			before := must2(s.Usage())
			n, again, err := s.Collect(7)
			must(t, err)
			after := must2(s.Usage())
			if n > 7 || n < 7 && again || before.Leaves+before.Nodes-int64(n) != after.Leaves+after.Nodes {
				t.Fatalf("%d removed, more: %v, from %+v to %+v", n, again, before, after)
			}
			total += n
			more = again
		})
	}
	if total < 300 {
		t.Errorf("%d chunks removed", total)
	}
	only(t, db, kept)
}

// The function removes everything in transactions that end when their time is over, measured by a
// clock of the test's own.
func TestCollectTransactions(t *testing.T) {
	db, kept := deleted(t)
	now := time.Unix(0, 0)
	r := collection{db: db, open: openStoreOf, o: CollectOptions{Hold: 5 * time.Millisecond}, batch: 1 << 16}
	r.now = func() time.Time { now = now.Add(2 * time.Millisecond); return now }
	for before := int64(0); !r.done; before = r.stats.Chunks {
		must(t, r.transaction())
		if n := r.stats.Chunks - before; n > 3*collectPiece {
			t.Errorf("%d chunks in one transaction", n)
		}
	}
	if r.stats.Transactions < 3 || r.stats.Chunks < 300 || r.stats.Bytes < 300*MinLeafSize || r.stats.Longest == 0 {
		t.Errorf("%+v", r.stats)
	}
	only(t, db, kept)
}

// The number of chunks in a transaction follows the time that they take.
func TestCollectAdapts(t *testing.T) {
	r := collection{o: CollectOptions{Hold: 10 * time.Millisecond}, batch: 1000}
	for _, c := range []struct {
		held time.Duration
		want int
	}{{20 * time.Millisecond, 500}, {9 * time.Millisecond, 500}, {time.Millisecond, 1000}, {time.Hour, 1}, {0, 2}} {
		if r.adapt(c.held); r.batch != c.want {
			t.Errorf("behind %v: %d chunks, want %d", c.held, r.batch, c.want)
		}
	}
}

// It can be stopped, and goes on where it was.
func TestCollectStopped(t *testing.T) {
	db, kept := deleted(t)
	var before CollectStats
	for i := range 6 {
		ctx, cancel := context.WithCancel(context.Background())
		stats, err := Collect(ctx, db, openStoreOf, CollectOptions{Hold: 1, Progress: func(CollectStats) { cancel() }})
		// Each second one deletes the bytes of those that the one before has taken off the index.
		if removes := i%2 == 0; !errors.Is(err, context.Canceled) || stats.Transactions != 1 || removes != (stats.Chunks > 0) {
			t.Fatalf("%+v, %v", stats, err)
		}
		before.Chunks += stats.Chunks
		view(t, db, func(s *Store) { must(t, checkClean(s, CheckOptions{Data: true})) })
	}
	stats, err := Collect(context.Background(), db, openStoreOf, CollectOptions{})
	must(t, err)
	if stats.Chunks == 0 {
		t.Errorf("%+v behind %+v", stats, before)
	}
	only(t, db, kept)
}

// A dead node that is damaged or has no bytes is passed over, told of, and stays; everything else
// goes, and a second call ends too. A repair mends it.
func TestCollectDamagedNodes(t *testing.T) {
	db, kept := deleted(t)
	update2(t, db, func(s *Store) {
		d := damaged{Store: s, t: t}
		d.overwrite(must2(s.deadRoot(2)), flip)
		b, id := d.bytesOf(must2(s.deadRoot(1)))
		must(t, b.Delete(id))
	})
	for range 2 {
		stats, err := Collect(context.Background(), db, openStoreOf, CollectOptions{})
		must(t, err)
		if stats.Damaged != 2 || !errors.Is(stats.FirstDamaged, ErrCorrupt) && !errors.Is(stats.FirstDamaged, ErrMissing) {
			t.Fatalf("%+v", stats)
		}
	}
	update2(t, db, func(s *Store) {
		removed, more, err := s.Collect(100)
		if removed != 0 || more || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMissing) {
			t.Errorf("%d, %v, %v", removed, more, err)
		}
		putDead(t, s, []byte("more"))
		removed, more, err = s.Collect(100)
		if removed != 1 || !more || err != nil {
			t.Errorf("%d, %v, %v", removed, more, err)
		}
		if u := must2(s.Usage()); u.Dead != 2 {
			t.Errorf("%+v", u)
		}
		_, _ = problems(t, s, CheckOptions{Repair: true})
	})
	_, err := Collect(context.Background(), db, openStoreOf, CollectOptions{})
	must(t, err)
	only(t, db, kept)
}

// deadRoot is a dead node that has some level.
func (s *Store) deadRoot(level uint8) (chunkKey, error) {
	for key := range s.dead.All() {
		if k, err := parseKey(key); err != nil || k.level == level {
			return k, err
		}
	}
	return chunkKey{}, ErrNotFound
}

// update2 is update where the store is damaged.
func update2(t testing.TB, db *holdfast.DB, fn func(s *Store)) {
	t.Helper()
	must(t, db.Update(func(tx *holdfast.Tx) error { fn(openIn(tx)); return nil }))
}

// flipIn closes db, flips a bit of content in its file, and opens it again.
func flipIn(t *testing.T, db *holdfast.DB, content []byte, at int) *holdfast.DB {
	t.Helper()
	path := db.Path()
	must(t, db.Close())
	file := must2(os.ReadFile(path))
	begin := bytes.Index(file, content)
	if begin < 0 {
		t.Fatal("the content is not in one piece in the file")
	}
	file[begin+at] ^= 1
	must(t, os.WriteFile(path, file, 0o600))
	db = must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true}))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Where the file itself is damaged below dead chunks, those are passed over, in further
// transactions, and all others go. (It ended with an error where one transaction left so little beside the damaged
// page that it was to be joined with that.)
func TestCollectDamagedFile(t *testing.T) {
	for hold := range time.Duration(6) {
		db, kept := deleted(t)
		var node []byte
		view(t, db, func(s *Store) { // of a full node, which has a page of its own
			for key := range s.dead.All() {
				k := must2(parseKey(key))
				if k.level < 2 {
					continue
				}
				if n := must2(s.loadNode(&k)); n.size == 300*MinLeafSize {
					k, _ = n.child(1)
					node = bytes.Clone(must2(s.load(&k)))
				}
			}
		})
		db = flipIn(t, db, node, 200)
		var stats CollectStats
		var err error
		if hold == 0 {
			stats, err = Collect(context.Background(), db, openStoreOf, CollectOptions{})
		} else {
			stats, err = collectBy(db, hold*time.Millisecond)
		}
		must(t, err)
		var damage *holdfast.CorruptError
		if stats.Damaged == 0 || stats.Chunks < 10 || !errors.As(stats.FirstDamaged, &damage) {
			t.Fatalf("%+v", stats)
		}
		view(t, db, func(s *Store) {
			if got := readAll(t, s, kept); !bytes.Equal(got, random(1, 140*MinLeafSize)) {
				t.Error("what is kept has changed")
			}
		})
	}
}

// What was deleted and collected by others stays readable, and verified, in the transaction of a reader.
func TestDeleteWhileReading(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	want := random(1, 300*MinLeafSize)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(want)) })
	tx := must2(db.Begin(false))
	r := must2(must2(openStoreOf(tx)).Reader(ref))
	begin := make([]byte, 1000)
	must2(r.Read(begin))
	update(t, db, func(s *Store) { must(t, s.Delete(ref)) })
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	update(t, db, func(s *Store) { // over what was freed
		must2(s.Put(random(2, 400*MinLeafSize)))
		if has, err := s.Has(ref); has || err != nil {
			t.Errorf("the blob is still there: %v", err)
		}
	})
	var rest bytes.Buffer
	must2(r.WriteTo(&rest))
	if !bytes.Equal(append(begin, rest.Bytes()...), want) {
		t.Error("the reader sees something else")
	}
	must(t, tx.Rollback())
}

// Two goroutines write and delete the same contents in transactions of their own.
func TestConcurrentWriters(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	var wg sync.WaitGroup
	var refs [2]Ref
	for g := range 2 {
		wg.Go(func() {
			for i := range 20 {
				err := db.Update(func(tx *holdfast.Tx) error {
					s, err := openStoreOf(tx)
					if err != nil {
						return err
					}
					if refs[g], err = s.Put(random(uint64(i%3), 150*MinLeafSize+i%3)); err != nil || i%2 == 0 {
						return err
					}
					return s.Delete(refs[g])
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	update(t, db, func(s *Store) {
		want := map[Address]int{}
		for i := 0; i < 20; i += 2 {
			want[must2(s.Put(random(uint64(i%3), 150*MinLeafSize+i%3))).addr] += 2
		}
		for addr, n := range want {
			if st := must2(s.Stat(must2(s.Find(addr.String()))[0])); st.Users != uint64(n+n/2) {
				t.Errorf("%d users, want %d", st.Users, n+n/2)
			}
		}
	})
}

// A blob for which there is no room is an error, and the store as it was.
func TestDiskFull(t *testing.T) {
	db, kept := deleted(t)
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	path := db.Path()
	must(t, db.Close())
	db = must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, MaxSize: 4 << 20}))
	defer db.Close()
	for range 3 {
		err := db.Update(func(tx *holdfast.Tx) error {
			w := must2(openStoreOf(tx)).Writer()
			for i := range 10 {
				if _, err := w.Write(random(uint64(10+i), 1<<20)); err != nil {
					return err
				}
			}
			_, err := w.Commit()
			return err
		})
		if !errors.Is(err, holdfast.ErrMaxSizeReached) {
			t.Fatalf("%v", err)
		}
		only(t, db, kept)
	}
	update(t, db, func(s *Store) { must(t, s.Delete(must2(s.Put(random(50, 1000))))) })
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	only(t, db, kept)
}
