package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// clones cannot remove what something was made from that is there, and fails once to remove what nothing was.
type clones struct {
	snapshot.Driver
	mu     sync.Mutex
	parent map[snapshot.ID]snapshot.ID
	failed bool
}

var errHasClones = errors.New("it has clones")

func (c *clones) Create(ctx context.Context, t snapshot.Tree) error {
	c.mu.Lock()
	c.parent[t.ID] = 0
	if len(t.Parents) > 0 {
		c.parent[t.ID] = t.Parents[0].ID
	}
	c.mu.Unlock()
	return c.Driver.Create(ctx, t)
}

func (c *clones) Remove(ctx context.Context, l snapshot.Layer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, parent := range c.parent {
		if parent == l.ID {
			return errHasClones
		}
	}
	if !c.failed {
		c.failed = true
		return errors.New("for the first time")
	}
	delete(c.parent, l.ID)
	return c.Driver.Remove(ctx, l)
}

// TestCleanupChain: when Cleanup returns, nothing is left that could not be deleted only since something else
// was still there.
func TestCleanupChain(t *testing.T) {
	c := &clones{Driver: copy.New(), parent: map[snapshot.ID]snapshot.ID{}}
	s := open(t, t.TempDir(), snapshot.Options{Driver: c})
	n := namespace(t, s, "t")
	const length = 8
	parent := ""
	for i := range length {
		name := fmt.Sprint(i)
		layer(t, n, name, parent)
		parent = name
	}
	for i := length - 1; i >= 0; i-- {
		if err := n.Remove(ctx, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Error(err)
	}
}

// held removes nothing before it is told to.
type held struct {
	snapshot.Driver
	begun, goOn chan struct{}
}

func (d *held) Remove(ctx context.Context, l snapshot.Layer) error {
	d.begun <- struct{}{}
	<-d.goOn
	return d.Driver.Remove(ctx, l)
}

// TestCleanupWhileClosing: it was nil, as if all were deleted, when the store was closed meanwhile and the rest had
// been left for the next time.
func TestCleanupWhileClosing(t *testing.T) {
	d := &held{Driver: copy.New(), begun: make(chan struct{}, 9), goOn: make(chan struct{})}
	s, err := snapshot.Open(t.TempDir(), snapshot.Options{Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	n := namespace(t, s, "t")
	for i := range 3 {
		layer(t, n, fmt.Sprint(i), "")
	}
	for i := range 3 {
		if err := n.Remove(ctx, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	cleaned, closed := make(chan error, 1), make(chan error, 1)
	go func() { cleaned <- s.Cleanup(ctx) }()
	<-d.begun
	go func() { closed <- s.Close() }()
	<-s.Closing()
	close(d.goOn)
	if err := <-cleaned; !errors.Is(err, snapshot.ErrClosed) {
		t.Errorf("Cleanup: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
