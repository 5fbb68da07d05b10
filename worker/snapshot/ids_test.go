package snapshot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// TestPrepareWhileClosing: IDs that were given back when the store began to close were given out once more by a Prepare
// that came in between. After opening a second snapshot got the same ID, its Prepare failed, and
// the directory of the first one was deleted.
func TestPrepareWhileClosing(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{})
	layer(t, namespace(t, s, "t"), "before", "")
	if err := s.GiveBackIDs(); err != nil {
		t.Fatal(err)
	}
	layer(t, namespace(t, s, "t"), "late", "")
	s.Crash()

	s = open(t, root, snapshot.Options{})
	n := namespace(t, s, "t")
	for i := range 3 {
		layer(t, n, fmt.Sprint("after ", i), "")
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	seen := map[snapshot.ID]string{}
	for _, name := range []string{"before", "late", "after 0", "after 1", "after 2"} {
		info, err := n.Stat(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[info.ID]; other != "" {
			t.Errorf("%q and %q have the ID %v", other, name, info.ID)
		}
		seen[info.ID] = name
		if b, err := os.ReadFile(filepath.Join(root, "snapshots", info.ID.String(), "fs", name)); string(b) != name {
			t.Errorf("content of %q: %q, %v", name, b, err)
		}
	}
	sound(t, s)
}

// TestEmptyMetadata: a metadata.db without anything in it, as a copy of a backup leaves that found the disk full, was
// taken for that of a new store, and all snapshots were deleted as orphans.
func TestEmptyMetadata(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{})
	layer(t, namespace(t, s, "t"), "one", "")
	info, err := namespace(t, s, "t").Stat(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(root, "metadata.db"), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first makes a file that is no longer empty
		s, err = snapshot.Open(root, snapshot.Options{Driver: copy.New()})
		if err == nil {
			if _, err := s.Reconciled(ctx); err != nil {
				t.Error(err)
			}
			if err := s.Cleanup(ctx); err != nil {
				t.Error(err)
			}
			_ = s.Close()
			t.Error("it was opened")
		} else {
			want(t, "open", err, snapshot.ErrNoMetadata)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "snapshots", info.ID.String(), "fs", "one")); err != nil {
		t.Error(err)
	}
}

// TestOrphanOfNextID: the ID of an orphan that waits to be deleted was given out, and with the orphan the new snapshot
// was deleted.
func TestOrphanOfNextID(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "first", "")
	if _, err := s.Reconciled(ctx); err != nil {
		t.Fatal(err)
	}
	for id := stat(t, n, "first").ID + 1; id < 20; id++ {
		if err := os.MkdirAll(filepath.Join(root, "trash", id.String(), "fs"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.LookAround(); err != nil {
		t.Fatal(err)
	}
	layer(t, n, "second", "")
	if err := s.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(contentOf(t, n, "second")); string(b) != "second" {
		t.Errorf("content: %q, %v", b, err)
	}
	sound(t, s)
}
