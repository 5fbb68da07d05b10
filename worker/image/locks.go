package image

import (
	"context"
	"sync"

	"holdfast/worker/snapshot"
)

// lockName is a snapshot that only one import makes at a time. Other processes cannot have the store.
type lockName struct {
	store     *snapshot.Store
	namespace string
	key       string
}

// locks are those of any number of names.
type locks struct {
	mu    sync.Mutex
	taken map[lockName]chan struct{} // closed when it is free
}

var importLocks = locks{taken: map[lockName]chan struct{}{}}

// try takes a lock, if it is free; otherwise end is nil, and busy is closed when it is.
func (s *locks) try(t lockName) (end func(), busy <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if busy, ok := s.taken[t]; ok {
		return nil, busy
	}
	free := make(chan struct{})
	s.taken[t] = free
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.taken, t)
		close(free)
	}, nil
}

func (s *locks) lock(ctx context.Context, t lockName) (end func(), err error) {
	for {
		end, busy := s.try(t)
		if end != nil {
			return end, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-busy:
		}
	}
}
