package snapshot

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"holdfast"
)

// Candidate is a snapshot that can be pruned.
type Candidate struct {
	Namespace string
	Info
	parent ID
}

// Prunable calls fn for the snapshots that can be pruned, the one that was not used for the
// longest time first, until it returns false: committed ones of namespaces that are not clients,
// without children, leases and pins. It shows what there was when it began. A snapshot whose children
// are pruned can be pruned after them.
func (s *Store) Prunable(ctx context.Context, fn func(Candidate) bool) error {
	if err := s.ExpireLeases(ctx); err != nil {
		return err
	}
	err := s.view("prunable", func(t *txn) error {
		c, err := (&ReadTx{t: t, ctx: ctx}).Candidates(timeOf(s.now()), "")
		for more := true; more && err == nil; {
			var one Candidate
			if one, more, err = c.Next(); more {
				more = fn(one)
			}
		}
		return err
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
	Bytes   int64         // what these take, but for what is not measured yet (MeasureLater)
	Held    time.Duration // how long no other transaction could write
}

// PruneFor is Prune, but stops at an entry of the list, not before the second, when it has taken half of the
// time hold; 0: none. The other half is for writing what has changed, of which Pruned.Held tells.
func (s *Store) PruneFor(ctx context.Context, list []Doomed, hold time.Duration) (p Pruned, err error) {
	var sizes []Usage
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
				sizes = append(sizes, r.trashSize())
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

// Candidates gives the snapshots that can be pruned at the time now, when leases that are over then
// count no more, nor those with the name despite, "" for none, that have an end. It changes nothing.
func (m *ReadTx) Candidates(now time.Time, despite string) (*Candidates, error) {
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
	m       *ReadTx
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
// gives that too, after this one, in the order of use.
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
