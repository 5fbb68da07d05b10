package prune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/disk"
	"holdfast/worker/internal/fstree"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// TestParentsFollow: parents go after their last child, in one plan, and a kept child keeps them.
func TestParentsFollow(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	s.layer(a, "base", "", 10)
	s.layer(a, "one", "base", 10)
	s.layer(a, "two", "one", 10)
	s.layer(a, "other", "base", 10)
	s.must(a.Pin(ctx, "other"))
	p := s.pruner(0, Policy{All: true})
	if list, _ := s.dry(p); !slices.Equal(namesOf(list), []string{"a/two", "a/one"}) {
		t.Errorf("goes %v", namesOf(list))
	}
	s.must(a.Unpin(ctx, "other"))
	// base was used first; but it goes as soon as nothing stands on it.
	if list, _ := s.dry(p); !slices.Equal(namesOf(list), []string{"a/two", "a/one", "a/other", "a/base"}) {
		t.Errorf("goes %v", namesOf(list))
	}
	r, err := p.Run(ctx)
	if err != nil || r.Snapshots != 4 || r.Bytes != 40 || len(s.all()) != 0 || r.Policies[0] != (Sum{4, 40}) || r.Kept != 0 || r.After.Snapshots != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	s.sound()
}

// TestClockBackwards: what was used in the future was used now. It is not a reason for anything to go, or
// to stay for longer.
func TestClockBackwards(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	s.layer(a, "old", "", 10)
	hour := Policy{KeepDuration: Duration(time.Hour)}
	for later, want := range map[time.Duration]int{-24 * time.Hour: 0, -time.Nanosecond: 0, 59 * time.Minute: 0, 61 * time.Minute: 1, 1e6 * time.Hour: 1} {
		if list, _ := s.dry(s.pruner(later, hour)); len(list) != want {
			t.Errorf("%v after its use %d go", later, len(list))
		}
	}
	if list, _ := s.dry(s.pruner(-24*time.Hour, Policy{MaxSnapshots: 1, All: true, KeepDuration: 0}, Policy{All: true})); len(list) != 1 {
		t.Errorf("without keepDuration %v goes", list)
	}
	before := s.pruner(-24*time.Hour, hour)
	answer, err := before.Why(ctx, "a", "old")
	if err != nil || answer.Kept[0].Cause != Young || !answer.Kept[0].Until.Equal(before.now().Add(time.Hour)) {
		t.Errorf("%+v, %v; now is %v", answer, err, before.now())
	}
}

// TestTrashIsFree: what is removed and not deleted yet does not make more go, neither by what is used nor
// by what is free.
func TestTrashIsFree(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	s.driver.delete = make(chan struct{})
	for i := range 10 {
		s.layer(a, fmt.Sprint(i), "", 1e6)
	}
	s.fs = disk.FS{Size: 100e6, Free: 20e6}
	p := s.pruner(0, Policy{MinFreeSpace: Size{Bytes: 23e6}})
	for run, want := range []int64{3, 0, 0} { // the file system says the same all the time
		if r, err := p.Run(ctx); err != nil || r.Snapshots != want {
			t.Errorf("run %d: %+v, %v", run, r, err)
		}
	}
	s.must(a.Remove(ctx, "9"))
	if totals, err := s.store.Totals(ctx); err != nil || totals.TrashBytes != 4e6 || totals.Trash != 4 || totals.Usage.Size != 6e6 {
		t.Errorf("%+v, %v", totals, err)
	}
	q := s.pruner(0, Policy{MinFreeSpace: Size{Bytes: 24e6}})
	if list, r := s.dry(q); len(list) != 0 || r.After.Free != 24e6 {
		t.Errorf("after one was removed by hand %v goes, %+v", namesOf(list), r)
	}
	close(s.driver.delete)
	s.must(s.store.Cleanup(ctx))
	s.fs.Free += 4e6
	if list, r := s.dry(q); len(list) != 0 || r.After.Free != 24e6 {
		t.Errorf("when they are deleted %v goes, %+v", namesOf(list), r)
	}
	// What is reserved is not free.
	q.opts.Reserved = func() int64 { return 2e6 }
	if list, _ := s.dry(q); len(list) != 2 {
		t.Errorf("with a reservation %v goes", namesOf(list))
	}
}

// TestUnmeasured: what was not measured yet (snapshot.MeasureLater) was taken for nothing that becomes free, and all of it went.
func TestUnmeasured(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	s.driver.broken.Store(true)
	for i := range 10 {
		s.layer(a, fmt.Sprint(i), "", 1e6, snapshot.MeasureLater())
	}
	if err := s.store.Measured(ctx); err == nil {
		t.Fatal("they were measured")
	}
	s.driver.broken.Store(false)
	s.fs = disk.FS{Size: 100e6, Free: 20e6}
	if list, r := s.dry(s.pruner(0, Policy{MinFreeSpace: Size{Bytes: 23e6}})); len(list) != 3 || r.Bytes != 3e6 {
		t.Errorf("%v goes, %+v", namesOf(list), r)
	}
	s.sound()
}

// TestUsedMeanwhile: what is used, leased or removed between plan and removal stays, and others go in its place.
func TestUsedMeanwhile(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	for i := range 8 {
		s.layer(a, fmt.Sprint(i), "", 10)
	}
	p := s.pruner(0, Policy{MaxSnapshots: 5})
	p.opts.Hold = 1 // one at a time
	p.opts.Progress = func(g Progress) {
		if g.Snapshots == 1 {
			s.must(a.Touch(ctx, "1"))
			s.must(a.Lease(ctx, "l", "2", 0))
		}
	}
	r, err := p.Run(ctx)
	left := slices.Sorted(maps.Keys(s.all()))
	if err != nil || r.Snapshots != 3 || r.Kept != 2 || !slices.Equal(left, []string{"a/1", "a/2", "a/5", "a/6", "a/7"}) {
		t.Errorf("%+v, %v; left %v", r, err, left)
	}
	if r.After.Snapshots != 5 {
		t.Errorf("after: %+v", r.After)
	}
}

// TestInterrupted: a run whose context ends before, after any transaction, or in one, leaves nothing half
// done, and the next one does the rest.
func TestInterrupted(t *testing.T) {
	for stop := range 7 {
		s := newStand(t)
		a := s.namespace("a")
		parent := ""
		for i := range 6 {
			s.layer(a, fmt.Sprint(i), parent, 10)
			parent = fmt.Sprint(i)
		}
		p := s.pruner(0, Policy{All: true})
		p.opts.Hold = 1
		ending, cancel := context.WithCancel(ctx)
		if stop == 0 {
			cancel()
		}
		p.opts.Progress = func(g Progress) {
			if g.Snapshots == int64(stop) {
				cancel()
			}
			if g.Snapshots+g.SnapshotsLeft != 6 || g.Bytes+g.BytesLeft != 60 {
				t.Errorf("progress %+v", g)
			}
		}
		r, err := p.Run(ending)
		cancel()
		if !errors.Is(err, context.Canceled) || r.Snapshots != int64(stop) || len(s.all()) != 6-stop {
			t.Errorf("stopped at %d: %+v, %v", stop, r, err)
		}
		s.sound()
		p.opts.Progress = nil
		if r, err = p.Run(ctx); err != nil || r.Snapshots != int64(6-stop) || len(s.all()) != 0 {
			t.Errorf("the rest: %+v, %v", r, err)
		}
		s.sound()
	}
}

// TestKeysTouched: the keys that are read and written to prune k snapshots are in proportion to k, whatever
// the store has.
func TestKeysTouched(t *testing.T) {
	touched := func(n, k int) (plan, prune int) {
		s := newStand(t)
		a := s.namespace("a")
		s.layer(a, "base", "", 10)
		for i := range n {
			parent := "base"
			if i%4 != 0 {
				parent = fmt.Sprint(i - 1)
			}
			s.layer(a, fmt.Sprint(i), parent, 10)
		}
		p := s.pruner(0, Policy{MaxSnapshots: Count(n + 1 - k)})
		count := func(op string, keys int) {
			switch op { // the reaper's are others
			case "moment":
				plan += keys
			case "prune":
				prune += keys
			}
		}
		s.hook.Store(&count)
		if r, err := p.Run(ctx); err != nil || r.Snapshots != int64(k) {
			t.Fatalf("%+v, %v", r, err)
		}
		return plan, prune
	}
	plan, prune := touched(100, 40)
	planMany, pruneMany := touched(3000, 40)
	if plan != planMany || prune != pruneMany {
		t.Errorf("of 100: %d and %d keys; of 3,000: %d and %d", plan, prune, planMany, pruneMany)
	}
	plan10, prune10 := touched(3000, 400)
	t.Logf("40: %d and %d keys; 400: %d and %d", plan, prune, plan10, prune10)
	if plan10 > 11*plan || prune10 > 11*prune || plan > 15*40 || prune > 20*40 {
		t.Errorf("40: %d and %d keys; 400: %d and %d", plan, prune, plan10, prune10)
	}
}

func TestWhy(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	client, err := s.store.ClientNamespace("client")
	s.must(err)
	for _, name := range []string{"plain", "pinned", "leased", "base", "keep"} {
		s.layer(a, name, "", 10)
	}
	s.layer(client, "theirs", "", 10)
	s.layer(a, "middle", "base", 10)
	s.layer(a, "leaf", "middle", 10)
	s.layer(a, "free leaf", "middle", 10)
	s.must(a.Pin(ctx, "pinned"))
	s.must(a.Lease(ctx, "mine", "leased", time.Hour))
	s.must(a.Lease(ctx, "ever", "leased", 0))
	s.must(a.Lease(ctx, "over", "plain", 1))
	_, err = a.Update(ctx, snapshot.Info{Name: "keep", Labels: map[string]string{LabelKeep: "x"}})
	s.must(err)
	_, err = a.View(ctx, "view", "leaf")
	s.must(err)
	p := s.pruner(0, Policy{KeepDuration: Duration(time.Hour)}, Policy{MaxSnapshots: 3})
	for name, want := range map[string][]string{
		"plain":     {"policy 2: 10 snapshots, maxSnapshots = 3"},
		"pinned":    {"it is pinned"},
		"leased":    {`the lease "ever", which has no end`, `the lease "mine", until 2`},
		"keep":      {"policy 1 does not select it", "policy 2 does not select it"},
		"leaf":      {`the snapshot "view" stands on it, and stays: it is not committed: it is a base, or in use`},
		"base":      {`the snapshot "view" stands on it, and stays: it is not committed: it is a base, or in use`},
		"view":      {"it is not committed: it is a base, or in use"},
		"free leaf": {"policy 2: 9 snapshots, maxSnapshots = 3"},
	} {
		answer, err := p.Why(ctx, "a", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		if answer.Next != nil {
			got = append(got, answer.Next.Reason(p.Policies()))
		}
		for _, k := range answer.Kept {
			got = append(got, k.String())
		}
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: %q, and should be %q", name, got, want)
		}
	}
	if answer, err := p.Why(ctx, "client", "theirs"); err != nil || len(answer.Kept) != 1 || answer.Kept[0].Cause != Client {
		t.Errorf("a client's: %+v, %v", answer, err)
	}
	if _, err := p.Why(ctx, "a", "nobody"); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
	// Within its bounds, and too young.
	p = s.pruner(0, Policy{KeepDuration: Duration(time.Hour)}, Policy{MaxSnapshots: 300, All: true})
	answer, err := p.Why(ctx, "a", "keep")
	if err != nil || len(answer.Kept) != 2 || answer.Kept[0].Cause != Spared || answer.Kept[1].Cause != Within || answer.Kept[1].State.Snapshots != 10 {
		t.Errorf("%+v, %v", answer, err)
	}
	if answer, err = p.Why(ctx, "a", "base"); err != nil || len(answer.Kept) != 2 || answer.Kept[0].Child.Name != "free leaf" && answer.Kept[1].Child.Name != "free leaf" {
		t.Errorf("%+v, %v", answer, err)
	}
	if answer, err = s.pruner(0).Why(ctx, "a", "plain"); err != nil || answer.Kept[0].Cause != NoPolicy {
		t.Errorf("%+v, %v", answer, err)
	}
}

// TestWhyBounded: of very many that keep one, some are named.
func TestWhyBounded(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	s.layer(a, "base", "", 10)
	for i := range 50 {
		s.layer(a, fmt.Sprint(i), "base", 10)
		s.must(a.Pin(ctx, fmt.Sprint(i)))
	}
	answer, err := s.pruner(0, Policy{All: true}).Why(ctx, "a", "base")
	if err != nil || len(answer.Kept) != mostChildren || !answer.More {
		t.Errorf("%d, %v, %v", len(answer.Kept), answer.More, err)
	}
}

// TestReasons: each rule is said with its figures.
func TestReasons(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	s.layer(a, "x", "", 30e9)
	s.fs = disk.FS{Size: 100e9, Free: 10e9}
	for want, p := range map[string]Policy{
		"policy 1: 30 GB used, maxUsedSpace = 20% (20 GB)": {MaxUsedSpace: Size{Percent: 20}},
		"policy 1: 30 GB used, maxUsedSpace = 5GB":         {MaxUsedSpace: Size{Bytes: 5e9}},
		"policy 1: 10 GB free, minFreeSpace = 25% (25 GB)": {MinFreeSpace: Size{Percent: 25}},
		"policy 1: not used for keepDuration = 2d":         {KeepDuration: Duration(48 * time.Hour)},
		"policy 1: it has no bounds":                       {All: true},
	} {
		pruner := s.pruner(72*time.Hour, p)
		list, _ := s.dry(pruner)
		if len(list) != 1 || list[0].Reason(pruner.Policies()) != want {
			t.Errorf("%+v, and should be %q", list, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	s := newStand(t)
	for _, o := range []Options{
		{Config: Config{Policies: []Policy{{}}}}, {Hold: -1}, {Config: Config{MaxMounts: -1}},
		{Config: Config{Policies: []Policy{{MaxUsedSpace: Size{Bytes: -1}}}}}, {Config: Config{Policies: []Policy{{MaxUsedSpace: Size{Percent: 101}}}}},
		{Config: Config{Policies: []Policy{{KeepDuration: -1}}}}, {Config: Config{Policies: []Policy{{MaxSnapshots: -1}}}},
	} {
		if _, err := New(s.store, o); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// mounts is a number of mounts.
type mounts int

func (m *mounts) Trim(most int) int {
	n := max(int(*m)-most, 0)
	*m -= mounts(n)
	return n
}

func TestMounts(t *testing.T) {
	s := newStand(t)
	m := mounts(20)
	p, err := New(s.store, Options{Config: Config{MaxMounts: 7}, Mounts: &m})
	s.must(err)
	if r, err := p.Run(ctx); err != nil || r.Mounts != 13 || m != 7 {
		t.Errorf("%+v, %v, %d left", r, err, m)
	}
}

// TestOneAtATime: runs that are begun at once remove what one would.
func TestOneAtATime(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	for i := range 40 {
		s.layer(a, fmt.Sprint(i), "", 10)
	}
	p := s.pruner(0, Policy{MaxSnapshots: 25})
	p.opts.Hold = 1
	var mu sync.Mutex
	var seen []int64
	p.opts.Progress = func(g Progress) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, g.Snapshots)
	}
	results := make(chan Result)
	for range 4 {
		go func() {
			r, err := p.Run(ctx)
			if err != nil {
				t.Error(err)
			}
			results <- r
		}()
	}
	sum := int64(0)
	for range 4 {
		sum += (<-results).Snapshots
	}
	if sum != 15 || len(s.all()) != 25 {
		t.Errorf("%d were removed, %d are left", sum, len(s.all()))
	}
	if len(seen) != 15 || !slices.IsSorted(seen) { // the others have found nothing to do
		t.Errorf("the runs were at work at once: %v", seen)
	}
}

// TestDf: all bytes that the directory of a store takes are counted, each once.
func TestDf(t *testing.T) {
	root := t.TempDir()
	store, err := snapshot.Open(root, snapshot.Options{Driver: copy.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	n, err := store.Namespace("t")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, parent string, size int) {
		t.Helper()
		m, err := n.Prepare(ctx, name, parent)
		if err == nil {
			err = os.WriteFile(filepath.Join(m[0].Source, name), make([]byte, size), 0o600)
		}
		if err == nil {
			err = flush(filepath.Join(m[0].Source, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		write(fmt.Sprint("active ", i), "", 1<<20)
		if err := n.Commit(ctx, fmt.Sprint(i), fmt.Sprint("active ", i)); err != nil {
			t.Fatal(err)
		}
	}
	write("working", "1", 3<<20)
	if _, err := n.View(ctx, "view", "1"); err != nil {
		t.Fatal(err)
	}
	for dir, size := range map[string]int{"trash/77": 200000, "new/78": 300000, "logs": 400000, "snapshots/lost": 500000, "snapshots/79": 600000} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(root, dir, "file")
		if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := flush(file); err != nil {
			t.Fatal(err)
		}
	}
	u, err := Df(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	du, err := fstree.Measure(ctx, root)
	if err != nil || u.Total != du.Size {
		t.Errorf("%+v, and du %+v, %v", u, du, err)
	}
	for what, is := range map[string][3]int64{
		"committed": {u.Committed.Bytes, 5 << 20, 5<<20 + 1<<16}, "active": {u.Active.Bytes, 4 << 20, 9 << 20}, "trash": {u.Trash.Bytes, 1100000, 1100000 + 1<<16},
		"metadata": {u.Metadata, 4096, 1 << 24}, "other": {u.Other, 900000, 900000 + 1<<17}, "free": {u.FS.Free, 1, math.MaxInt64}, "number of trash": {u.Trash.Snapshots, 3, 3},
		"number of active": {u.Active.Snapshots, 2, 2}, "number of committed": {u.Committed.Snapshots, 5, 5},
	} {
		if is[0] < is[1] || is[0] > is[2] {
			t.Errorf("%s is %d, of %+v", what, is[0], u)
		}
	}
}

// flush has the blocks of a file allocated.
func flush(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// TestWithCopies: with a real driver, what goes is deleted.
func TestWithCopies(t *testing.T) {
	store, err := snapshot.Open(t.TempDir(), snapshot.Options{Driver: copy.New(), Durability: holdfast.Periodic})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	s := &stand{TB: t, driver: &sized{}, store: store, fs: disk.FS{Size: 1 << 40, Free: 1 << 39}}
	a := s.namespace("a")
	for i := range 20 {
		parent := ""
		if i%4 != 0 {
			parent = fmt.Sprint(i - 1)
		}
		s.layer(a, fmt.Sprint(i), parent, 0)
	}
	p, err := New(store, Options{Config: Config{Policies: []Policy{{MaxSnapshots: 6}}}})
	s.must(err)
	if r, err := p.Run(ctx); err != nil || r.Snapshots != 14 {
		t.Errorf("%+v, %v", r, err)
	}
	s.must(store.Cleanup(ctx))
	left, err := os.ReadDir(filepath.Join(store.Root(), "snapshots"))
	if err != nil || len(left) != 6 {
		t.Errorf("%v, %v", left, err)
	}
	s.sound()
}

// TestDespite: with the name of a lease, plan, run and Why take no notice of it, and of none else.
func TestDespite(t *testing.T) {
	const hold = snapshot.WeakPrefix + "hold"
	s := newStand(t)
	n := s.namespace("t")
	s.layer(n, "base", "", 1000)
	s.layer(n, "held", "base", 1000, snapshot.WithLease(hold, time.Hour))
	s.layer(n, "leased", "", 1000, snapshot.WithLease("another", time.Hour))
	s.layer(n, "free", "", 1000)
	names := func(p *Pruner) (names []string) {
		list, _ := s.dry(p)
		for _, r := range list {
			names = append(names, r.Name)
		}
		return names
	}
	all := Policy{All: true}
	if got := names(s.pruner(0, all)); !slices.Equal(got, []string{"free"}) {
		t.Errorf("%v would go", got)
	}
	despite := s.pruner(0, all)
	despite.opts.Despite = hold
	if got := names(despite); !slices.Equal(got, []string{"held", "base", "free"}) {
		t.Errorf("%v would go in spite of the lease", got)
	}
	if answer, err := despite.Why(ctx, "t", "held"); err != nil || answer.Next == nil {
		t.Errorf("%+v, %v", answer, err)
	}
	bounded := s.pruner(0, Policy{All: true, MaxSnapshots: 3})
	bounded.opts.Despite = hold
	if r, err := bounded.Run(ctx); err != nil || r.Snapshots != 1 || r.Kept != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := despite.Run(ctx); err != nil || r.Snapshots != 2 || r.Kept != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := n.Stat(ctx, "leased"); err != nil {
		t.Error(err)
	}
}
