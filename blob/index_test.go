package blob

import (
	"errors"
	"testing"
)

// A chunk that is not used any more is marked, comes back when it is written again, and
// can be removed when it is not.
func TestUnusedChunks(t *testing.T) {
	for _, o := range small {
		t.Run(o.String(), func(t *testing.T) {
			db := newStore(t, o)
			data := random(1, 5000)
			var ref Ref
			put := func(s *Store) {
				var err error
				ref, err = s.Put(data)
				must(t, err)
			}
			state := func(s *Store) (users uint64, dead bool) {
				k := ref.key()
				e, found, err := s.lookup(&k)
				must(t, err)
				if !found {
					t.Fatal("the root is not there")
				}
				key := k.encode()
				return e.users, s.dead.Get(key[:]) != nil
			}
			update(t, db, put)
			update(t, db, func(s *Store) {
				k := ref.key()
				must(t, s.refer(&k, 0, -1))
				if users, dead := state(s); users != 0 || !dead {
					t.Errorf("%d users, unused %v", users, dead)
				}
			})
			update(t, db, func(s *Store) {
				put(s)
				put(s)
				if users, dead := state(s); users != 2 || dead {
					t.Errorf("%d users, unused %v", users, dead)
				}
			})
			update(t, db, func(s *Store) {
				k := ref.key()
				must(t, s.refer(&k, 0, -1))
				must(t, s.refer(&k, 0, -1))
				e, _, err := s.lookup(&k)
				must(t, err)
				must(t, s.refer(&k, 0, 1))
				if err := s.remove(&k, &e); err == nil {
					t.Error("a chunk in use was removed")
				}
				must(t, s.refer(&k, 0, -1))
				b, err := s.load(&k)
				must(t, err)
				must(t, s.giveUpChildren(b, k.level, false))
				must(t, s.remove(&k, &e))
				if _, err := s.Reader(ref); !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
				if err := s.refer(&k, 0, 1); !errors.Is(err, ErrMissing) {
					t.Error(err)
				}
			})
		})
	}
}

// A count below zero is noticed before anything is committed.
func TestCountBelowZero(t *testing.T) {
	db := newStore(t, small[0])
	view(t, db, func(s *Store) { checkStore(t, s) })
	tx, err := db.Begin(true)
	must(t, err)
	s := openIn(tx)
	ref, err := s.Put([]byte("x"))
	must(t, err)
	must(t, s.flush())
	k := ref.key()
	must(t, s.refer(&k, 0, -2))
	if err := tx.Commit(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Commit: %v", err)
	}
	view(t, db, func(s *Store) {
		if n := checkStore(t, s); n != 0 {
			t.Errorf("%d chunks", n)
		}
	})
}
