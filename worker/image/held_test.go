package image_test

import (
	"sync/atomic"
	"testing"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

// TestHeldAtOnce: between the commit of a layer and its lease pruning took it away, and the import failed; and one that
// was killed there left a layer that nothing held.
func TestHeldAtOnce(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() { writable(root) })
	var s *snapshot.Store
	var commits atomic.Int32
	s, err := snapshot.Open(root, snapshot.Options{Driver: copydriver.New(), Observe: func(op string, _ int) {
		if op != "commit" {
			return
		}
		commits.Add(1)
		must(t, s.Prunable(ctx, func(c snapshot.Candidate) bool {
			if _, err := s.Prune(ctx, []snapshot.Doomed{{ID: c.ID, LastUsed: c.LastUsed}}); err != nil {
				t.Error(err)
			}
			t.Errorf("%q could be pruned", c.Name)
			return true
		}))
	}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	namespace, err := s.Namespace("local")
	must(t, err)
	if _, err := image.Import(ctx, namespace, simple(t, rich(t)...).dir, image.Options{Name: "x"}); err != nil {
		t.Error(err)
	}
	if commits.Load() < 3 {
		t.Errorf("%d commits were seen", commits.Load())
	}
}
