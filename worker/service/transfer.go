package service

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"
)

const (
	maxWorking   = 4  // imports, exports and comparisons that work at once: others wait
	maxTransfers = 64 // that there are, those included that wait for their clients: each takes room, or a mount
)

// transfer is an import, export or comparison. It works only while it has one of few places, which it gives to others while it
// waits for its client. One goroutine at a time calls client; end can be called beside it.
type transfer struct {
	s *Service

	mu      sync.Mutex // a decompressor may read in a goroutine of its own
	working bool
	ended   bool
}

// transfer begins one, and waits for its turn.
func (s *Service) transfer(ctx context.Context) (*transfer, error) {
	select {
	case s.transfers <- struct{}{}:
	default:
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("too many imports, exports and comparisons at once"))
	}
	t := &transfer{s: s}
	if err := t.begin(ctx); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

func (t *transfer) begin(ctx context.Context) error {
	select {
	case t.s.working <- struct{}{}:
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.ended {
			<-t.s.working
			return context.Canceled
		}
		t.working = true
		return nil
	case <-ctx.Done():
		return coded(ctx.Err())
	}
}

func (t *transfer) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.working {
		<-t.s.working
		t.working = false
	}
}

func (t *transfer) end() {
	t.pause()
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	<-t.s.transfers
}

// client does what waits for the client.
func (t *transfer) client(ctx context.Context, do func() error) error {
	t.pause()
	if err := do(); err != nil {
		return err
	}
	return t.begin(ctx)
}
