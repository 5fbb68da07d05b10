package snapshot

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"holdfast"
)

// Moment is what the metadata were at one moment, for who asks several questions whose answers
// must agree. It is good inside of the function that Store.Moment calls, for one goroutine.
type Moment struct {
	t   *txn
	ctx context.Context
}

// Moment calls fn with the metadata as they are now. No transaction waits for it; but the file cannot
// reuse space that is given up before fn returns.
func (s *Store) Moment(ctx context.Context, fn func(*Moment) error) error {
	return s.view("moment", func(t *txn) error { return fn(&Moment{t: t, ctx: ctx}) })
}

// Totals are the figures of the store at that moment, without Trash and TrashBytes.
func (m *Moment) Totals() (Totals, error) {
	v, err := m.t.get(inMeta, keyTotals)
	if err != nil {
		return Totals{}, err
	}
	sum, err := parseTotals(v)
	return Totals{Snapshots: int64(sum.snapshots), Committed: int64(sum.committed), Usage: sum.usage}, err
}

// Stat tells of a snapshot. ErrNotFound if there is none of that name.
func (m *Moment) Stat(tenant, name string) (Candidate, error) {
	r, err := m.t.record(nameKey(tenant, name))
	if err != nil {
		return Candidate{}, err
	}
	info, err := m.t.infoOf(name, &r)
	return Candidate{Tenant: tenant, Info: info, parent: r.parent}, err
}

// All calls fn for each snapshot of each tenant, until it returns false.
func (m *Moment) All(fn func(Candidate) bool) error {
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
func (m *Moment) Children(id ID, fn func(Candidate) bool) error {
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
func (m *Moment) Leases(id ID, now time.Time) (held []Held, err error) {
	leases, err := m.t.leasesOf(id)
	for _, l := range leases {
		if !l.expired(uint64(max(now.UnixNano(), 0))) {
			held = append(held, l.held())
		}
	}
	return held, err
}

// IsClient tells whether a tenant is a client's, of which nothing is pruned.
func (m *Moment) IsClient(tenant string) bool {
	m.t.store.mu.RLock()
	defer m.t.store.mu.RUnlock()
	return m.t.store.clients[tenant]
}

func (m *Moment) byID(id ID) (Candidate, error) {
	key, r, err := m.t.byID(id)
	if err != nil {
		return Candidate{}, err
	}
	return m.candidate(key, &r)
}

func (m *Moment) candidate(key []byte, r *record) (Candidate, error) {
	tenant, name, err := splitKey(key)
	if err != nil {
		return Candidate{}, err
	}
	info, err := m.t.infoOf(name, r)
	return Candidate{Tenant: tenant, Info: info, parent: r.parent}, err
}

// Candidates gives the snapshots that can be pruned at the time now, when leases that are over then
// count no more, nor those with the name despite, "" for none, that have an end. It changes nothing.
func (m *Moment) Candidates(now time.Time, despite string) (*Candidates, error) {
	b, err := m.t.bucket(inUsed)
	if err != nil {
		return nil, err
	}
	c := &Candidates{m: m, now: uint64(max(now.UnixNano(), 0)), despite: despite, cursor: b.Cursor(), state: map[ID]byte{}, passed: map[ID]ID{}}
	if err := c.addExpired(); err != nil {
		return nil, err
	}
	c.Rewind()
	return c, nil
}

// Candidates are the snapshots that can be pruned, and those that could be if some of these
// were. What it reads is in proportion to what it gives.
type Candidates struct {
	m       *Moment
	now     uint64
	despite string
	cursor  *holdfast.Cursor
	begun   bool
	front   place // of the cursor
	more    bool

	free   []place     // not in the bucket used: their last child is taken, or their lease over
	queue  places      // those of them that are not given since Rewind
	state  map[ID]byte // taken, or freed
	passed map[ID]ID   // by parent: all children up to this one are taken
}

const (
	taken = 1
	freed = 2
)

// place is where a snapshot stands in the order of use.
type place struct {
	used uint64
	id   ID
}

func (p place) before(q place) bool { return p.used < q.used || p.used == q.used && p.id < q.id }

// places is a heap.
type places []place

func (h places) Len() int           { return len(h) }
func (h places) Less(i, j int) bool { return h[i].before(h[j]) }
func (h places) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *places) Push(x any)        { *h = append(*h, x.(place)) }
func (h *places) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Rewind begins again with the one that was not used for the longest time. What is taken stays so.
func (c *Candidates) Rewind() {
	c.begun = false
	c.queue = c.queue[:0]
	kept := c.free[:0]
	for _, p := range c.free {
		if c.state[p.id] != taken {
			kept = append(kept, p)
		}
	}
	c.free = kept
	c.queue = append(c.queue, kept...)
	heap.Init(&c.queue)
}

// Next gives the one that was not used for the longest time, of those that were not given since Rewind
// and are not taken; false if there is none.
func (c *Candidates) Next() (Candidate, bool, error) {
	if err := c.m.ctx.Err(); err != nil {
		return Candidate{}, false, err
	}
	if !c.begun {
		c.begun = true
		if err := c.advance(c.cursor.First()); err != nil {
			return Candidate{}, false, err
		}
	}
	for c.more && c.state[c.front.id] == taken {
		if err := c.advance(c.cursor.Next()); err != nil {
			return Candidate{}, false, err
		}
	}
	var p place
	switch {
	case len(c.queue) > 0 && (!c.more || c.queue[0].before(c.front)):
		p = heap.Pop(&c.queue).(place)
	case c.more:
		p = c.front
		if err := c.advance(c.cursor.Next()); err != nil {
			return Candidate{}, false, err
		}
	default:
		return Candidate{}, false, nil
	}
	got, err := c.m.byID(p.id)
	return got, err == nil, err
}

// advance notes where the cursor is.
func (c *Candidates) advance(k, _ []byte) error {
	c.m.t.touched++
	if c.more = k != nil; !c.more {
		return c.m.t.tx.Err()
	}
	used, id, err := fixed("last use", k, 2)
	c.front = place{used, ID(id)}
	return err
}

// Take says that one which Next has given is to be pruned. If its parent can be pruned then, Next
// gives that too, when it is its turn: after this one.
func (c *Candidates) Take(one Candidate) error {
	c.state[one.ID] = taken
	if one.parent == 0 {
		return nil
	}
	return c.release(one.parent)
}

// release makes a snapshot a candidate, if nothing keeps it any more.
func (c *Candidates) release(id ID) error {
	if c.state[id] != 0 {
		return nil
	}
	if held, err := c.hasChild(id); err != nil || held {
		return err
	}
	key, r, err := c.m.t.byID(id)
	if err != nil {
		return err
	}
	if r.kind != Committed || r.flags&flagPinned != 0 || r.listed() || c.m.t.store.isClient(key) {
		return nil
	}
	leases, err := c.m.t.leasesOf(id)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if !c.over(&l) {
			return nil
		}
	}
	p := place{r.used, id}
	c.state[id] = freed
	c.free = append(c.free, p)
	heap.Push(&c.queue, p)
	return nil
}

// over tells whether a lease keeps nothing.
func (c *Candidates) over(l *lease) bool {
	return l.expired(c.now) || c.despite != "" && l.name == c.despite && l.expires != 0
}

// hasChild tells whether a snapshot has a child that is not taken. It goes on where it stopped the
// last time: all of them together pass each child once.
func (c *Candidates) hasChild(id ID) (bool, error) {
	found := false
	err := c.m.t.scan(inChildren, number(uint64(id)), numbers(uint64(id), uint64(c.passed[id])+1), func(k, _ []byte) (bool, error) {
		_, child, err := fixed("child", k, 2)
		if err != nil {
			return false, err
		}
		if found = c.state[ID(child)] != taken; !found {
			c.passed[id] = ID(child)
		}
		return !found, nil
	})
	return found, err
}

// addExpired makes candidates of those that are held by nothing but leases that are over.
func (c *Candidates) addExpired() error {
	return c.m.t.scan(inExpiries, nil, nil, func(k, _ []byte) (bool, error) {
		l, err := parseExpiry(k)
		switch {
		case err != nil:
			return false, err
		case c.over(&l):
			return true, c.release(l.id)
		}
		return c.despite != "", nil // further ones end later
	})
}
