package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
)

// ids gives out IDs. They are reserved in blocks, so that a directory can have its ID before
// there is a transaction.
type ids struct {
	mu          sync.Mutex
	next, limit ID
	making      map[ID]struct{} // no transaction names them: they were given out, or are an orphan's that is being deleted
}

// idBlock is how many IDs are reserved at a time. A crash wastes what is left of a block.
const idBlock = 1024

// take gives an ID whose snapshot is going to be made; done or giveBack ends that.
func (n *ids) take(s *Store) (ID, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if n.next == n.limit {
			limit := n.limit + idBlock
			if err := s.reserve(limit); err != nil {
				return 0, fmt.Errorf("reserve IDs: %w", err)
			}
			n.limit = limit
		}
		id := n.next
		n.next++
		if n.claim(id) {
			return id, nil
		}
	}
}

// claim notes that an ID is in use; false if it is already.
func (n *ids) claim(id ID) bool {
	if _, taken := n.making[id]; taken {
		return false
	}
	if n.making == nil {
		n.making = map[ID]struct{}{}
	}
	n.making[id] = struct{}{}
	return true
}

// claimOrphan claims the ID of a directory that was found; false if its snapshot is being made. Until done, it is
// not given.
func (n *ids) claimOrphan(id ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.claim(id)
}

// done says that the directory of an ID has a record, or is gone.
func (n *ids) done(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.making, id)
}

// upcoming is the next ID that is given: those of all snapshots that were begun are less.
func (n *ids) upcoming() ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next
}

// giveBack returns the rest of a block when the store closes. A caller that still takes one has to reserve it anew.
func (n *ids) giveBack(s *Store) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.limit {
		return nil
	}
	err := s.reserve(n.next)
	if err == nil {
		n.limit = n.next
	}
	return err
}

// reserve stores, durably, that IDs below limit may be in use.
func (s *Store) reserve(limit ID) error {
	err := s.update("reserve", func(t *txn) error {
		return t.put(inMeta, keyIDs, binary.BigEndian.AppendUint64(nil, uint64(limit)))
	})
	if err != nil {
		return err
	}
	return s.durable()
}

// busy are the snapshots with which a driver is at work: one call at a time for each.
type busy struct {
	mu  sync.Mutex
	ids map[ID]chan struct{} // closed when the work is done
}

// try takes a snapshot, unless it is taken.
func (b *busy) try(id ID) (taken bool, done <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.ids[id]; ok {
		return false, c
	}
	if b.ids == nil {
		b.ids = map[ID]chan struct{}{}
	}
	b.ids[id] = make(chan struct{})
	return true, nil
}

// take waits until the snapshot is not taken, and takes it.
func (b *busy) take(ctx context.Context, id ID) error {
	for {
		taken, done := b.try(id)
		if taken {
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *busy) release(id ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ids[id])
	delete(b.ids, id)
}
