package snapshot

import (
	"context"
	"fmt"
	"time"
)

// ReadTx is a read transaction on the metadata, for several questions whose answers must agree. It is valid inside the
// function that Store.Read calls, for one goroutine.
type ReadTx struct {
	t   *txn
	ctx context.Context
}

// Read calls fn with a read transaction. No transaction waits for it; but the file cannot
// reuse space that is given up before fn returns.
func (s *Store) Read(ctx context.Context, fn func(*ReadTx) error) error {
	return s.view("read", func(t *txn) error { return fn(&ReadTx{t: t, ctx: ctx}) })
}

// Totals are the figures of the store, without Trash and TrashBytes.
func (m *ReadTx) Totals() (Totals, error) {
	v, err := m.t.get(inMeta, keyTotals)
	if err != nil {
		return Totals{}, err
	}
	sum, err := parseTotals(v)
	return Totals{Snapshots: int64(sum.snapshots), Committed: int64(sum.committed), Usage: sum.usage}, err
}

// Stat tells of a snapshot. ErrNotFound if there is none of that name.
func (m *ReadTx) Stat(namespace, name string) (Candidate, error) {
	r, err := m.t.record(nameKey(namespace, name))
	if err != nil {
		return Candidate{}, err
	}
	info, err := m.t.infoOf(name, &r)
	return Candidate{Namespace: namespace, Info: info, parent: r.parent}, err
}

// All calls fn for each snapshot of each namespace, until it returns false.
func (m *ReadTx) All(fn func(Candidate) bool) error {
	return m.t.scan(inSnapshots, nil, nil, func(k, v []byte) (bool, error) {
		if err := m.ctx.Err(); err != nil {
			return false, err
		}
		r, err := parseRecord(v)
		if err != nil {
			return false, fmt.Errorf("%q: %w", k, err)
		}
		c, err := m.candidate(k, &r)
		return err == nil && fn(c), err
	})
}

// Children calls fn for each snapshot whose parent has the ID, until it returns false.
func (m *ReadTx) Children(id ID, fn func(Candidate) bool) error {
	return m.t.scan(inChildren, number(uint64(id)), nil, func(k, _ []byte) (bool, error) {
		if err := m.ctx.Err(); err != nil {
			return false, err
		}
		_, child, err := fixed("child", k, 2)
		if err != nil {
			return false, err
		}
		c, err := m.byID(ID(child))
		return err == nil && fn(c), err
	})
}

// Leases are the leases on a snapshot itself that have not expired at a time.
func (m *ReadTx) Leases(id ID, now time.Time) (held []Held, err error) {
	leases, err := m.t.leasesOf(id)
	for _, l := range leases {
		if !l.expired(uint64(max(now.UnixNano(), 0))) {
			held = append(held, l.held())
		}
	}
	return held, err
}

// IsClient tells whether a namespace is a client's, of which nothing is pruned.
func (m *ReadTx) IsClient(namespace string) bool {
	m.t.store.mu.RLock()
	defer m.t.store.mu.RUnlock()
	return m.t.store.clients[namespace]
}

func (m *ReadTx) byID(id ID) (Candidate, error) {
	key, r, err := m.t.byID(id)
	if err != nil {
		return Candidate{}, err
	}
	return m.candidate(key, &r)
}

func (m *ReadTx) candidate(key []byte, r *record) (Candidate, error) {
	namespace, name, err := splitKey(key)
	if err != nil {
		return Candidate{}, err
	}
	info, err := m.t.infoOf(name, r)
	return Candidate{Namespace: namespace, Info: info, parent: r.parent}, err
}

// Totals are figures of a whole store.
type Totals struct {
	Snapshots int64 // of every kind
	Committed int64
	Usage     Usage // of the committed ones
	Trash     int64 // removed, and not deleted yet, as far as it is known

	// TrashBytes is what these take, without those whose size is not known: see Store.TrashUsage.
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
		Trash: int64(len(s.reaper.sizes)), TrashBytes: s.reaper.sum.Size}, nil
}
