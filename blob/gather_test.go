package blob

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"holdfast"
)

// Each Delete, Retain and Add of a transaction brought all that was gathered to the index, and looked there for what it was to
// change: 500,000 deletes wrote 7 GB. Now a transaction changes the index once, whatever is deleted, retained, leased or
// put in it, in whatever order.
func TestCountsAreGathered(t *testing.T) {
	const many, some = 30_000, 400
	db := newStore(t, Options{})
	var refs []Ref
	update(t, db, func(s *Store) {
		for i := range many {
			refs = append(refs, must2(s.Put(nthBlob(i))))
		}
	})
	for _, c := range []struct {
		name string
		do   func(s *Store, i int) error
	}{
		{"retain", func(s *Store, i int) error { return s.Retain(refs[i]) }},
		{"delete", func(s *Store, i int) error { return errors.Join(s.Delete(refs[i]), s.Delete(refs[i])) }},
		{"put and delete", func(s *Store, i int) error { return s.Delete(value(t, must2(s.Put(nthBlob(many+i))), nil)) }},
		{"look", func(s *Store, i int) error {
			if n := must2(s.Users(must2(s.Put(nthBlob(some + i))))); n != 2 {
				t.Errorf("blob %d has %d users", i, n)
			}
			return nil
		}},
	} {
		update2(t, db, func(s *Store) {
			for i := range some {
				must(t, c.do(s, i))
				if n := len(s.batch.entries); n != i+1 {
					t.Fatalf("%s: %d chunks are gathered after %d calls", c.name, n, i+1)
				}
			}
		})
	}
	view(t, db, func(s *Store) {
		for i, ref := range refs[:2*some] {
			if n, want := must2(s.Users(ref)), uint64(i/some*2); n != want {
				t.Errorf("blob %d has %d users, not %d", i, n, want)
			}
		}
		if u := must2(s.Usage()); u.Dead != some || u.Leaves != many {
			t.Errorf("%+v", u)
		}
		must(t, checkClean(s, CheckOptions{Data: true}))
	})
}

// What is gathered of a blob counts for each call of its Store.
func TestGatheredCounts(t *testing.T) {
	db := newStore(t, Options{})
	small, large := []byte("some bytes"), random(1, 3*defaultLeafSize(4096, 0))
	update(t, db, func(s *Store) {
		for _, p := range [][]byte{small, large} {
			ref := must2(s.Put(p))
			l := must2(s.Lease("for "+ref.String(), time.Time{}))
			must(t, l.Add(ref))
			must(t, s.Delete(ref))
			if err := s.Delete(ref); !errors.Is(err, ErrNotFound) {
				t.Errorf("delete what only a lease holds: %v", err)
			}
			if n := must2(s.Users(ref)); n != 1 {
				t.Errorf("%d users", n)
			}
			must(t, s.Retain(ref))
			must(t, l.Release())
			must(t, s.Delete(ref))
			if held := must2(s.Has(ref)); held {
				t.Error("it is held by nothing")
			}
			if err := s.Retain(ref); !errors.Is(err, ErrNotFound) {
				t.Errorf("retain what was deleted: %v", err)
			}
			if err := l.Add(ref); !errors.Is(err, ErrNotFound) && !errors.Is(err, holdfast.ErrBucketNotFound) {
				t.Errorf("lease what was deleted: %v", err)
			}
			wrong := ref
			wrong.size++
			must2(s.Put(p))
			if _, err := s.Has(wrong); !errors.Is(err, ErrInvalidRef) {
				t.Errorf("a wrong size: %v", err)
			}
			must(t, s.Delete(ref))
		}
	})
	view(t, db, func(s *Store) { must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf()})) })
}

// A Writer was given up after it had made a node: the node, which was gathered and nothing held, still counted as a parent of its
// leaves, so that Has said that the store holds them, and Retain kept one.
func TestGivenUpHoldsNothing(t *testing.T) {
	for _, has := range []bool{true, false} {
		db := newStore(t, Options{LeafSize: MinLeafSize})
		content := random(1, 130*MinLeafSize)
		ref := Ref{algorithm: SHA256, addr: SHA256.sum(content[:MinLeafSize]), size: MinLeafSize}
		update(t, db, func(s *Store) {
			w := s.Writer()
			must2(w.Write(content))
			w.Abort()
			if has && must2(s.Has(ref)) {
				t.Error("the store holds a leaf of what was given up")
			}
			if err := s.Retain(ref); !errors.Is(err, ErrNotFound) {
				t.Errorf("retain a leaf of what was given up: %v", err)
			}
		})
		view(t, db, func(s *Store) {
			if n := bytesIn(s); n > 0 {
				t.Errorf("there are bytes of %d chunks", n)
			}
		})
	}
}

// The bytes of a chunk were lost, and its length in the index is wrong. What was put again counts, before and after the flush.
func TestGatheredAfterLoss(t *testing.T) {
	db := newStore(t, Options{})
	content := random(1, 300)
	update2(t, db, func(s *Store) {
		ref := must2(s.Put(content))
		must(t, s.flush())
		k := ref.key()
		must(t, s.putEntry(&k, &entry{packed: true, length: 7, users: 1}))
		must2(s.Put(content))
		if n := must2(s.Users(ref)); n != 2 {
			t.Errorf("%d users", n)
		}
		must(t, s.Delete(ref))
	})
	// The bytes that were lost above are still there, so that Check has something to say of them.
	view(t, db, func(s *Store) {
		ref := Ref{algorithm: SHA256, addr: SHA256.sum(content), size: int64(len(content))}
		if n := must2(s.Users(ref)); n != 1 || !bytes.Equal(readAll(t, s, ref), content) {
			t.Errorf("%d users", n)
		}
	})
}

// However many counts a transaction changes, a bounded number of them is gathered.
func TestGatheredCountsAreBounded(t *testing.T) {
	db := newStore(t, Options{})
	var refs []Ref
	update2(t, db, func(s *Store) {
		for i := range maxCounted + 1000 {
			refs = append(refs, must2(s.Put(nthBlob(i))))
		}
	})
	update2(t, db, func(s *Store) {
		for _, ref := range refs {
			must(t, s.Delete(ref))
		}
		if n := len(s.batch.entries); n > 1000 {
			t.Errorf("%d chunks are gathered", n)
		}
	})
	view(t, db, func(s *Store) {
		if u := must2(s.Usage()); int(u.Dead) != len(refs) {
			t.Errorf("%+v", u)
		}
	})
}
