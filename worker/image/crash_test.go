package image_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/drivertest"
)

// crashRoot is the environment variable that makes this test binary the victim.
const crashRoot = "BASE_CRASH_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(crashRoot); root != "" {
		if err := victim(root, os.Getenv(crashRoot+"_IMAGES")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(drivertest.Main(m))
}

func crashOptions() snapshot.Options {
	o := snapshot.Options{Driver: copydriver.New()}
	if os.Geteuid() == 0 { // whiteouts and marks
		o.Driver = overlay.New()
	}
	return o
}

// victim imports two images in turn under one name, and removes all that is not needed in between, until it
// is killed. It says how often it has imported.
func victim(root, images string) error {
	s, err := snapshot.Open(root, crashOptions())
	if err != nil {
		return err
	}
	namespace, err := s.Namespace("local")
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if _, err := image.Import(ctx, namespace, images, image.Options{Ref: fmt.Sprint(i % 2), Name: "base", Replace: true}); err != nil {
			return err
		}
		if err := s.Prunable(ctx, func(c snapshot.Candidate) bool {
			_, err = s.Prune(ctx, []snapshot.Doomed{{ID: c.ID, LastUsed: c.LastUsed}})
			return err == nil
		}); err != nil {
			return err
		}
		if _, err := fmt.Println("imported", i); err != nil {
			return err
		}
	}
}

// TestKill kills a process that imports, and looks at what it has left: what is committed has its content, the name
// leads to one of two images once it was given, nothing else is there, and an import succeeds.
func TestKill(t *testing.T) {
	const rounds = 24
	images := newLayout(t)
	layers := rich(t)
	images.add(images.image(nil, layers...), "0")
	images.add(images.image(nil, layers[0], gz(archive(t, file("other", long(100_000)), file(".wh.gone", "")))), "1")

	// What each layer shows when nothing is killed.
	wantOf := map[string]map[string]string{}
	quiet := store(t, t.TempDir(), crashOptions().Driver)
	tops := map[string]bool{}
	for _, ref := range []string{"0", "1"} {
		r, err := image.Import(ctx, quiet, images.dir, image.Options{Ref: ref})
		must(t, err)
		tops[r.Snapshot] = true
		for _, l := range r.Layers {
			if wantOf[l.Snapshot] == nil {
				wantOf[l.Snapshot] = unlinked(see(t, quiet, l.Snapshot))
			}
		}
	}

	root := t.TempDir()
	t.Cleanup(func() { writable(root) })
	named, interrupted := false, 0
	for round := range rounds {
		if killedWhileImporting(t, root, round, images.dir) > 0 {
			named = true
		}
		s, err := openAgain(root, crashOptions())
		must(t, err)
		namespace, err := s.Namespace("local")
		must(t, err)
		report, err := s.Reconciled(ctx)
		must(t, err)
		if len(report.Missing)+len(report.Strange) > 0 {
			t.Errorf("round %d: %+v", round, report)
		}
		interrupted += report.Orphans
		info, err := image.Resolve(ctx, namespace, "base")
		if err == nil && !tops[info.Name] || err != nil && (named || !errors.Is(err, snapshot.ErrNotFound)) {
			t.Errorf("round %d: the name leads to %q, %v", round, info.Name, err)
		}
		named = named || err == nil
		var committed []string
		must(t, namespace.Walk(ctx, func(i snapshot.Info) error {
			switch {
			case i.Kind == snapshot.Committed && wantOf[i.Name] != nil:
				committed = append(committed, i.Name)
			case i.Kind == snapshot.Active && strings.HasPrefix(i.Name, "importing sha256:"):
				interrupted++
			case i.Kind != snapshot.View || i.Name != "base":
				t.Errorf("round %d: there is %v %q", round, i.Kind, i.Name)
			}
			return nil
		}))
		for _, name := range committed {
			drivertest.Equal(t, fmt.Sprintf("round %d, %s", round, name), unlinked(see(t, namespace, name)), wantOf[name])
		}
		for _, ref := range []string{"0", "1"} {
			r, err := image.Import(ctx, namespace, images.dir, image.Options{Ref: ref})
			if err != nil {
				t.Fatalf("round %d: import afterwards: %v", round, err)
			}
			drivertest.Equal(t, fmt.Sprintf("round %d, again", round), unlinked(see(t, namespace, r.Snapshot)), wantOf[r.Snapshot])
		}
		must(t, s.Cleanup(ctx))
		noOrphans(t, s, namespace, round)
		if round%2 == 0 { // and another time with what is there
			must(t, removeAll(namespace))
			named = false
		}
		must(t, s.Close())
	}
	if interrupted == 0 {
		t.Error("no import was interrupted")
	}
	t.Logf("%d imports were interrupted", interrupted)
}

// openAgain opens a store whose lock a process may still hold that is being killed.
func openAgain(root string, o snapshot.Options) (s *snapshot.Store, err error) {
	for range 100 {
		if s, err = snapshot.Open(root, o); !errors.Is(err, snapshot.ErrLocked) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return s, err
}

// killedWhileImporting has a process import, kills it after a random time, and tells how many imports it has ended.
func killedWhileImporting(t *testing.T, root string, round int, images string) (ended int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashRoot+"="+root, crashRoot+"_IMAGES="+images)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for wait := rand.IntN(4); ended < wait && lines.Scan(); ended++ {
	}
	time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond)
	must(t, cmd.Process.Kill())
	for lines.Scan() {
		ended++
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil && errs.Len() > 0 {
		t.Fatalf("round %d: %s", round, errs.String())
	}
	return ended
}

// noOrphans fails if there is a directory that no record names, or a record without a directory.
func noOrphans(t *testing.T, s *snapshot.Store, namespace *snapshot.Namespace, round int) {
	t.Helper()
	known := map[string]bool{}
	must(t, namespace.Walk(ctx, func(i snapshot.Info) error {
		known[i.ID.String()] = true
		return nil
	}))
	for _, dir := range []string{"snapshots", "new", "trash"} {
		entries, err := os.ReadDir(filepath.Join(s.Root(), dir))
		must(t, err)
		for _, e := range entries {
			if dir != "snapshots" || !known[e.Name()] {
				t.Errorf("round %d: there is %s/%s", round, dir, e.Name())
			}
			delete(known, e.Name())
		}
	}
	if len(known) > 0 {
		t.Errorf("round %d: without a directory: %v", round, known)
	}
	problems, err := s.Check(ctx)
	if err != nil || len(problems) > 0 {
		t.Errorf("round %d: %v, %v", round, problems, err)
	}
}

// removeAll removes the snapshots of a namespace, children first, leases and all.
func removeAll(namespace *snapshot.Namespace) error {
	for {
		var all []snapshot.Info
		err := namespace.Walk(ctx, func(i snapshot.Info) error {
			all = append(all, i)
			return nil
		})
		if err != nil || len(all) == 0 {
			return err
		}
		for _, i := range all {
			held, err := namespace.Leases(ctx, i.Name)
			if err != nil {
				return err
			}
			for _, h := range held {
				if err := namespace.Release(ctx, h.Lease, i.Name); err != nil {
					return err
				}
			}
			if err := namespace.Remove(ctx, i.Name); err != nil && !errors.Is(err, snapshot.ErrInUse) {
				return err
			}
		}
	}
}
