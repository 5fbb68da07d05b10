package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/overlay"
)

// writes gives the Fill that writes what layer has written, with another content if that is given.
func writes(name string, other ...string) snapshot.RepairOptions {
	return snapshot.RepairOptions{Fill: func(_ context.Context, mounts []mount.Mount) error {
		dir := mounts[0].Source
		for _, o := range mounts[0].Options { // of an overlay: as an import does
			if upper, ok := strings.CutPrefix(o, "upperdir="); ok {
				dir = upper
			}
		}
		return os.WriteFile(filepath.Join(dir, name), []byte(name+strings.Join(other, "")), 0o600)
	}}
}

// damaged makes the snapshots base, lower (on it), and upper (on that), of which lower is damaged.
func damaged(t *testing.T, root string, d snapshot.Driver) (*snapshot.Store, *snapshot.Namespace) {
	t.Helper()
	s := open(t, root, snapshot.Options{Driver: d, Digests: true})
	n := namespace(t, s, "t")
	parent := ""
	for _, name := range []string{"base", "lower", "upper"} {
		mounts, err := n.Prepare(ctx, "active", parent)
		if err == nil {
			err = errors.Join(writes(name).Fill(ctx, mounts), n.Commit(ctx, name, "active"))
		}
		if err != nil {
			t.Fatal(err)
		}
		parent = name
	}
	digested(t, s)
	flip(t, contentOf(t, n, "lower"))
	want(t, "verify", n.Verify(ctx, "lower"), snapshot.ErrDamaged)
	return s, n
}

// whole fails unless a snapshot has its content, and is marked as it should be, with nothing left beside it.
func whole(t *testing.T, s *snapshot.Store, n *snapshot.Namespace, name string, directories int) {
	t.Helper()
	if err := s.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.Verify(ctx, name); err != nil || stat(t, n, name).Damaged {
		t.Errorf("%s: %v", name, err)
	}
	if b, err := os.ReadFile(contentOf(t, n, name)); err != nil || string(b) != name {
		t.Errorf("%s has %q, %v", name, b, err)
	}
	for dir, want := range map[string]int{"snapshots": directories, "new": 0, "trash": 0} {
		if entries, err := os.ReadDir(filepath.Join(s.Root(), dir)); err != nil || len(entries) != want {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
	sound(t, s)
}

func TestRepair(t *testing.T) {
	for name, d := range map[string]snapshot.Driver{"copy": copy.New(), "overlay": overlay.New()} {
		t.Run(name, func(t *testing.T) {
			s, n := damaged(t, t.TempDir(), d)
			id := stat(t, n, "lower").ID
			if err := n.Repair(ctx, "lower", writes("lower")); err != nil {
				t.Fatal(err)
			}
			if got := stat(t, n, "lower"); got.ID != id || got.Damaged || got.Usage.Inodes == 0 {
				t.Errorf("%+v", got)
			}
			whole(t, s, n, "lower", 3)
			for _, other := range []string{"base", "upper"} {
				whole(t, s, n, other, 3)
			}
			if _, err := n.Prepare(ctx, "more", "upper"); err != nil {
				t.Errorf("on it: %v", err)
			}
		})
	}
}

// TestRepairMissing: the directory is not there at all.
func TestRepairMissing(t *testing.T) {
	s, n := damaged(t, t.TempDir(), overlay.New())
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(contentOf(t, n, "lower")))); err != nil {
		t.Fatal(err)
	}
	if err := n.Repair(ctx, "lower", writes("lower")); err != nil {
		t.Fatal(err)
	}
	whole(t, s, n, "lower", 3)
}

// TestRepairRefused: where it is refused, or fails, nothing changes.
func TestRepairRefused(t *testing.T) {
	s, n := damaged(t, t.TempDir(), copy.New())
	before := func() string {
		b, err := os.ReadFile(contentOf(t, n, "lower"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	bad := before()
	canceled, cancel := context.WithCancel(ctx)
	failing := errors.New("failing")
	try := func(what, name string, o snapshot.RepairOptions, expected error) {
		t.Helper()
		want(t, what, n.Repair(canceled, name, o), expected)
		if err := s.Cleanup(ctx); err != nil {
			t.Fatal(err)
		}
		if got := before(); got != bad || !stat(t, n, "lower").Damaged {
			t.Errorf("%s: the content is %q, and was %q", what, got, bad)
		}
		if entries, err := os.ReadDir(filepath.Join(s.Root(), "snapshots")); err != nil || len(entries) != 3 {
			t.Errorf("%s: there is %v, %v", what, entries, err)
		}
		sound(t, s)
	}
	try("other content", "lower", writes("lower", "more"), snapshot.ErrDamaged)
	try("a failure", "lower", snapshot.RepairOptions{Fill: func(context.Context, []mount.Mount) error { return failing }}, failing)
	forget := writes("lower")
	forget.Forget = func(_ context.Context, dir string) error {
		if id := stat(t, n, "lower").ID; filepath.Base(dir) != id.String() {
			t.Errorf("to forget: %s", dir)
		}
		return failing
	}
	try("what is mounted", "lower", forget, failing)
	flush := func() error { return unix.EIO }
	snapshot.SetSyncError(flush)
	try("a flush", "lower", writes("lower"), unix.EIO)
	snapshot.SetSyncError(nil)
	try("one without a name", "none", writes("lower"), snapshot.ErrNotFound)
	never := snapshot.RepairOptions{Fill: func(context.Context, []mount.Mount) error { t.Error("it was filled"); return nil }}
	if err := n.Repair(ctx, "base", never); err != nil {
		t.Errorf("one that is not damaged: %v", err)
	}
	ended := writes("lower")
	ended.Fill = func(ctx context.Context, _ []mount.Mount) error { cancel(); return ctx.Err() }
	try("a canceled one", "lower", ended, context.Canceled)
	canceled = ctx

	// A parent that is damaged comes first.
	flip(t, contentOf(t, n, "base"))
	want(t, "verify", n.Verify(ctx, "base"), snapshot.ErrDamaged)
	try("with a damaged parent", "lower", writes("lower"), snapshot.ErrDamaged)
	if err := n.Repair(ctx, "base", writes("base")); err != nil {
		t.Fatal(err)
	}
	if err := n.Repair(ctx, "lower", writes("lower")); err != nil {
		t.Fatal(err)
	}
	whole(t, s, n, "lower", 3)
}

// TestRepairInUse: what may be mounted stands on it, however far above.
func TestRepairInUse(t *testing.T) {
	s, n := damaged(t, t.TempDir(), overlay.New())
	if err := n.Repair(ctx, "lower", writes("lower")); err != nil {
		t.Fatal(err)
	}
	_, err1 := n.Prepare(ctx, "a step", "upper")
	_, err2 := n.View(ctx, "a base", "upper", snapshot.WithLabels(map[string]string{"base": "yes"}))
	_, err3 := n.View(ctx, "a look", "lower")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	flip(t, contentOf(t, n, "lower"))
	want(t, "verify", n.Verify(ctx, "lower"), snapshot.ErrDamaged)
	o := writes("lower")
	o.Unused = func(i snapshot.Info) bool {
		if i.Kind != snapshot.View {
			t.Errorf("asked about %v %q", i.Kind, i.Name)
		}
		return i.Labels["base"] != ""
	}
	for _, name := range []string{"a step", "a look"} {
		err := n.Repair(ctx, "lower", o)
		want(t, "in use", err, snapshot.ErrInUse)
		if _, err := os.Stat(contentOf(t, n, "lower")); err != nil || !stat(t, n, "lower").Damaged {
			t.Errorf("after it was refused: %v", err)
		}
		if err := n.Remove(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	without := writes("lower")
	want(t, "a view of which nothing is known", n.Repair(ctx, "lower", without), snapshot.ErrInUse)
	// One that comes while it is filled is seen, too: of a snapshot that was trusted meanwhile nothing is exchanged.
	fill := o.Fill
	o.Fill = func(ctx context.Context, mounts []mount.Mount) error {
		return errors.Join(fill(ctx, mounts), n.Trust(ctx, "lower"))
	}
	want(t, "trusted meanwhile", n.Repair(ctx, "lower", o), snapshot.ErrKind)
	digested(t, s)
	if b, err := os.ReadFile(contentOf(t, n, "lower")); err != nil || string(b) == "lower" {
		t.Errorf("it was exchanged: %q, %v", b, err)
	}
	sound(t, s)
}

// TestRepairUnsupported: of a driver that cannot.
func TestRepairUnsupported(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Driver: nothing{}})
	n := namespace(t, s, "t")
	_, err := n.Prepare(ctx, "active", "")
	if err := errors.Join(err, n.Commit(ctx, "one", "active")); err != nil {
		t.Fatal(err)
	}
	want(t, "repair", n.Repair(ctx, "one", writes("one")), snapshot.ErrUnsupported)
	s = open(t, t.TempDir(), snapshot.Options{})
	n = namespace(t, s, "t")
	layer(t, n, "one", "")
	want(t, "without a digest", n.Repair(ctx, "one", writes("one")), snapshot.ErrNoDigest)
}

// TestRepairFull: the transaction finds no room, and is tried a second time: directories that were exchanged are not
// exchanged back.
func TestRepairFull(t *testing.T) {
	root := t.TempDir()
	s, _ := damaged(t, root, copy.New())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, root, snapshot.Options{Driver: copy.New(), Full: func() bool { return true }})
	n := namespace(t, s, "t")
	attempts := 0
	snapshot.SetPointHook(func(step string) error {
		if step == "exchanged" {
			if attempts++; attempts == 1 {
				return unix.ENOSPC
			}
		}
		return nil
	})
	defer snapshot.SetPointHook(nil)
	if err := n.Repair(ctx, "lower", writes("lower")); err != nil {
		t.Fatal(err)
	}
	if attempts != 2 {
		t.Errorf("%d attempts", attempts)
	}
	whole(t, s, n, "lower", 3)
}

// repairRoot is the environment variable that makes this test binary one that is killed while it repairs.
const repairRoot = "SNAPSHOT_REPAIR_ROOT"

func repairVictim(root, at string) error {
	s, err := snapshot.Open(root, snapshot.Options{Driver: overlay.New()})
	if err != nil {
		return err
	}
	n, err := s.Namespace("t")
	if err != nil {
		return err
	}
	snapshot.SetPointHook(func(step string) error {
		if step == at {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return nil
	})
	return n.Repair(ctx, "lower", writes("lower"))
}

// TestRepairKilled: a process that is killed after each of the steps leaves the snapshot damaged and marked so, or
// repaired and marked, or repaired; nothing beside it; and a repair afterwards succeeds.
func TestRepairKilled(t *testing.T) {
	for _, step := range []string{"made", "filled", "exchanged", "entered"} {
		root := t.TempDir()
		s, n := damaged(t, root, overlay.New())
		bad, err := os.ReadFile(contentOf(t, n, "lower"))
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), repairRoot+"="+root, repairRoot+"_STEP="+step)
		if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
			t.Fatalf("%s: %v: %s", step, err, out)
		}
		s = open(t, root, snapshot.Options{Driver: overlay.New()})
		n = namespace(t, s, "t")
		report, err := s.Reconciled(ctx)
		if orphans := map[string]int{"made": 1, "filled": 1, "exchanged": 1, "entered": 1}[step]; err != nil || report.Orphans != orphans || len(report.Missing) > 0 {
			t.Errorf("%s: %+v, %v", step, report, err)
		}
		if err := s.Cleanup(ctx); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(contentOf(t, n, "lower"))
		state := fmt.Sprint(string(b) == string(bad), string(b) == "lower", stat(t, n, "lower").Damaged)
		if want := map[string]string{"made": "true false true", "filled": "true false true", "exchanged": "false true true", "entered": "false true false"}[step]; err != nil || state != want {
			t.Errorf("%s: it is %s, %v, and should be %s", step, state, err, want)
		}
		sound(t, s)
		filled := false
		o := writes("lower")
		fill := o.Fill
		o.Fill = func(ctx context.Context, mounts []mount.Mount) error {
			filled = true
			return fill(ctx, mounts)
		}
		if err := n.Repair(ctx, "lower", o); err != nil {
			t.Errorf("%s: afterwards: %v", step, err)
		}
		if filled != strings.HasPrefix(state, "true") {
			t.Errorf("%s: filled again: %v", step, filled)
		}
		whole(t, s, n, "lower", 3)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
