//go:build unix

package snapshot_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast"
	"holdfast/worker/snapshot"
)

// TestStress: twenty clients of one namespace, whose snapshots are not pruned, while the snapshots of
// another are made and pruned.
func TestStress(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{Durability: holdfast.Periodic})
	client, err := s.ClientNamespace("client")
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	var mu sync.Mutex
	all := map[string]map[string]crashed{}
	steps := 0
	say := func(stage string, op crashOp) error {
		mu.Lock()
		defer mu.Unlock()
		if all[owner(op.name)] == nil {
			all[owner(op.name)] = map[string]crashed{}
		}
		if stage == "done" {
			apply(all[owner(op.name)], op)
			return nil
		}
		if steps++; steps > 3000 {
			return enough
		}
		return nil
	}
	var clients, pruner sync.WaitGroup
	for w := range 20 {
		clients.Go(func() {
			if err := work(client, fmt.Sprintf("%d-0", w), say); !errors.Is(err, enough) {
				t.Error(err)
			}
		})
	}
	var stop atomic.Bool
	pruned := 0
	pruner.Go(func() {
		n := namespace(t, s, "ours")
		parent := ""
		for i := 0; !stop.Load() || i < 200; i++ {
			name := fmt.Sprint("layer ", i)
			layer(t, n, name, parent)
			if parent = name; i%10 != 9 {
				continue
			}
			parent = ""
			removed, err := pruneSome(s, 8)
			if err != nil {
				t.Error(err)
				return
			}
			pruned += len(removed)
		}
	})
	clients.Wait()
	stop.Store(true)
	pruner.Wait()
	if pruned < 100 {
		t.Errorf("only %d were pruned", pruned)
	}
	found := map[string]map[string]crashed{}
	ids := map[string]snapshot.ID{}
	if err := client.Walk(ctx, func(i snapshot.Info) error {
		w := owner(i.Name)
		if found[w] == nil {
			found[w] = map[string]crashed{}
		}
		found[w][i.Name], ids[i.Name] = crashed{committed: i.Kind == snapshot.Committed, parent: i.Parent}, i.ID
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for w := range all {
		if len(all[w])+len(found[w]) > 0 && !maps.Equal(all[w], found[w]) {
			t.Errorf("client %s has %v, and should have %v", w, found[w], all[w])
		}
	}
	for { // all of the other namespace
		removed, err := pruneSome(s, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(removed) == 0 {
			break
		}
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	sound(t, s)
	lookAtTrees(t, root, found, ids)
}

// pruneSome removes some that were not used for the longest time.
func pruneSome(s *snapshot.Store, most int) ([]snapshot.ID, error) {
	var list []snapshot.Doomed
	err := s.Prunable(ctx, func(c snapshot.Candidate) bool {
		list = append(list, snapshot.Doomed{ID: c.ID, LastUsed: c.LastUsed})
		return len(list) < most
	})
	if err != nil {
		return nil, err
	}
	return s.Prune(ctx, list)
}
