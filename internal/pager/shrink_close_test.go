package pager_test

import (
	"errors"
	"testing"
	"time"

	"holdfast/internal/pager"
)

// Close waited for a reader while Shrink was between two pieces. Shrink went on, retired a
// state, which takes a lock then that Shrink held: both waited for ever.
func TestCloseBetweenPieces(t *testing.T) {
	g := newGate(t, pager.Options{PlainDelay: -1})
	g.letAll()
	g.PlaceLow(true)
	g.mustCommit("long", 16<<20/pageSize)
	for range 4 {
		g.mustCommit("short", 1)
	}
	if err := g.lowered("low").Finish(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		g.mustCommit("short", 1)
	}
	old, err := g.Begin()
	if err != nil {
		t.Fatal(err)
	}
	g.mustCommit("newer", 1)
	closed, waits := make(chan error, 1), make(chan struct{})
	shrunk := make(chan error, 1)
	go func() {
		first := true
		_, err := g.Shrink(func() error {
			if first {
				go func() { closed <- g.Close(pager.CloseOptions{}) }()
				for !g.Closing() {
					time.Sleep(time.Millisecond)
				}
				close(waits)
				time.Sleep(10 * time.Millisecond) // Close waits for the reader by now
			}
			first = false
			return nil
		})
		shrunk <- err
	}()
	<-waits
	if err := <-shrunk; !errors.Is(err, pager.ErrDatabaseNotOpen) {
		t.Errorf("Shrink: %v", err)
	}
	old.Release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
