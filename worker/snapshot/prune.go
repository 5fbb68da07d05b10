package snapshot

import (
	"context"
	"fmt"
	"time"
)

// Candidate is a snapshot that can be pruned.
type Candidate struct {
	Tenant string
	Info
	parent ID
}

// Prunable calls fn for the snapshots that can be pruned, the one that was not used for the
// longest time first, until it returns false: committed ones of tenants that are no clients,
// without children, leases and pins. It shows what there was when it began. A snapshot whose children
// are pruned can be pruned after them.
func (s *Store) Prunable(ctx context.Context, fn func(Candidate) bool) error {
	if err := s.ExpireLeases(ctx); err != nil {
		return err
	}
	err := s.view("prunable", func(t *txn) error {
		return t.scan(inUsed, nil, nil, func(k, _ []byte) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			_, id, err := fixed("last use", k, 2)
			if err != nil {
				return false, err
			}
			key, r, err := t.byID(ID(id))
			if err != nil {
				return false, err
			}
			tenant, name, err := splitKey(key)
			if err != nil {
				return false, err
			}
			info, err := t.infoOf(name, &r)
			return err == nil && fn(Candidate{Tenant: tenant, Info: info, parent: r.parent}), err
		})
	})
	if err != nil {
		return fmt.Errorf("list prunable snapshots: %w", err)
	}
	return nil
}

// Doomed says which snapshot to prune, and as of when it was to be pruned: if it was used
// since it is kept.
type Doomed struct {
	ID       ID
	LastUsed time.Time
	Despite  string // a lease that is to be taken from it first, if that has an end; "": none
}

// Prune removes those of some snapshots that still can be pruned, in one transaction, and
// returns their IDs. While it runs no other transaction can write, so some hundred at a time are enough.
func (s *Store) Prune(ctx context.Context, list []Doomed) (removed []ID, err error) {
	p, err := s.PruneFor(ctx, list, 0)
	return p.Removed, err
}

// Pruned is what PruneFor has done.
type Pruned struct {
	Looked  int           // how many of the list, from its beginning, were looked at
	Removed []ID          // those of them that were removed
	Bytes   int64         // what these take
	Held    time.Duration // how long no other transaction could write
}

// PruneFor is Prune, but stops at an entry of the list, not before the second, when it has taken half of the
// time hold; 0: none. The other half is for writing what has changed, of which Pruned.Held tells.
func (s *Store) PruneFor(ctx context.Context, list []Doomed, hold time.Duration) (p Pruned, err error) {
	var sizes []int64
	var last *txn
	err = s.update("prune", func(t *txn) error {
		began := time.Now()
		p, sizes, last = Pruned{}, sizes[:0], t
		for _, d := range list {
			if hold > 0 && p.Looked > 0 && time.Since(began) >= hold/2 {
				break
			}
			p.Looked++
			r, err := t.prune(d)
			if err != nil {
				return fmt.Errorf("snapshot %v: %w", d.ID, err)
			}
			if r != nil {
				p.Removed = append(p.Removed, d.ID)
				p.Bytes += r.usage.Size
				sizes = append(sizes, r.usage.Size)
			}
		}
		p.Held = time.Since(began)
		return ctx.Err()
	})
	if err != nil {
		return Pruned{}, fmt.Errorf("prune: %w", err)
	}
	p.Held += last.tx.Stats().SpillTime
	for i, id := range p.Removed {
		s.reaper.add(doomed{id: id}, sizes[i])
	}
	return p, nil
}

// prune removes a snapshot that still can be pruned, and returns its record; nil if it cannot.
func (t *txn) prune(d Doomed) (*record, error) {
	if d.ID == 0 {
		return nil, nil
	}
	key, err := t.get(inIDs, number(uint64(d.ID)))
	if err != nil || key == nil { // removed meanwhile
		return nil, err
	}
	r, err := t.named(key, d.ID)
	if err != nil || r.used != uint64(d.LastUsed.UnixNano()) {
		return nil, err
	}
	if d.Despite != "" && !r.listed() {
		err = t.free(key, &r, d.Despite)
	}
	if err != nil || !r.listed() {
		return nil, err
	}
	return &r, t.remove(key, &r)
}

// Totals are figures of a whole store.
type Totals struct {
	Snapshots int64 // of every kind
	Committed int64
	Usage     Usage // of the committed ones
	Trash     int64 // removed, and not deleted yet, as far as it is known

	// TrashBytes is what these take, without those whose size is not known: see Store.TrashBytes.
	TrashBytes int64
}

// Totals gives the figures; they are kept, not computed.
func (s *Store) Totals(ctx context.Context) (Totals, error) {
	var sum totals
	err := s.view("totals", func(t *txn) error {
		v, err := t.get(inMeta, keyTotals)
		if err == nil {
			sum, err = parseTotals(v)
		}
		return err
	})
	if err != nil {
		return Totals{}, fmt.Errorf("totals: %w", err)
	}
	s.reaper.mu.Lock()
	defer s.reaper.mu.Unlock()
	return Totals{Snapshots: int64(sum.snapshots), Committed: int64(sum.committed), Usage: sum.usage,
		Trash: int64(len(s.reaper.sizes)), TrashBytes: s.reaper.bytes}, nil
}
