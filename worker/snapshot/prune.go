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
			return err == nil && fn(Candidate{Tenant: tenant, Info: info}), err
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
}

// Prune removes those of some snapshots that still can be pruned, in one transaction, and
// returns their IDs. While it runs nobody else can write, so some hundred at a time are enough.
func (s *Store) Prune(ctx context.Context, list []Doomed) (removed []ID, err error) {
	err = s.update("prune", func(t *txn) error {
		removed = removed[:0]
		for _, d := range list {
			gone, err := t.prune(d)
			if err != nil {
				return fmt.Errorf("snapshot %v: %w", d.ID, err)
			}
			if gone {
				removed = append(removed, d.ID)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}
	for _, id := range removed {
		s.reaper.add(id, false)
	}
	return removed, nil
}

func (t *txn) prune(d Doomed) (bool, error) {
	if d.ID == 0 {
		return false, nil
	}
	v, err := t.get(inIDs, number(uint64(d.ID)))
	if err != nil || v == nil { // removed meanwhile
		return false, err
	}
	key, r, err := t.byID(d.ID)
	if err != nil || !r.listed() || r.used != uint64(d.LastUsed.UnixNano()) {
		return false, err
	}
	return true, t.remove(key, &r)
}

// Totals are figures of a whole store.
type Totals struct {
	Snapshots int64 // of every kind
	Committed int64
	Usage     Usage // of the committed ones
	Trash     int64 // removed, and not deleted yet, as far as it is known
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
		Trash: int64(len(s.reaper.queue) + s.reaper.batch + len(s.reaper.parked))}, nil
}
