package snapshot

import (
	"context"
	"sync"
)

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
