package service

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
)

// TestTransfers: four exports whose clients took their time kept all others waiting. Who waits for a client has no place, and how
// many there are is bounded.
func TestTransfers(t *testing.T) {
	s := &Service{transfers: make(chan struct{}, maxTransfers), working: make(chan struct{}, maxWorking)}
	goOn, errs := make(chan struct{}), make(chan error, maxTransfers)
	waiting := make(chan struct{})
	for range maxTransfers - 1 {
		go func() {
			one, err := s.transfer(t.Context())
			if err == nil {
				err = one.client(t.Context(), func() error {
					waiting <- struct{}{}
					<-goOn
					return nil
				})
				one.end()
			}
			errs <- err
		}()
	}
	for range maxTransfers - 1 {
		<-waiting
	}
	last, err := s.transfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.transfer(t.Context()); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	close(goOn)
	for range maxTransfers - 1 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// One that has ended takes no place any more, though something still reads for it.
	failed := errors.New("failed")
	if err := last.client(t.Context(), func() error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	last.end()
	if err := last.client(t.Context(), func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(s.working) != 0 || len(s.transfers) != 0 {
		t.Errorf("%d places are taken, by %d", len(s.working), len(s.transfers))
	}
	for range maxWorking { // who waits for a place can give up
		s.working <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.transfer(ctx); err == nil || len(s.transfers) != 0 {
		t.Errorf("%v, and there are %d", err, len(s.transfers))
	}
}
