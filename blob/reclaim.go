package blob

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Reclaimable tells what Collect would remove if first a user of each of refs were deleted, as often
// as it stands there, and the ingests of these names were given up: what waits for Collect now, and what
// leases and ingests hold that have expired, is included. bytes are those that are stored, compressed perhaps. It changes
// nothing, reads the nodes that would go and the index, and keeps some 100 bytes for each such node. An Ingest that is open in the transaction holds what it stands
// on: that is not counted, though its name be given. ErrNotFound if a blob has not so many users that could be deleted,
// or there is no such ingest.
func (s *Store) Reclaimable(refs []Ref, ingests ...string) (chunks, bytes int64, err error) {
	r := reclaim{s: s, taken: map[chunkKey]taken{}}
	for _, step := range []func() error{func() error { return r.deleted(refs) }, func() error { return r.expired(ingests, time.Now()) },
		s.flush, r.dead, r.nodes, r.leaves} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("what could be reclaimed: %w", err)
	}
	return r.chunks, r.bytes, nil
}

// reclaim is a call of Reclaimable.
type reclaim struct {
	s             *Store
	taken         map[chunkKey]taken
	levels        [maxLevel + 1][]chunkKey // the keys of taken
	last          []chunkKey               // nodes that go, with leaves below
	low           int64                    // leaves that these name
	chunks, bytes int64
}

// taken is what a chunk loses.
type taken struct{ parents, users, deleted uint64 }

func (r *reclaim) take(k chunkKey, t taken) {
	was, known := r.taken[k]
	if !known {
		r.levels[k.level] = append(r.levels[k.level], k)
	}
	r.taken[k] = taken{was.parents + t.parents, was.users + t.users, was.deleted + t.deleted}
}

func (r *reclaim) deleted(refs []Ref) error {
	for _, ref := range refs {
		if ref.inlined {
			continue
		}
		k, e, ok, err := r.s.root(ref)
		if err != nil {
			return err
		}
		if r.take(k, taken{users: 1, deleted: 1}); !ok || e.users < e.leased+r.taken[k].deleted {
			return fmt.Errorf("blob %v: %w", ref, ErrNotFound)
		}
	}
	return nil
}

// expired takes what leases and ingests hold that have expired, and the ingests of these names.
func (r *reclaim) expired(names []string, now time.Time) error {
	for l, err := range r.s.Leases() {
		if err != nil || l.Expires.IsZero() || l.Expires.After(now) {
			continue // damaged ones are left alone
		}
		for ref, err := range r.s.Leased(l.ID) {
			if err == nil {
				r.take(ref.key(), taken{users: 1})
			}
		}
	}
	given := map[string]bool{}
	for _, name := range names {
		given[name] = true
	}
	for name, state := range r.s.ingests() {
		if state.err != nil || !given[name] && !state.expired(now) {
			continue
		}
		delete(given, name)
		for _, k := range state.chunks() {
			r.take(k, taken{parents: 1})
		}
	}
	for name := range given {
		return fmt.Errorf("ingest %.100q: %w", name, ErrNotFound)
	}
	return r.s.tx.Err()
}

// dead takes up what is marked.
func (r *reclaim) dead() error {
	for mark := range r.s.dead.All() {
		k, err := parseKey(mark)
		if err != nil {
			continue
		}
		if k.level > 0 {
			r.take(k, taken{})
			continue
		}
		if _, known := r.taken[k]; known {
			continue
		}
		if _, err := r.goes(&k, taken{}); err != nil {
			return err
		}
	}
	return r.s.tx.Err()
}

// goes tells whether a chunk would be removed that loses so much, and counts it then.
func (r *reclaim) goes(k *chunkKey, t taken) (bool, error) {
	e, ok, err := r.s.probe(k)
	if err != nil || !ok || e.parents > t.parents || e.users > t.users {
		return false, err
	}
	r.chunks++
	r.bytes += int64(e.size())
	return true, nil
}

// nodes finds the nodes that would go: those above have lost theirs before.
func (r *reclaim) nodes() error {
	for level := maxLevel; level > 0; level-- {
		for i := 0; i < len(r.levels[level]); i++ {
			k := r.levels[level][i]
			chunks, bytes := r.chunks, r.bytes
			goes, err := r.goes(&k, r.taken[k])
			if err != nil {
				return err
			}
			if !goes {
				continue
			}
			n, err := r.s.loadNode(&k)
			if err != nil {
				if r.s.tx.Err() != nil {
					return err
				}
				r.chunks, r.bytes = chunks, bytes // Collect passes it over
				continue
			}
			low := r.low
			for i := range n.count() {
				child, _ := n.child(i)
				if child.level == 0 {
					r.low++
					continue
				}
				r.take(child, taken{parents: 1})
			}
			if r.low > low {
				r.last = append(r.last, k)
			}
		}
	}
	return nil
}

// leaves finds the leaves that would go, in as many passes as their number asks for, each of which has its share
// of the addresses.
func (r *reclaim) leaves() error {
	passes := uint64(r.low/statLeaves + 1)
	for pass := range passes {
		in := func(k *chunkKey) bool { return binary.BigEndian.Uint64(k.addr[:])%passes == pass }
		lost := map[chunkKey]taken{}
		for _, k := range r.levels[0] {
			if in(&k) {
				lost[k] = r.taken[k]
			}
		}
		for _, k := range r.last {
			n, err := r.s.loadNode(&k)
			if err != nil {
				return err
			}
			for i := range n.count() {
				if child, _ := n.child(i); child.level == 0 && in(&child) {
					t := lost[child]
					t.parents++
					lost[child] = t
				}
			}
		}
		for k, t := range lost {
			if _, err := r.goes(&k, t); err != nil {
				return err
			}
		}
	}
	return nil
}
