package prune

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/disk"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/drivertest"
)

func TestMain(m *testing.M) { os.Exit(drivertest.Main(m)) }

var ctx = context.Background()

// sized is a driver without content, whose snapshots take what the test says.
type sized struct {
	next   atomic.Int64  // size of the next that is committed
	inodes atomic.Int64  // and its inodes
	delete chan struct{} // not nil: nothing is deleted before it is closed
	broken atomic.Bool   // nothing can be measured
}

func (*sized) Name() string                                { return "sized" }
func (*sized) Create(context.Context, snapshot.Tree) error { return nil }
func (*sized) Commit(context.Context, snapshot.Tree) error { return nil }
func (*sized) Sync(context.Context, snapshot.Tree) error   { return nil }
func (d *sized) Remove(ctx context.Context, _ snapshot.Layer) error {
	if d.delete != nil {
		select {
		case <-d.delete:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
func (d *sized) Usage(context.Context, snapshot.Tree) (snapshot.Usage, error) {
	if d.broken.Load() {
		return snapshot.Usage{}, errors.New("broken")
	}
	return snapshot.Usage{Size: d.next.Load(), Inodes: d.inodes.Load()}, nil
}
func (*sized) Mounts(_ context.Context, t snapshot.Tree, _ bool) ([]mount.Mount, error) {
	return []mount.Mount{{Type: "bind", Source: t.Dir}}, nil
}

// stand is a store with what tests do to it.
type stand struct {
	testing.TB
	driver *sized
	store  *snapshot.Store
	fs     disk.FS
	hook   atomic.Pointer[func(op string, keys int)] // of snapshot.Options.Observe
}

func newStand(t testing.TB) *stand {
	t.Helper()
	s := &stand{TB: t, driver: &sized{}, fs: disk.FS{Size: 1 << 40, Free: 1 << 39}}
	s.driver.next.Store(1000)
	s.driver.inodes.Store(1)
	var err error
	observe := func(op string, keys int) {
		if hook := s.hook.Load(); hook != nil {
			(*hook)(op, keys)
		}
	}
	s.store, err = snapshot.Open(t.TempDir(), snapshot.Options{Driver: s.driver, Durability: holdfast.None, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *stand) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stand) namespace(name string) *snapshot.Namespace {
	s.Helper()
	t, err := s.store.Namespace(name)
	s.must(err)
	return t
}

// layer commits a snapshot of a size.
func (s *stand) layer(t *snapshot.Namespace, name, parent string, size int64, o ...snapshot.Option) {
	s.Helper()
	s.driver.next.Store(size)
	_, err := t.Prepare(ctx, "active "+name, parent)
	s.must(err)
	s.must(t.Commit(ctx, name, "active "+name, o...))
}

// pruner follows policies, on a file system of the stand's size; now is so long after the present.
func (s *stand) pruner(later time.Duration, policies ...Policy) *Pruner {
	s.Helper()
	p, err := New(s.store, Options{Config: Config{Policies: policies}})
	s.must(err)
	p.disk = func(string) (disk.FS, error) { return s.fs, nil }
	now := time.Now().Add(later)
	p.now = func() time.Time { return now }
	return p
}

// dry is what a dry run gives.
func (s *stand) dry(p *Pruner) (list []Removal, r Result) {
	s.Helper()
	r, err := p.DryRun(ctx, func(r *Removal) bool {
		list = append(list, *r)
		return true
	})
	s.must(err)
	return list, r
}

func namesOf(list []Removal) (names []string) {
	for _, r := range list {
		names = append(names, r.Namespace+"/"+r.Name)
	}
	return names
}

// all are the names of the snapshots that there are.
func (s *stand) all() map[string]snapshot.Candidate {
	s.Helper()
	found := map[string]snapshot.Candidate{}
	s.must(s.store.Read(ctx, func(m *snapshot.ReadTx) error {
		return m.All(func(c snapshot.Candidate) bool {
			found[c.Namespace+"/"+c.Name] = c
			return true
		})
	}))
	return found
}

// sound checks the metadata.
func (s *stand) sound() {
	s.Helper()
	problems, err := s.store.Check(ctx)
	if err != nil || len(problems) > 0 {
		s.Fatalf("check: %v, %v", problems, err)
	}
}
