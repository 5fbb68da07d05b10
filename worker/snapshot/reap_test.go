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
	n := tenant(t, s, "t")
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
