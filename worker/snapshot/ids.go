package snapshot

import (
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

// claim notes that an ID is somebody's; false if it is already.
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

// claimOrphan claims the ID of a directory that was found; false if somebody makes its snapshot. Until done, nobody
// gets it.
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

// giveBack returns the rest of a block when the store closes. Who still takes one has to reserve it anew.
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
