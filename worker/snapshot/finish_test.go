package snapshot_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// finishing has something to do after a commit, which ends when done is closed.
type finishing struct {
	*copy.Driver
	begun, done chan struct{}
}

func (finishing) Finished(snapshot.Layer) bool { return false }

func (f finishing) Finish(context.Context, snapshot.Layer) error {
	close(f.begun)
	<-f.done
	return nil
}

// Cleanup failed if the driver was still making the image of a snapshot that had been removed meanwhile: "its driver
// is still working on it". It waits for the driver, and what was removed besides does not.
func TestCleanupWaitsForDriver(t *testing.T) {
	root := t.TempDir()
	f := finishing{copy.New(), make(chan struct{}), make(chan struct{})}
	s := open(t, root, snapshot.Options{Driver: f})
	n := namespace(t, s, "t")
	layer(t, n, "finished", "")
	<-f.begun
	if _, err := n.Prepare(ctx, "besides", ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"finished", "besides"} {
		if err := n.Remove(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	cleaned := make(chan error)
	go func() { cleaned <- s.Cleanup(ctx) }()
	s.AwaitHeld(1)
	left := func(want int) {
		t.Helper()
		if there, err := os.ReadDir(filepath.Join(root, "snapshots")); err != nil || len(there) != want {
			t.Errorf("%d directories are there, not %d: %v", len(there), want, err)
		}
	}
	left(1)
	select {
	case err := <-cleaned:
		t.Errorf("Cleanup has returned before the driver: %v", err)
	default:
	}
	close(f.done)
	if err := <-cleaned; err != nil {
		t.Error(err)
	}
	left(0)
}
