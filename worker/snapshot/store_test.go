package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

var ctx = context.Background()

func open(t testing.TB, root string, o snapshot.Options) *snapshot.Store {
	t.Helper()
	if o.Driver == nil {
		o.Driver = copy.New()
	}
	s, err := snapshot.Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A driver that does not work in a directory left the directories of a store there.
func TestNothingOfRefusedDriver(t *testing.T) {
	root := t.TempDir()
	if _, err := snapshot.Open(root, snapshot.Options{Driver: refusing{copy.New()}}); !errors.Is(err, snapshot.ErrUnsupported) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 || left[0].Name() != "lock" {
		t.Errorf("%v %v", left, err)
	}
	open(t, root, snapshot.Options{})
}

type refusing struct{ *copy.Driver }

func (refusing) Probe(string) error { return snapshot.ErrUnsupported }

func namespace(t testing.TB, s *snapshot.Store, name string) *snapshot.Namespace {
	t.Helper()
	n, err := s.Namespace(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// layer makes a committed snapshot with a file of its own name.
func layer(t testing.TB, n *snapshot.Namespace, name, parent string, options ...snapshot.Option) {
	t.Helper()
	mounts, err := n.Prepare(ctx, name+" active", parent)
	if err == nil {
		file := filepath.Join(mounts[0].Source, strings.ReplaceAll(name[:min(len(name), 100)], "/", "_"))
		err = os.WriteFile(file, []byte(name), 0o600)
	}
	if err == nil {
		err = n.Commit(ctx, name, name+" active", options...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, and should be %v", what, got, want)
	}
}

func sound(t testing.TB, s *snapshot.Store) {
	t.Helper()
	problems, err := s.Check(ctx)
	if err != nil || len(problems) > 0 {
		t.Errorf("check: %v, %v", problems, err)
	}
}

func TestTwoProcesses(t *testing.T) {
	root := t.TempDir()
	open(t, root, snapshot.Options{})
	_, err := snapshot.Open(root, snapshot.Options{Driver: copy.New()})
	want(t, "a second one", err, snapshot.ErrLocked)
	if err != nil && !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("it does not name the holder: %v", err)
	}
}

// renamed is a driver under another name.
type renamed struct{ snapshot.Driver }

func (renamed) Name() string { return "other" }

func TestOpenRefuses(t *testing.T) {
	root := t.TempDir()
	_, err := snapshot.Open(root, snapshot.Options{})
	want(t, "no driver", err, snapshot.ErrInvalid)
	s := open(t, root, snapshot.Options{})
	layer(t, namespace(t, s, "t"), "a", "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = snapshot.Open(root, snapshot.Options{Driver: renamed{copy.New()}})
	want(t, "another driver", err, snapshot.ErrOtherDriver)
	metadata := filepath.Join(root, "metadata.db")
	if info, err := os.Stat(metadata); err != nil || info.Mode() != 0o600 {
		t.Errorf("metadata.db is %v, %v", info.Mode(), err)
	}
	if err := os.Rename(metadata, metadata+".away"); err != nil {
		t.Fatal(err)
	}
	_, err = snapshot.Open(root, snapshot.Options{Driver: copy.New()})
	want(t, "no metadata", err, snapshot.ErrNoMetadata)
	if err := os.Rename(metadata+".away", metadata); err != nil {
		t.Fatal(err)
	}
	if _, err := namespace(t, open(t, root, snapshot.Options{}), "t").Stat(ctx, "a"); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	for _, name := range []string{"", "a\x00b", strings.Repeat("x", snapshot.MaxNameSize+1)} {
		_, err := n.Prepare(ctx, name, "")
		want(t, fmt.Sprintf("prepare %.10q", name), err, snapshot.ErrInvalid)
		want(t, fmt.Sprintf("commit %.10q", name), n.Commit(ctx, name, "x"), snapshot.ErrInvalid)
		_, err = n.Stat(ctx, name)
		want(t, fmt.Sprintf("stat %.10q", name), err, snapshot.ErrNotFound)
		_, err = s.Namespace(name)
		want(t, fmt.Sprintf("namespace %.10q", name), err, snapshot.ErrInvalid)
	}
	layer(t, n, strings.Repeat("x", snapshot.MaxNameSize-7), "")
	_, err := n.Prepare(ctx, "a", "", snapshot.WithLabels(map[string]string{"l": strings.Repeat("x", snapshot.MaxLabelsSize)}))
	want(t, "long labels", err, snapshot.ErrInvalid)
	_, err = n.Update(ctx, snapshot.Info{Name: strings.Repeat("x", snapshot.MaxNameSize-7)}, "kind")
	want(t, "update a kind", err, snapshot.ErrInvalid)
	sound(t, s)
}

func TestNamespacesAreApart(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	a, b := namespace(t, s, "a"), namespace(t, s, "a/b")
	layer(t, a, "b/x", "")
	layer(t, b, "x", "")
	_, err := b.Prepare(ctx, "y", "b/x")
	want(t, "another namespace's parent", err, snapshot.ErrNotFound)
	for n, name := range map[*snapshot.Namespace]string{a: "b/x", b: "x"} {
		var names []string
		if err := n.Walk(ctx, func(i snapshot.Info) error { names = append(names, i.Name); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(names, []string{name}) {
			t.Errorf("namespace %s has %q", n.Name(), names)
		}
	}
	layer(t, namespace(t, s, "b"), "x", "")
	if names, err := s.Namespaces(ctx); err != nil || !slices.Equal(names, []string{"a", "a/b", "b"}) {
		t.Errorf("namespaces are %q, %v", names, err)
	}
	_, err = s.ClientNamespace("a")
	want(t, "a client with snapshots that can be pruned", err, snapshot.ErrInUse)
}

func TestHeld(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "a", "")
	layer(t, n, "b", "a")
	want(t, "a parent", n.Remove(ctx, "a"), snapshot.ErrInUse)
	if err := n.Lease(ctx, "mine", "b", time.Hour); err != nil {
		t.Fatal(err)
	}
	if held, err := n.Leases(ctx, "b"); err != nil || len(held) != 1 || held[0].Lease != "mine" || time.Until(held[0].Expires) < 50*time.Minute {
		t.Errorf("leases are %v, %v", held, err)
	}
	err := n.Remove(ctx, "b")
	want(t, "leased", err, snapshot.ErrInUse)
	if !strings.Contains(err.Error(), `"mine"`) {
		t.Errorf("it does not name the lease: %v", err)
	}
	want(t, "a negative time", n.Lease(ctx, "mine", "b", -1), snapshot.ErrInvalid)
	if err := n.Lease(ctx, "mine", "b", time.Nanosecond); err != nil { // shorter
		t.Fatal(err)
	}
	if err := n.Remove(ctx, "b"); err != nil {
		t.Errorf("after the lease's time: %v", err)
	}
	sound(t, s)
	if err := n.Pin(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	want(t, "pinned", n.Remove(ctx, "a"), snapshot.ErrInUse)
}

func TestWalkWhileChanging(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	for i := range 50 {
		layer(t, n, fmt.Sprint(i), "")
	}
	seen := 0
	err := n.Walk(ctx, func(i snapshot.Info) error {
		seen++
		if _, err := n.Prepare(ctx, "child of "+i.Name, i.Name); err != nil {
			return err
		}
		return n.Remove(ctx, "child of "+i.Name)
	})
	if err != nil || seen != 50 {
		t.Errorf("%d seen, %v", seen, err)
	}
	stop := errors.New("stop")
	want(t, "fn's error", n.Walk(ctx, func(snapshot.Info) error { return stop }), stop)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	want(t, "canceled", n.Walk(canceled, func(snapshot.Info) error { return nil }), context.Canceled)
}

func TestClosed(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "a", "")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := n.Stat(ctx, "a")
	want(t, "stat", err, snapshot.ErrClosed)
	_, err = n.Prepare(ctx, "b", "a")
	want(t, "prepare", err, snapshot.ErrClosed)
	want(t, "remove", n.Remove(ctx, "a"), snapshot.ErrClosed)
}

// faulty is a driver of which a verb fails, or is held up.
type faulty struct {
	snapshot.Driver
	mu       sync.Mutex
	fail     map[string]error
	working  map[snapshot.ID]int // calls of Commit under way
	together int                 // how often there were two for one snapshot
	commits  int
	removing func() // called by Remove

	hold chan chan struct{} // Create sends a channel when it is ready and waits until that is closed
}

func (f *faulty) err(verb string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail[verb]
}

func (f *faulty) set(verb string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = map[string]error{verb: err}
}

func (f *faulty) Create(ctx context.Context, t snapshot.Tree) error {
	err := errors.Join(f.Driver.Create(ctx, t), f.err("create"))
	if f.hold != nil {
		held := make(chan struct{})
		f.hold <- held
		<-held
	}
	return err
}

func (f *faulty) Commit(ctx context.Context, t snapshot.Tree) error {
	f.mu.Lock()
	if f.working == nil {
		f.working = map[snapshot.ID]int{}
	}
	f.working[t.ID]++
	if f.working[t.ID] > 1 {
		f.together++
	}
	f.commits++
	f.mu.Unlock()
	runtime.Gosched()
	defer func() {
		f.mu.Lock()
		f.working[t.ID]--
		f.mu.Unlock()
	}()
	return errors.Join(f.Driver.Commit(ctx, t), f.err("commit"))
}

func (f *faulty) Mounts(ctx context.Context, t snapshot.Tree, readonly bool) ([]mount.Mount, error) {
	m, err := f.Driver.Mounts(ctx, t, readonly)
	return m, errors.Join(err, f.err("mounts"))
}

func (f *faulty) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	u, err := f.Driver.Usage(ctx, t)
	return u, errors.Join(err, f.err("usage"))
}

func (f *faulty) Remove(ctx context.Context, l snapshot.Layer) error {
	if f.removing != nil {
		f.removing()
	}
	return errors.Join(f.Driver.Remove(ctx, l), f.err("remove"))
}

func TestDriverFails(t *testing.T) {
	broken := errors.New("broken")
	root := t.TempDir()
	f := &faulty{Driver: copy.New()}
	s := open(t, root, snapshot.Options{Driver: f})
	n := namespace(t, s, "t")
	layer(t, n, "base", "")
	for _, verb := range []string{"create", "mounts"} {
		f.set(verb, broken)
		_, err := n.Prepare(ctx, "a", "base")
		want(t, verb, err, broken)
		f.set("", nil)
		if _, err := n.Stat(ctx, "a"); !errors.Is(err, snapshot.ErrNotFound) {
			t.Errorf("after a failed %s: %v", verb, err)
		}
	}
	if _, err := n.Prepare(ctx, "a", "base"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"commit", "usage"} {
		f.set(verb, broken)
		want(t, verb, n.Commit(ctx, "b", "a"), broken)
		if i, err := n.Stat(ctx, "a"); err != nil || i.Kind != snapshot.Active {
			t.Errorf("after a failed %s: %+v, %v", verb, i, err)
		}
	}
	f.set("remove", broken)
	if err := n.Remove(ctx, "a"); err != nil {
		t.Errorf("Remove waits for the driver: %v", err)
	}
	want(t, "cleanup", s.Cleanup(ctx), broken)
	if sum, err := s.Totals(ctx); err != nil || sum.Trash == 0 {
		t.Errorf("while it cannot be deleted: %+v, %v", sum, err)
	}
	f.set("", nil)
	if err := s.Cleanup(ctx); err != nil {
		t.Error(err)
	}
	if sum, err := s.Totals(ctx); err != nil || sum.Trash != 0 || sum.Snapshots != 1 || sum.Committed != 1 {
		t.Errorf("afterwards: %+v, %v", sum, err)
	}
	for dir, most := range map[string]int{"snapshots": 1, "trash": 0} {
		if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) != most {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	sound(t, s)
}

// TestTrashOutlivesCrash: what is removed and not yet deleted when the process ends is deleted by the next one.
func TestTrashOutlivesCrash(t *testing.T) {
	root := t.TempDir()
	f := &faulty{Driver: copy.New()}
	f.set("remove", errors.New("not now"))
	s := open(t, root, snapshot.Options{Driver: f})
	n := namespace(t, s, "t")
	layer(t, n, "a", "")
	if err := n.Remove(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	s.Crash()
	s = open(t, root, snapshot.Options{})
	if report, err := s.Reconciled(ctx); err != nil || report.Trash != 1 || report.Orphans != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"snapshots", "trash"} {
		if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

// TestMakingIsNoOrphan: what is being made is not taken for what a crash has left.
func TestMakingIsNoOrphan(t *testing.T) {
	f := &faulty{Driver: copy.New()}
	s := open(t, t.TempDir(), snapshot.Options{Driver: f})
	n := namespace(t, s, "t")
	layer(t, n, "base", "")
	if _, err := s.Reconciled(ctx); err != nil {
		t.Fatal(err)
	}
	f.hold = make(chan chan struct{})
	failed := make(chan error)
	go func() {
		_, err := n.Prepare(ctx, "a", "base")
		failed <- err
	}()
	held := <-f.hold
	if err := errors.Join(s.LookAround(), s.Cleanup(ctx)); err != nil {
		t.Fatal(err)
	}
	close(held)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	mounts, err := n.Mounts(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(mounts[0].Source, "base")); err != nil {
		t.Error(err)
	}
}

// TestDurableBeforeDeleted: a tree is not deleted before it is on the disk that it is removed. (W2)
func TestDurableBeforeDeleted(t *testing.T) {
	f := &faulty{Driver: copy.New()}
	s := open(t, t.TempDir(), snapshot.Options{Driver: f, Durability: holdfast.Periodic})
	n := namespace(t, s, "t")
	layer(t, n, "a", "")
	if err := s.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	before, atDelete := 0, make(chan int, 1)
	f.removing = func() { atDelete <- s.Flushes() }
	before = s.Flushes()
	if err := errors.Join(n.Remove(ctx, "a"), s.Cleanup(ctx)); err != nil {
		t.Fatal(err)
	}
	if then := <-atDelete; then <= before {
		t.Errorf("it was deleted after %d flushes; before it was removed there were %d", then, before)
	}
}

// TestParentVanishes: a parent is removed, and one of its name made anew, while a snapshot is made of it.
func TestParentVanishes(t *testing.T) {
	for _, again := range []bool{false, true} {
		f := &faulty{Driver: copy.New()}
		s := open(t, t.TempDir(), snapshot.Options{Driver: f})
		n := namespace(t, s, "t")
		layer(t, n, "base", "")
		layer(t, n, "other", "")
		f.hold = make(chan chan struct{})
		failed := make(chan error)
		go func() {
			_, err := n.Prepare(ctx, "a", "base")
			failed <- err
		}()
		held := <-f.hold
		if err := n.Remove(ctx, "base"); err != nil {
			t.Fatal(err)
		}
		if err := s.Cleanup(ctx); err != nil {
			t.Fatal(err)
		}
		if again {
			go func() { close(<-f.hold) }()
			layer(t, n, "base", "")
		}
		close(held)
		want(t, "its parent has gone", <-failed, snapshot.ErrNotFound)
		f.hold = nil
		sound(t, s)
	}
}

func TestSameNameAtOnce(t *testing.T) {
	f := &faulty{Driver: copy.New()}
	s := open(t, t.TempDir(), snapshot.Options{Driver: f})
	n := namespace(t, s, "t")
	layer(t, n, "base", "")
	var wg sync.WaitGroup
	results := make([]error, 16)
	for i := range results {
		wg.Go(func() { _, results[i] = n.Prepare(ctx, "a", "base") })
	}
	wg.Wait()
	made := 0
	for _, err := range results {
		if err == nil {
			made++
		} else {
			want(t, "the name is taken", err, snapshot.ErrExists)
		}
	}
	for i := range results {
		wg.Go(func() { results[i] = n.Commit(ctx, fmt.Sprint("c", i), "a") })
	}
	wg.Wait()
	for _, err := range results {
		if err == nil {
			made++
		} else {
			want(t, "it is committed", err, snapshot.ErrNotFound)
		}
	}
	if made != 2 {
		t.Errorf("%d of prepare and commit succeeded", made)
	}
	if f.together > 0 || f.commits != 2 {
		t.Errorf("the driver committed %d times, %d times two at once", f.commits, f.together)
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Error(err)
	}
	sound(t, s)
}

func TestStrangeEntriesStay(t *testing.T) {
	root := t.TempDir()
	if err := open(t, root, snapshot.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lost+found", "7", "../new/8", "../trash/8", "8", "007", "8.new", "18446744073709551616"} {
		if err := os.MkdirAll(filepath.Join(root, "snapshots", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, root, snapshot.Options{})
	report, err := s.Reconciled(ctx)
	// Without the mark of a new one they count as what other metadata have named.
	if err != nil || report.Orphans != 0 || !slices.Equal(report.Quarantined, []snapshot.ID{7, 8}) || len(report.Strange) != 4 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(root, "snapshots")); err != nil || len(left) != 4 {
		t.Errorf("left: %v, %v", left, err)
	}
	n := namespace(t, s, "t") // whose IDs begin with 1
	for i := range 10 {
		layer(t, n, fmt.Sprint(i), "")
	}
}

func TestMissingDirectory(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{})
	n := namespace(t, s, "t")
	if _, err := n.Prepare(ctx, "a", ""); err != nil {
		t.Fatal(err)
	}
	info, err := n.Stat(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, "snapshots", info.ID.String())); err != nil {
		t.Fatal(err)
	}
	_, err = n.Mounts(ctx, "a")
	want(t, "mounts", err, snapshot.ErrMissing)
	layer(t, n, "parent", "")
	if info, err = n.Stat(ctx, "parent"); err == nil {
		err = s.Unusable(&info)
	}
	if err == nil {
		err = os.RemoveAll(filepath.Join(root, "snapshots", info.ID.String()))
	}
	if err != nil {
		t.Fatal(err)
	}
	want(t, "unusable", s.Unusable(&info), snapshot.ErrMissing)
	_, err = n.Prepare(ctx, "child", "parent")
	want(t, "child", err, snapshot.ErrMissing)
	if err := n.Remove(ctx, "parent"); err != nil {
		t.Error(err)
	}
	if info, err = n.Stat(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, root, snapshot.Options{})
	if report, err := s.Reconciled(ctx); err != nil || !slices.Equal(report.Missing, []snapshot.ID{info.ID}) {
		t.Errorf("%+v, %v", report, err)
	}
	n = namespace(t, s, "t")
	if err := errors.Join(n.Remove(ctx, "a"), s.Cleanup(ctx)); err != nil {
		t.Error(err)
	}
}
