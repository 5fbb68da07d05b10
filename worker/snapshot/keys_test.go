package snapshot_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// TestKeysTouched: what an operation touches in the metadata does not depend on how many snapshots
// there are.
func TestKeysTouched(t *testing.T) {
	few := keysTouched(t, 10)
	many := keysTouched(t, 10000)
	if !maps.Equal(few, many) {
		t.Errorf("with 10 snapshots %v\nwith 10,000      %v", few, many)
	}
	for op, keys := range few {
		if keys == 0 || keys > 50 { // in all calls of it together
			t.Errorf("%s touches %d keys", op, keys)
		}
	}
	t.Log(few)
}

// keysTouched counts for each operation, in a store with n snapshots besides.
func keysTouched(t *testing.T, n int) map[string]int {
	var counting atomic.Bool
	var mu sync.Mutex
	touched := map[string]int{}
	observe := func(op string, keys int) {
		switch op {
		case "forget", "reserve", "unmeasured": // what the store does by itself, at any time
			return
		}
		if counting.Load() {
			mu.Lock()
			touched[op] += keys
			mu.Unlock()
		}
	}
	s := open(t, t.TempDir(), snapshot.Options{Durability: holdfast.None, Driver: nothing{}, Observe: observe})
	a := namespace(t, s, "t")
	layer := func(name, parent string) {
		t.Helper()
		if _, err := a.Prepare(ctx, name+" active", parent); err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(ctx, name, name+" active"); err != nil {
			t.Fatal(err)
		}
	}
	layer("base", "")
	for i := range n {
		parent := "base"
		if i%3 == 2 {
			parent = fmt.Sprint("child ", i-1)
		}
		layer(fmt.Sprint("child ", i), parent)
	}
	if err := s.Cleanup(ctx); err != nil { // what was reserved and is not of interest
		t.Fatal(err)
	}
	counting.Store(true)
	layer("child", "base")
	layer("grandchild", "child")
	if _, err := a.View(ctx, "view", "grandchild"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Mounts(ctx, "view"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stat(ctx, "child"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Update(ctx, snapshot.Info{Name: "child", Labels: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Usage(ctx, "child"); err != nil {
		t.Fatal(err)
	}
	var oldest snapshot.Candidate
	if err := s.Prunable(ctx, func(c snapshot.Candidate) bool { oldest = c; return false }); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.Prune(ctx, []snapshot.Doomed{{ID: oldest.ID, LastUsed: oldest.LastUsed}}); err != nil || len(removed) != 1 {
		t.Fatal(removed, err)
	}
	for _, err := range []error{a.Remove(ctx, "view"), a.Lease(ctx, "l", "grandchild", time.Hour), a.Release(ctx, "l", "grandchild"),
		a.Pin(ctx, "grandchild"), a.Unpin(ctx, "grandchild"), a.Touch(ctx, "grandchild"), a.Remove(ctx, "grandchild")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := a.Use(ctx, "child", "weak", time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Leased(ctx, "weak", func(snapshot.Info, snapshot.Held) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Totals(ctx); err != nil {
		t.Fatal(err)
	}
	counting.Store(false)
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(touched)
}

// nothing is a driver without content.
type nothing struct{}

func (nothing) Name() string                                 { return "nothing" }
func (nothing) Create(context.Context, snapshot.Tree) error  { return nil }
func (nothing) Commit(context.Context, snapshot.Tree) error  { return nil }
func (nothing) Remove(context.Context, snapshot.Layer) error { return nil }
func (nothing) Sync(context.Context, snapshot.Tree) error    { return nil }
func (nothing) Usage(context.Context, snapshot.Tree) (snapshot.Usage, error) {
	return snapshot.Usage{Size: 4096, Inodes: 1}, nil
}
func (nothing) Mounts(_ context.Context, t snapshot.Tree, _ bool) ([]mount.Mount, error) {
	return []mount.Mount{{Type: "bind", Source: t.Dir}}, nil
}
