//go:build unix

package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// putBack makes a store with a snapshot old and, after a backup of its metadata, younger ones. It returns both
// metadata, of which the older is in place, and the IDs of the younger snapshots.
func putBack(t *testing.T, root string, younger int) (older, newer []byte, ids []snapshot.ID) {
	t.Helper()
	metadata := filepath.Join(root, "metadata.db")
	s := open(t, root, snapshot.Options{})
	layer(t, namespace(t, s, "t"), "old", "")
	older = closed(t, s, metadata)
	s = open(t, root, snapshot.Options{})
	n := namespace(t, s, "t")
	for i := range younger {
		name := fmt.Sprint("younger ", i)
		layer(t, n, name, "old")
		ids = append(ids, stat(t, n, name).ID)
	}
	newer = closed(t, s, metadata)
	if err := os.WriteFile(metadata, older, 0o600); err != nil {
		t.Fatal(err)
	}
	return older, newer, ids
}

// closed closes a store and returns its metadata.
func closed(t *testing.T, s *snapshot.Store, metadata string) []byte {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(metadata)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reconciled is the report of a store.
func reconciled(t *testing.T, s *snapshot.Store) snapshot.Report {
	t.Helper()
	report, err := s.Reconciled(ctx)
	if err := errors.Join(err, s.Cleanup(ctx)); err != nil {
		t.Fatal(err)
	}
	return report
}

// TestOlderMetadata: an older metadata.db was put back, and opening deleted every snapshot that was younger than it,
// without a word. Before that, Prepare failed on each of their IDs, and deleted a new snapshot as an orphan.
func TestOlderMetadata(t *testing.T) {
	root := t.TempDir()
	const younger = 200
	_, newer, ids := putBack(t, root, younger)

	s := open(t, root, snapshot.Options{})
	n := namespace(t, s, "t")
	for i := range younger { // while the others are looked for
		layer(t, n, fmt.Sprint("new ", i), "old")
	}
	report := reconciled(t, s)
	if !slices.Equal(report.Quarantined, ids) || report.Orphans > 0 {
		t.Errorf("%d orphans, in quarantine %v, and not %v", report.Orphans, report.Quarantined, ids)
	}
	for i, id := range ids {
		file := fmt.Sprint("younger ", i)
		if b, err := os.ReadFile(filepath.Join(root, "quarantine", id.String(), "fs", file)); string(b) != file {
			t.Errorf("%v: %q, %v", id, b, err)
		}
	}
	for i := range younger {
		name := fmt.Sprint("new ", i)
		if b, err := os.ReadFile(contentOf(t, n, name)); string(b) != name {
			t.Errorf("content of %q: %q, %v", name, b, err)
		}
		if id := stat(t, n, name).ID; slices.Contains(ids, id) {
			t.Errorf("%q has the ID %v of another snapshot", name, id)
		}
	}
	sound(t, s)
	forked := []snapshot.ID{}
	for i := range younger {
		forked = append(forked, stat(t, n, fmt.Sprint("new ", i)).ID)
	}
	slices.Sort(forked)

	// The right metadata come back: so do the snapshots, and what the wrong ones have made is kept in turn.
	if err := errors.Join(s.Close(), os.WriteFile(filepath.Join(root, "metadata.db"), newer, 0o600)); err != nil {
		t.Fatal(err)
	}
	s = open(t, root, snapshot.Options{})
	n = namespace(t, s, "t")
	report = reconciled(t, s)
	if len(report.Returned) != younger || len(report.Missing) > 0 || !slices.Equal(report.Quarantined, forked) {
		t.Errorf("%+v; %v should be in quarantine", report, forked)
	}
	for i := range younger {
		name := fmt.Sprint("younger ", i)
		if b, err := os.ReadFile(contentOf(t, n, name)); string(b) != name {
			t.Errorf("content of %q: %q, %v", name, b, err)
		}
	}
	sound(t, s)
}

// TestRemoveQuarantined: what is in quarantine stays until it is removed, and its ID is nobody else's until then.
func TestRemoveQuarantined(t *testing.T) {
	root := t.TempDir()
	_, _, ids := putBack(t, root, 3)
	for range 2 {
		s := open(t, root, snapshot.Options{})
		list, err := s.Quarantined(ctx)
		if err != nil || len(list) != 3 || list[0].ID != ids[0] || list[0].Usage.Inodes < 3 || list[0].Modified.IsZero() {
			t.Fatalf("%+v, %v", list, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, root, snapshot.Options{})
	want(t, "of none", s.RemoveQuarantined(ctx, ids[0], 999), snapshot.ErrNotFound)
	want(t, "of a snapshot", s.RemoveQuarantined(ctx, stat(t, namespace(t, s, "t"), "old").ID), snapshot.ErrNotFound)
	reconciled(t, s)
	for i, id := range ids {
		if _, err := os.Lstat(filepath.Join(root, "quarantine", id.String())); errors.Is(err, os.ErrNotExist) != (i == 0) {
			t.Errorf("%v: %v", id, err)
		}
	}
	if err := s.RemoveQuarantined(ctx, ids[1:]...); err != nil {
		t.Fatal(err)
	}
	reconciled(t, s)
	for _, dir := range []string{"quarantine", "trash"} {
		if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
	if list, err := s.Quarantined(ctx); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	sound(t, s)
}

// TestMarks: with each durability the mark of a new directory goes, at the latest when the store is closed; that of a
// directory whose process was killed before goes with the next Open, so that an older metadata.db does not have it
// deleted.
func TestMarks(t *testing.T) {
	for _, d := range []holdfast.Durability{holdfast.Full, holdfast.Periodic, holdfast.None} {
		root := t.TempDir()
		s := open(t, root, snapshot.Options{Durability: d})
		layer(t, namespace(t, s, "t"), "one", "")
		id := stat(t, namespace(t, s, "t"), "one").ID
		dir := filepath.Join(root, "snapshots", id.String())
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		marked := func(when string, want bool) {
			t.Helper()
			info, err := os.Lstat(dir)
			if err != nil || (info.Mode()&os.ModeSticky != 0) != want || info.Mode().Perm() != 0o700 {
				t.Errorf("durability %v, %s: %v, %v", d, when, info.Mode(), err)
			}
		}
		marked("closed", false)
		if err := os.Chmod(dir, 0o700|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		marked("killed", true)
		reconciled(t, open(t, root, snapshot.Options{Durability: d}))
		marked("opened again", false)
	}
}

// pointRoot is the environment variable that makes this test binary one that is killed at a point.
const pointRoot = "SNAPSHOT_POINT_ROOT"

// pointVictim makes a snapshot, or removes what is in quarantine, and is killed when it has come to a point.
func pointVictim(root, at, what string) error {
	snapshot.SetPointHook(func(point string) error {
		if point == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	o := snapshot.Options{Driver: copy.New()}
	if what == "periodic" {
		o.Durability = holdfast.Periodic
	}
	s, err := snapshot.Open(root, o)
	if err != nil {
		return err
	}
	report, err := s.Reconciled(ctx)
	if err != nil {
		return err
	}
	if what == "remove" {
		return s.RemoveQuarantined(ctx, report.Quarantined...)
	}
	n, err := s.Namespace("t")
	if err == nil {
		_, err = n.Prepare(ctx, "active", "old")
	}
	return err
}

func killedAt(t *testing.T, root, point, what string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pointRoot+"="+root, pointRoot+"_POINT="+point, pointRoot+"_WHAT="+what)
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() >= 0 {
		t.Fatalf("%s: %v: %s", point, err, out)
	}
}

// TestKilledWhileMaking: what a process leaves that is killed at any point of making a snapshot is deleted when the
// store is opened, or is the snapshot; none of it is kept in quarantine, where it would stay for ever.
func TestKilledWhileMaking(t *testing.T) {
	for _, durability := range []string{"full", "periodic"} {
		for _, point := range []string{"directory", "content", "in place", "recorded"} {
			root := t.TempDir()
			s := open(t, root, snapshot.Options{})
			layer(t, namespace(t, s, "t"), "old", "")
			older := closed(t, s, filepath.Join(root, "metadata.db"))
			killedAt(t, root, point, durability)

			if point == "recorded" { // by the metadata of then it was not
				if err := os.WriteFile(filepath.Join(root, "metadata.db"), older, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s = open(t, root, snapshot.Options{})
			if r := reconciled(t, s); r.Orphans != 1 || len(r.Quarantined)+len(r.Missing)+len(r.Strange) > 0 {
				t.Errorf("%s, killed at %q: %+v", durability, point, r)
			}
			for dir, want := range map[string]int{"snapshots": 1, "new": 0, "trash": 0} {
				if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) != want {
					t.Errorf("%s, killed at %q: in %s %v, %v", durability, point, dir, left, err)
				}
			}
			sound(t, s)
		}
	}
}

// TestKilledWithQuarantine: a process that is killed while it puts directories into quarantine, or deletes them, leaves
// each of them whole in one of two places, or on its way out.
func TestKilledWithQuarantine(t *testing.T) {
	for _, point := range []string{"found", "quarantined", "condemned"} {
		root := t.TempDir()
		_, _, ids := putBack(t, root, 3)
		if point == "condemned" {
			killedAt(t, root, point, "remove")
			ids = ids[1:]
		} else {
			killedAt(t, root, point, "full")
		}
		s := open(t, root, snapshot.Options{})
		if r := reconciled(t, s); !slices.Equal(r.Quarantined, ids) || len(r.Missing)+len(r.Strange) > 0 {
			t.Errorf("killed at %q: %+v", point, r)
		}
		for _, id := range ids {
			entries, err := os.ReadDir(filepath.Join(root, "quarantine", id.String(), "fs"))
			if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "younger") }) {
				t.Errorf("killed at %q: %v has %v, %v", point, id, entries, err)
			}
		}
		if left, err := os.ReadDir(filepath.Join(root, "trash")); err != nil || len(left) > 0 {
			t.Errorf("killed at %q: in trash %v, %v", point, left, err)
		}
		sound(t, s)
	}
}
