package blob

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast"
)

// usersAre fails the test unless the blobs have so many users, and the counts are those of all that is recorded.
func usersAre(t testing.TB, s *Store, what string, want uint64, refs ...Ref) {
	t.Helper()
	for _, ref := range refs {
		if n, err := s.Users(ref); n != want || err != nil {
			t.Errorf("%s: %d users, %v, want %d", what, n, err, want)
		}
	}
	if err := checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)}); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// A lease that was released in the transaction got a blob added: Add failed, and had counted a use by then
// that nothing gives back. Wherever Add fails, no use is counted.
func TestLeaseAddFails(t *testing.T) {
	for name, spoil := range map[string]func(s *Store, l *Lease, key []byte) error{
		"released": func(_ *Store, l *Lease, _ []byte) error { return l.Release() },
		"expired": func(s *Store, l *Lease, _ []byte) error {
			if _, err := s.Lease(l.id, time.Unix(1, 0)); err != nil {
				return err
			}
			_, _, err := s.Collect(100)
			return err
		},
		"deleted": func(s *Store, l *Lease, _ []byte) error {
			return s.bucket.Bucket(leasesName).DeleteBucket([]byte(l.id))
		},
		"a bucket in place of the record": func(_ *Store, l *Lease, key []byte) error {
			_, err := l.b.CreateBucket(key)
			return err
		},
	} {
		for _, n := range []int{10, 3 * MinLeafSize} {
			db := newStore(t, Options{LeafSize: MinLeafSize})
			must(t, db.Update(func(tx *holdfast.Tx) error {
				s := openIn(tx)
				ref := must2(s.Put(random(1, n)))
				l := must2(s.Lease("lease", time.Time{}))
				k := ref.key()
				key := k.encode()
				must(t, spoil(s, l, key[:]))
				if err := l.Add(ref); err == nil {
					t.Errorf("%s: Add has no error", name)
				}
				_ = l.b.DeleteBucket(key[:])
				usersAre(t, s, name, 1, ref)
				return nil
			}))
		}
	}
}

// What Add has recorded is taken back if the use cannot be counted.
func TestLeaseAddFailsToLend(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	err := db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		ref := must2(s.Put(random(1, 10)))
		l := must2(s.Lease("lease", time.Time{}))
		must(t, s.flush())
		s.failed = errors.New("planted") // the next call that gathers anything fails, not the look before
		k := ref.key()
		err := l.hold(&k, 10)
		if !errors.Is(err, s.failed) {
			t.Errorf("Add: %v", err)
		}
		key := k.encode()
		if l.b.Get(key[:]) != nil {
			t.Error("the lease holds a blob that it is not a user of")
		}
		return err
	})
	if err == nil {
		t.Error("the transaction commits")
	}
}

// The Commit of an ingest that was given up meanwhile, or whose digest could not be recorded, counted a use
// of a blob whose reference the caller never got.
func TestIngestCommitFails(t *testing.T) {
	for name, spoil := range map[string]func(s *Store) error{
		"given up":                 func(s *Store) error { return must2(s.Ingest("name", IngestOptions{})).Abort() },
		"digests are not a bucket": func(s *Store) error { return s.bucket.Put(digestsName, []byte("value")) },
	} {
		for _, n := range []int{10, 3*MinLeafSize + 5} {
			db := newStore(t, Options{LeafSize: MinLeafSize, Algorithm: BLAKE3})
			must(t, db.Update(func(tx *holdfast.Tx) error {
				s := openIn(tx)
				ref := must2(s.Put(random(1, n)))
				in := must2(s.Ingest("name", IngestOptions{WholeDigest: true}))
				must2(in.Write(random(1, n)))
				must(t, in.Save())
				must(t, spoil(s))
				if _, err := in.Commit(); err == nil {
					t.Errorf("%s: Commit has no error", name)
				}
				_ = s.bucket.Delete(digestsName)
				usersAre(t, s, name, 1, ref)
				return nil
			}))
		}
	}
}

// A saved ingest that could not be taken up again held what it stands on until the transaction ended.
func TestIngestResumeFails(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	update2(t, db, func(s *Store) {
		in := must2(s.Ingest("name", IngestOptions{WholeDigest: true}))
		must2(in.Write(random(1, 3*MinLeafSize)))
		must(t, in.Save())
	})
	update2(t, db, func(s *Store) {
		b := s.bucket.Bucket(ingestsName).Bucket([]byte("name"))
		was := string(b.Get(stateName))
		must(t, b.Put(stateName, []byte(was[:len(was)-1]+"xx")))
		if _, err := s.Ingest("name", IngestOptions{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a damaged state: %v", err)
		}
		must(t, b.Put(stateName, []byte(was)))
		usersAre(t, s, "a damaged state", 0)
	})
}

// leased makes a store with leases and ingests that live and that have expired, interleaved, and dead chunks.
func leased(t testing.TB, live, ended, dead int) *holdfast.DB {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	update2(t, db, func(s *Store) {
		ref := must2(s.Put([]byte("held")))
		for i := range live + ended {
			expires := time.Now().Add(time.Hour)
			if i%(live+ended) < ended {
				expires = time.Unix(1000, 0)
			}
			must(t, must2(s.Lease(fmt.Sprint(i*7919%(live+ended)), expires)).Add(ref))
			if i%10 == 0 {
				in := must2(s.Ingest(fmt.Sprint(i), IngestOptions{Lifetime: time.Hour}))
				if expires.Before(time.Now()) {
					must(t, savedAt(in, 1000))
				}
			}
		}
		must(t, s.Delete(ref))
		for i := range dead {
			putDead(t, s, random(uint64(i), 50))
		}
	})
	return db
}

// Collect took 377 s instead of 37 ms beside 20,000 leases, for each of its small transactions read them
// all. Now a Collect looks once at each lease and ingest, in however many transactions, and none of them
// looks at all of them.
func TestCollectLooksOnce(t *testing.T) {
	const live, ended, dead = 900, 300, 500
	db := leased(t, live, ended, dead)
	r := collection{db: db, open: openStoreOf, o: CollectOptions{Hold: 5 * time.Millisecond}, batch: collectPiece}
	now := time.Now()
	r.now = func() time.Time { now = now.Add(2 * time.Millisecond); return now }
	for !r.done {
		before := r.look.count
		must(t, r.transaction())
		if n := r.look.count - before; n > 4*lookPiece {
			t.Errorf("one transaction looks at %d leases and ingests", n)
		}
	}
	if all := (live + ended) * 11 / 10; r.look.count != all {
		t.Errorf("%d leases and ingests were looked at, and there were %d", r.look.count, all)
	}
	if r.stats.Leases != 2*ended || r.stats.Ingests != ended/10 || r.stats.Chunks != dead || r.stats.Transactions < 20 {
		t.Errorf("%+v", r.stats)
	}
	must(t, db.View(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		u := must2(s.Usage())
		if u.Leases != live || u.Ingests != live/10 || u.Dead != 0 {
			t.Errorf("%+v", u)
		}
		return checkClean(s, CheckOptions{Data: true})
	}))
}

// So does a row of calls of Store.Collect, as long as nothing has expired: only the last one looks.
func TestStoreCollectLooksLast(t *testing.T) {
	const live, dead = 300, 200
	db := leased(t, live, 0, dead)
	looked, removed := 0, 0
	for more := true; more; {
		update2(t, db, func(s *Store) {
			var l look
			n, again, err := s.collect(&l, 7)
			must(t, err)
			looked += l.count
			removed += n
			more = again
		})
	}
	if removed != dead || looked > live*11/10+10 {
		t.Errorf("%d chunks were removed, and %d leases looked at", removed, looked)
	}
	// What has expired is given back in pieces, and its index entries are removed.
	db = leased(t, 20, 30, 0)
	update2(t, db, func(s *Store) {
		for id := range s.Leases() {
			must(t, must2(s.Lease(id.ID, time.Unix(1000, 0))).Release())
		}
		l := must2(s.Lease("the last", time.Unix(1000, 0)))
		ref := must2(s.Put(random(1, 3*MinLeafSize)))
		must(t, l.Add(ref))
		must(t, s.Delete(ref))
	})
	calls, removed := 0, 0
	for more := true; more; calls++ {
		update2(t, db, func(s *Store) {
			n, again, err := s.Collect(1)
			must(t, err)
			removed += n
			more = again
		})
	}
	if calls > 50 || removed != 5 { // the leaf that was held first too
		t.Errorf("%d chunks were removed by %d calls", removed, calls)
	}
	stats, err := Collect(context.Background(), db, openStoreOf, CollectOptions{})
	if err != nil || stats.Chunks+stats.Leases+stats.Ingests != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// Collect(0) removed nothing and said that there is more, for ever. It is an error, also where there is nothing.
func TestCollectOfNothing(t *testing.T) {
	update2(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		for _, limit := range []int{0, -1} {
			if n, more, err := s.Collect(limit); n != 0 || more || !errors.Is(err, ErrOptions) {
				t.Errorf("%d, %v, %v", n, more, err)
			}
		}
		n, more, err := s.Collect(1)
		if n != 0 || more || err != nil {
			t.Errorf("%d, %v, %v", n, more, err)
		}
	})
}

// A Collect with the longest Hold there is never took more at a time than at first.
func TestCollectLongestHold(t *testing.T) {
	r := collection{o: CollectOptions{Hold: 1<<63 - 1}, batch: 10}
	if r.adapt(time.Second); r.batch != 20 {
		t.Errorf("%d chunks", r.batch)
	}
}

// Two Stores of one transaction deleted a blob that has one user and a lease, each of them once. The second
// use was that of the lease: Collect then took away what the lease held.
func TestDeleteTwiceBesideALease(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	var ref Ref
	update(t, db, func(s *Store) {
		ref = must2(s.Put([]byte("content")))
		must(t, must2(s.Lease("lease", time.Time{})).Add(ref))
	})
	err := db.Update(func(tx *holdfast.Tx) error {
		one, two := openIn(tx), openIn(tx)
		return errors.Join(one.Delete(ref), two.Delete(ref))
	})
	if err == nil {
		t.Error("two deletions of a blob with one user were committed")
	}
	update(t, db, func(s *Store) {
		if err := s.Delete(ref); err != nil {
			t.Errorf("after two deletions that were rolled back: %v", err)
		}
		if has, err := s.Has(ref); !has || err != nil {
			t.Errorf("what a lease holds is there: %v, %v", has, err)
		}
	})
}
