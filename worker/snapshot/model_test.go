package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// modelled is a snapshot as the model has it.
type modelled struct {
	kind   snapshot.Kind
	parent string
	labels map[string]string
	files  map[string]string
	pinned bool
	leases map[string]bool
	used   int // when it was last used, counted in operations
	id     snapshot.ID
}

// history does random things to a store and to a model of it, and compares.
type history struct {
	*testing.T
	rng        *rand.Rand
	root       string
	options    snapshot.Options
	store      *snapshot.Store
	namespaces []*snapshot.Namespace
	client     int // index of the one that is a client
	model      []map[string]*modelled
	clock      int
	ids        map[snapshot.ID]bool // ever seen

	removals map[bool]int // of snapshots with a parent, and of others
}

func TestAgainstModel(t *testing.T) {
	snapshot.SetUseGrain(0)
	defer snapshot.SetUseGrain(-1)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := &history{T: t, rng: rand.New(rand.NewPCG(seed, 1)), root: t.TempDir(), client: 1, ids: map[snapshot.ID]bool{}, removals: map[bool]int{}}
			h.options = snapshot.Options{Driver: copy.New(), Sync: snapshot.SyncMode(seed % 2),
				Durability: []holdfast.Durability{holdfast.Full, holdfast.Periodic, holdfast.None}[seed%3]}
			if seed%2 == 1 && !deferredWorks {
				h.options.Sync = snapshot.SyncCommit
			}
			h.model = []map[string]*modelled{{}, {}, {}}
			h.open()
			for i := range 400 {
				h.clock = i + 1
				h.step()
				if i%40 == 39 {
					h.compare()
				}
				if i%100 == 99 {
					h.must(h.store.Close())
					h.open()
				}
			}
			h.compare()
			h.must(h.store.Cleanup(context.Background()))
			h.compareDirectories()
			if h.removals[true] < 5 {
				t.Errorf("only %d children were removed", h.removals[true])
			}
			h.must(h.store.Close())
		})
	}
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *history) open() {
	h.Helper()
	var err error
	h.store, err = snapshot.Open(h.root, h.options)
	h.must(err)
	h.namespaces = nil
	for i := range h.model {
		name := fmt.Sprintf("namespace/%d", i)
		open := h.store.Namespace
		if i == h.client {
			open = h.store.ClientNamespace
		}
		namespace, err := open(name)
		h.must(err)
		h.namespaces = append(h.namespaces, namespace)
	}
}

// name is a random one of few, so that they meet.
func (h *history) name() string {
	names := []string{"a", "b", "c", "a/b", "a\x01", "\xff\xfe", "long/" + string(make0(300)), "d", "e", "f", "g", "h"}
	return names[h.rng.IntN(len(names))]
}

// some is mostly the name of one that fits, and sometimes any.
func (h *history) some(m map[string]*modelled, fits func(name string, s *modelled) bool) string {
	var names []string
	for name, s := range m {
		if fits(name, s) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || h.rng.IntN(5) == 0 {
		return h.name()
	}
	slices.Sort(names)
	return names[h.rng.IntN(len(names))]
}

// any is the name of one that there is, mostly.
func (h *history) any(m map[string]*modelled) string {
	return h.some(m, func(string, *modelled) bool { return true })
}

// ofKind is the name of one of a kind, mostly.
func (h *history) ofKind(m map[string]*modelled, k snapshot.Kind) string {
	return h.some(m, func(_ string, s *modelled) bool { return s.kind == k })
}

// free is a name that there is not, mostly.
func (h *history) free(m map[string]*modelled) string {
	for range 5 {
		if name := h.name(); m[name] == nil {
			return name
		}
	}
	return h.name()
}

func make0(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return b
}

func (h *history) labels() map[string]string {
	l := map[string]string{}
	for range h.rng.IntN(3) {
		l[fmt.Sprint("label ", h.rng.IntN(4))] = []string{"", "x", "y"}[h.rng.IntN(3)]
	}
	return l
}

// valued is labels without the empty ones; nil if none are left.
func valued(labels map[string]string) map[string]string {
	kept := maps.Clone(labels)
	maps.DeleteFunc(kept, func(_, v string) bool { return v == "" })
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// expect compares an error with what the model says: nil, or one of several.
func (h *history) expect(what string, got error, want ...error) bool {
	h.Helper()
	if len(want) == 0 {
		if got != nil {
			h.Fatalf("%s: %v", what, got)
		}
		return true
	}
	for _, w := range want {
		if errors.Is(got, w) {
			return false
		}
	}
	h.Fatalf("%s: %v, and should be one of %v", what, got, want)
	return false
}

func (h *history) step() {
	n := h.rng.IntN(len(h.namespaces))
	m, namespace := h.model[n], h.namespaces[n]
	switch h.rng.IntN(12) {
	case 0, 1, 2:
		h.prepare(m, namespace)
	case 3, 4, 5:
		h.commit(m, namespace)
	case 6, 7:
		h.remove(m, namespace)
	case 8:
		h.update(m, namespace)
	case 9:
		h.hold(m, namespace)
	case 10:
		h.letGo(m, namespace)
	case 11:
		h.prune()
	}
}

// children tells whether a snapshot has some.
func children(m map[string]*modelled, name string) bool {
	for _, s := range m {
		if s.parent == name {
			return true
		}
	}
	return false
}

func (h *history) prepare(m map[string]*modelled, namespace *snapshot.Namespace) {
	name, parent, labels := h.free(m), "", h.labels()
	if h.rng.IntN(3) > 0 {
		parent = h.ofKind(m, snapshot.Committed)
	}
	s := &modelled{kind: snapshot.Active, parent: parent, labels: valued(labels), files: map[string]string{}, used: h.clock}
	make := namespace.Prepare
	if h.rng.IntN(4) == 0 {
		s.kind, make = snapshot.View, namespace.View
	}
	var want []error
	if m[name] != nil {
		want = append(want, snapshot.ErrExists)
	}
	if p := m[parent]; parent != "" && p == nil {
		want = append(want, snapshot.ErrNotFound)
	} else if parent != "" && p.kind != snapshot.Committed {
		want = append(want, snapshot.ErrKind)
	}
	mounts, err := make(context.Background(), name, parent, snapshot.WithLabels(labels))
	if !h.expect(fmt.Sprintf("make %q on %q", name, parent), err, want...) {
		return
	}
	if parent != "" {
		s.files = maps.Clone(m[parent].files)
		m[parent].used = h.clock
	}
	if s.kind == snapshot.Active {
		file := fmt.Sprint("file ", h.rng.IntN(5))
		s.files[file] = fmt.Sprint("content ", h.clock)
		h.must(os.WriteFile(filepath.Join(mounts[0].Source, file), []byte(s.files[file]), 0o600))
	}
	info, err := namespace.Stat(context.Background(), name)
	h.must(err)
	if h.ids[info.ID] {
		h.Fatalf("ID %v came again", info.ID)
	}
	h.ids[info.ID], s.id = true, info.ID
	m[name] = s
}

func (h *history) commit(m map[string]*modelled, namespace *snapshot.Namespace) {
	name, key, labels := h.free(m), h.ofKind(m, snapshot.Active), h.labels()
	var want []error
	if m[name] != nil {
		want = append(want, snapshot.ErrExists)
	}
	if m[key] == nil {
		want = append(want, snapshot.ErrNotFound)
	} else if m[key].kind != snapshot.Active {
		want = append(want, snapshot.ErrKind)
	}
	options := []snapshot.Option{snapshot.WithLabels(labels)}
	if h.rng.IntN(2) == 0 {
		options = append(options, snapshot.MeasureLater())
	}
	err := namespace.Commit(context.Background(), name, key, options...)
	if !h.expect(fmt.Sprintf("commit %q as %q", key, name), err, want...) {
		return
	}
	s := m[key]
	delete(m, key)
	s.kind, s.labels, s.used = snapshot.Committed, valued(labels), h.clock
	m[name] = s
}

func (h *history) remove(m map[string]*modelled, namespace *snapshot.Namespace) {
	name := h.some(m, func(name string, _ *modelled) bool { return !children(m, name) })
	h.removals[m[name] != nil && m[name].parent != ""]++
	var want []error
	if s := m[name]; s == nil {
		want = append(want, snapshot.ErrNotFound)
	} else if s.pinned || len(s.leases) > 0 || children(m, name) {
		want = append(want, snapshot.ErrInUse)
	}
	if h.expect(fmt.Sprintf("remove %q", name), namespace.Remove(context.Background(), name), want...) {
		delete(m, name)
	}
}

func (h *history) update(m map[string]*modelled, namespace *snapshot.Namespace) {
	name, labels := h.any(m), h.labels()
	var want []error
	if m[name] == nil {
		want = append(want, snapshot.ErrNotFound)
	}
	var fields []string
	merged := maps.Clone(labels)
	if h.rng.IntN(2) == 0 {
		fields = []string{"labels.label 1", "labels.label 2"}
		if m[name] != nil {
			merged = maps.Clone(m[name].labels)
			if merged == nil {
				merged = map[string]string{}
			}
			merged["label 1"], merged["label 2"] = labels["label 1"], labels["label 2"]
		}
	}
	info, err := namespace.Update(context.Background(), snapshot.Info{Name: name, Parent: "nobody", Labels: labels}, fields...)
	if !h.expect(fmt.Sprintf("update %q", name), err, want...) {
		return
	}
	m[name].labels = valued(merged)
	if !maps.Equal(info.Labels, m[name].labels) {
		h.Fatalf("update %q gave %v, and should give %v", name, info.Labels, m[name].labels)
	}
}

// hold leases or pins.
func (h *history) hold(m map[string]*modelled, namespace *snapshot.Namespace) {
	ctx, name := context.Background(), h.any(m)
	var want []error
	if m[name] == nil {
		want = append(want, snapshot.ErrNotFound)
	}
	if h.rng.IntN(3) == 0 {
		if h.expect("pin", namespace.Pin(ctx, name), want...) {
			m[name].pinned = true
		}
		return
	}
	lease := fmt.Sprint("lease ", h.rng.IntN(3))
	ttl := []time.Duration{0, time.Hour, time.Nanosecond}[h.rng.IntN(3)]
	if h.expect("lease", namespace.Lease(ctx, lease, name, ttl), want...) {
		if m[name].leases == nil {
			m[name].leases = map[string]bool{}
		}
		m[name].leases[lease] = true
		if ttl == time.Nanosecond { // over as soon as somebody looks
			h.must(h.store.ExpireLeases(ctx))
			delete(m[name].leases, lease)
		}
	}
}

func (h *history) letGo(m map[string]*modelled, namespace *snapshot.Namespace) {
	ctx, name, lease := context.Background(), h.any(m), fmt.Sprint("lease ", h.rng.IntN(3))
	var want []error
	switch s := m[name]; h.rng.IntN(3) {
	case 0:
		if s == nil {
			want = append(want, snapshot.ErrNotFound)
		}
		if h.expect("unpin", namespace.Unpin(ctx, name), want...) {
			s.pinned = false
		}
	case 1:
		if s == nil || !s.leases[lease] {
			want = append(want, snapshot.ErrNotFound)
		}
		if h.expect("release", namespace.Release(ctx, lease, name), want...) {
			delete(s.leases, lease)
		}
	case 2:
		h.must(namespace.ReleaseAll(ctx, lease))
		for _, s := range m {
			delete(s.leases, lease)
		}
	}
}

// prunable are the names that the model would prune, oldest first.
func (h *history) prunable() (names []string) {
	type candidate struct {
		used int
		name string
	}
	var list []candidate
	for n, m := range h.model {
		for name, s := range m {
			if n != h.client && s.kind == snapshot.Committed && !s.pinned && len(s.leases) == 0 && !children(m, name) {
				list = append(list, candidate{s.used, fmt.Sprintf("namespace/%d %s", n, name)})
			}
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return a.used - b.used })
	for _, c := range list {
		names = append(names, c.name)
	}
	return names
}

func (h *history) prune() {
	ctx := context.Background()
	var list []snapshot.Doomed
	var names []string
	h.must(h.store.Prunable(ctx, func(c snapshot.Candidate) bool {
		list = append(list, snapshot.Doomed{ID: c.ID, LastUsed: c.LastUsed})
		names = append(names, c.Namespace+" "+c.Name)
		return true
	}))
	if want := h.prunable(); !slices.Equal(names, want) {
		h.Fatalf("can be pruned: %q, and should be %q", names, want)
	}
	if len(list) == 0 || h.rng.IntN(2) == 0 {
		return
	}
	stale := list[0] // used since
	stale.LastUsed = stale.LastUsed.Add(-1)
	removed, err := h.store.Prune(ctx, []snapshot.Doomed{stale, list[0], {ID: 1 << 40}, list[0]})
	h.must(err)
	if !slices.Equal(removed, []snapshot.ID{list[0].ID}) {
		h.Fatalf("pruned %v of %v", removed, list)
	}
	for _, m := range h.model {
		maps.DeleteFunc(m, func(_ string, s *modelled) bool { return s.id == list[0].ID })
	}
}

// compare looks at everything.
func (h *history) compare() {
	h.Helper()
	h.must(h.store.Measured(context.Background()))
	ctx := context.Background()
	for n, m := range h.model {
		seen := map[string]bool{}
		last := ""
		h.must(h.namespaces[n].Walk(ctx, func(info snapshot.Info) error {
			s := m[info.Name]
			if s == nil || seen[info.Name] || info.Name <= last {
				h.Fatalf("%q is there; before it %q", info.Name, last)
			}
			seen[info.Name], last = true, info.Name
			if info.Kind != s.kind || info.Parent != s.parent || info.ID != s.id || info.Pinned != s.pinned ||
				!maps.Equal(info.Labels, s.labels) || (info.Usage.Inodes > 0) != (s.kind == snapshot.Committed) {
				h.Fatalf("%+v, and should be %+v", info, s)
			}
			again, err := h.namespaces[n].Stat(ctx, info.Name)
			if err != nil || !reflect.DeepEqual(again, info) {
				h.Fatalf("Walk has %+v, Stat %+v, %v", info, again, err)
			}
			h.compareContent(n, info.Name)
			return nil
		}))
		if len(seen) != len(m) {
			h.Fatalf("there are %d snapshots, and should be %d", len(seen), len(m))
		}
	}
	problems, err := h.store.Check(ctx)
	h.must(err)
	for _, p := range problems {
		h.Error(p)
	}
	h.prune()
}

func (h *history) compareContent(n int, name string) {
	s, namespace, ctx := h.model[n][name], h.namespaces[n], context.Background()
	mounts, err := namespace.Mounts(ctx, name)
	dir := filepath.Join(h.root, "snapshots", s.id.String(), "fs")
	if s.kind == snapshot.Committed {
		h.expect("mounts", err, snapshot.ErrKind)
	} else {
		h.must(err)
		dir = mounts[0].Source
	}
	entries, err := os.ReadDir(dir)
	h.must(err)
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		h.must(err)
		files[e.Name()] = string(b)
	}
	if !maps.Equal(files, s.files) {
		h.Fatalf("%q has %v, and should have %v", name, files, s.files)
	}
	names, err := namespace.Children(ctx, name)
	h.must(err)
	for _, c := range names {
		if h.model[n][c] == nil || h.model[n][c].parent != name {
			h.Fatalf("%q is a child of %q", c, name)
		}
	}
	if (len(names) > 0) != children(h.model[n], name) {
		h.Fatalf("children of %q: %q", name, names)
	}
}

// compareDirectories looks for directories of nobody.
func (h *history) compareDirectories() {
	want := map[string]bool{}
	for _, m := range h.model {
		for _, s := range m {
			want[s.id.String()] = true
		}
	}
	entries, err := os.ReadDir(filepath.Join(h.root, "snapshots"))
	h.must(err)
	for _, e := range entries {
		if !want[e.Name()] {
			h.Errorf("snapshots/%s is nobody's", e.Name())
		}
		delete(want, e.Name())
	}
	if len(want) > 0 {
		h.Errorf("missing: %v", want)
	}
	if left, err := os.ReadDir(filepath.Join(h.root, "trash")); err != nil || len(left) > 0 {
		h.Errorf("in trash: %v, %v", left, err)
	}
}
