// Package keylock has locks for any number of keys.
package keylock

import (
	"context"
	"sync"
)

// Locks are those of keys. The zero value is ready; it must not be copied after its first use.
type Locks[K comparable] struct {
	mu    sync.Mutex
	taken map[K]chan struct{} // closed when it is free
}

// Try takes the lock of a key, if it is free; otherwise end is nil, and busy is closed when it is.
func (l *Locks[K]) Try(key K) (end func(), busy <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if busy, ok := l.taken[key]; ok {
		return nil, busy
	}
	if l.taken == nil {
		l.taken = map[K]chan struct{}{}
	}
	free := make(chan struct{})
	l.taken[key] = free
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.taken, key)
		close(free)
	}, nil
}

// Lock takes the lock of a key, and waits for it until ctx ends. end gives it back, and is called once.
func (l *Locks[K]) Lock(ctx context.Context, key K) (end func(), err error) {
	for {
		end, busy := l.Try(key)
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
