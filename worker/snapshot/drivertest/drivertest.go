// Package drivertest has the tests that every driver of snapshots must pass: they are the
// contract of snapshot.Driver, run.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// Server is a driver that has mounts which it makes itself.
type Server interface {
	Mounters() map[string]mount.Mounter
}

// Make gives a driver for a store in root, a directory that is there and empty. It may mount a
// file system there (Filesystem), and may skip the test.
type Make func(t *testing.T, root string) snapshot.Driver

// Run runs the tests as subtests of t. As root all of them; otherwise those that need no mounts but
// writable bind mounts, and the others are skipped.
func Run(t *testing.T, newDriver Make) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"Empty", testEmpty},
		{"Chain", testChain},
		{"Deletions", testDeletions},
		{"Siblings", testSiblings},
		{"RootAttributes", testRootAttributes},
		{"Readonly", testReadonly},
		{"CommitAgain", testCommitAgain},
		{"MountsChangeNothing", testMountsChangeNothing},
		{"Usage", testUsage},
		{"RemoveAgain", testRemoveAgain},
		{"RemoveUnmade", testRemoveUnmade},
		{"Concurrent", testConcurrent},
		{"Canceled", testCanceled},
		{"Rebase", testRebase},
		{"Finish", testFinish},
		{"Digest", testDigest},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			d := newDriver(t, root)
			for _, dir := range []string{"snapshots", "trash"} {
				if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if p, ok := d.(snapshot.Prober); ok {
				if err := p.Probe(root); err != nil {
					t.Fatal(err)
				}
			}
			if p, ok := d.(snapshot.Starter); ok {
				if err := p.Start(context.Background(), root); err != nil {
					t.Fatal(err)
				}
			}
			b := &bench{T: t, root: root, driver: d}
			t.Cleanup(b.clear)
			test.run(b)
		})
	}
}

// bench does with a driver what a Store does.
type bench struct {
	*testing.T
	root   string
	driver snapshot.Driver
	mu     sync.Mutex
	last   snapshot.ID
	live   []snapshot.Layer
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// tree is a snapshot that is not made yet.
func (b *bench) tree(kind snapshot.Kind, parents ...snapshot.Layer) snapshot.Tree {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	dir := filepath.Join(b.root, "snapshots", b.last.String())
	return snapshot.Tree{Layer: snapshot.Layer{ID: b.last, Dir: dir}, Kind: kind, Parents: parents}
}

// make makes it.
func (b *bench) make(ctx context.Context, t snapshot.Tree) error {
	under := t
	under.Dir += ".new"
	if err := os.Mkdir(under.Dir, 0o700); err != nil {
		return err
	}
	b.mu.Lock()
	b.live = append(b.live, t.Layer)
	b.mu.Unlock()
	if err := b.driver.Create(ctx, under); err != nil {
		return err
	}
	return os.Rename(under.Dir, t.Dir)
}

func (b *bench) create(kind snapshot.Kind, parents ...snapshot.Layer) snapshot.Tree {
	b.Helper()
	t := b.tree(kind, parents...)
	b.must(b.make(context.Background(), t))
	return t
}

// mount shows a snapshot.
func (b *bench) mount(t snapshot.Tree, readonly bool) (dir string, unmount func()) {
	b.Helper()
	mounts, err := b.driver.Mounts(context.Background(), t, readonly)
	b.must(err)
	var served map[string]mount.Mounter
	if m, ok := b.driver.(Server); ok {
		served = m.Mounters()
	}
	return MountServed(b, mounts, served)
}

// commit does what fn does in an active snapshot and commits it.
func (b *bench) commit(t snapshot.Tree, fn func(dir string)) snapshot.Layer {
	b.Helper()
	dir, unmount := b.mount(t, false)
	fn(dir)
	unmount()
	b.must(b.driver.Commit(context.Background(), t))
	return t.Layer
}

// look lists what a view of the layers shows.
func (b *bench) look(parents ...snapshot.Layer) map[string]string {
	b.Helper()
	view := b.create(snapshot.View, parents...)
	dir, unmount := b.mount(view, true)
	list := List(b, dir)
	unmount()
	b.remove(view.Layer)
	return list
}

// remove does what a Store does after a snapshot was removed.
func (b *bench) remove(l snapshot.Layer) {
	b.Helper()
	trash := filepath.Join(b.root, "trash", l.ID.String())
	for _, from := range []string{l.Dir, l.Dir + ".new"} {
		if err := os.Rename(from, trash); err != nil && !errors.Is(err, os.ErrNotExist) {
			b.Fatal(err)
		}
	}
	for range 2 {
		b.must(b.driver.Remove(context.Background(), snapshot.Layer{ID: l.ID, Dir: trash}))
	}
	b.must(fstree.Remove(context.Background(), trash))
}

// clear removes all, children first.
func (b *bench) clear() {
	for i := len(b.live) - 1; i >= 0; i-- {
		b.remove(b.live[i])
	}
}

func (b *bench) write(dir, name, content string, mode os.FileMode) {
	b.Helper()
	path := filepath.Join(dir, name)
	b.must(os.WriteFile(path, []byte(content), 0o600))
	b.must(os.Chmod(path, mode))
}

func testEmpty(b *bench) {
	t := b.create(snapshot.Active)
	dir, unmount := b.mount(t, false)
	list := List(b, dir)
	unmount()
	if len(list) != 1 || list["."][:10] != "drwxr-xr-x" {
		b.Errorf("an empty snapshot has %v", list)
	}
	Equal(b, "a view of nothing", b.look(), list)
}

// fill makes a tree with everything that a layer can hold. As an unprivileged user it leaves out what
// root makes.
func (b *bench) fill(dir string) {
	b.must(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	b.must(os.Mkdir(filepath.Join(dir, "open"), 0o777))
	b.must(os.Chmod(filepath.Join(dir, "open"), 0o777|os.ModeSticky))
	b.write(dir, "a/text", "some text\n", 0o640)
	b.write(dir, "a/b/empty", "", 0o444)
	b.write(dir, "set-uid", "program", 0o755|os.ModeSetuid)
	b.must(os.Symlink("../no/such/place", filepath.Join(dir, "a", "link")))
	b.must(os.Link(filepath.Join(dir, "a", "text"), filepath.Join(dir, "twin")))
	sparse := filepath.Join(dir, "sparse")
	b.write(dir, "sparse", "begin", 0o600)
	b.must(os.Truncate(sparse, 8<<20))
	b.special(dir)
}

func testChain(b *bench) {
	var below []snapshot.Layer
	var want map[string]string
	for i := range 5 {
		t := b.create(snapshot.Active, below...)
		layer := b.commit(t, func(dir string) {
			if i > 0 {
				Equal(b, fmt.Sprintf("level %d", i), List(b, dir), want)
			} else {
				b.fill(dir)
			}
			b.write(dir, fmt.Sprintf("file %d", i), fmt.Sprint(i), 0o644)
			b.write(dir, "a/text", fmt.Sprintf("changed %d times", i), 0o640)
			want = List(b, dir)
		})
		below = append([]snapshot.Layer{layer}, below...)
		Equal(b, fmt.Sprintf("a view of level %d", i), b.look(below...), want)
	}
}

func testDeletions(b *bench) {
	base := b.commit(b.create(snapshot.Active), func(dir string) {
		b.must(os.MkdirAll(filepath.Join(dir, "d", "e"), 0o755))
		b.write(dir, "d/e/f", "f", 0o644)
		b.write(dir, "g", "g", 0o644)
	})
	var want map[string]string
	next := b.commit(b.create(snapshot.Active, base), func(dir string) {
		b.must(os.RemoveAll(filepath.Join(dir, "d")))
		b.must(os.Remove(filepath.Join(dir, "g")))
		b.must(os.Mkdir(filepath.Join(dir, "d"), 0o700))
		b.must(os.Mkdir(filepath.Join(dir, "g"), 0o700))
		want = List(b, dir)
	})
	if len(want) != 3 {
		b.Fatalf("after deleting all and making two directories there are %v", want)
	}
	Equal(b, "after deletions", b.look(next, base), want)
}

func testSiblings(b *bench) {
	base := b.commit(b.create(snapshot.Active), b.fill)
	before := b.look(base)
	one, two := b.create(snapshot.Active, base), b.create(snapshot.Active, base)
	dir1, unmount1 := b.mount(one, false)
	dir2, unmount2 := b.mount(two, false)
	b.write(dir1, "a/text", "one", 0o600)
	b.write(dir1, "only", "one", 0o600)
	Equal(b, "the other", List(b, dir2), before)
	b.must(os.RemoveAll(filepath.Join(dir2, "a")))
	if got, err := os.ReadFile(filepath.Join(dir1, "a/text")); err != nil || string(got) != "one" {
		b.Errorf("the first has %q, %v", got, err)
	}
	unmount1()
	unmount2()
	Equal(b, "the parent", b.look(base), before)
	b.remove(one.Layer)
	Equal(b, "the parent of one that was removed", b.look(base), before)
}

func testRootAttributes(b *bench) {
	base := b.commit(b.create(snapshot.Active), func(dir string) { b.must(os.Chmod(dir, 0o711)) })
	want := b.look(base)
	if want["."][:10] != "drwx--x--x" {
		b.Fatalf("the root of the parent is %v", want["."])
	}
	Equal(b, "a child", b.look(b.commit(b.create(snapshot.Active, base), func(string) {}), base), want)
}

func testReadonly(b *bench) {
	base := b.commit(b.create(snapshot.Active), b.fill)
	for name, t := range map[string]snapshot.Tree{
		"a view": b.create(snapshot.View, base), "an empty view": b.create(snapshot.View), "an active one": b.create(snapshot.Active, base),
	} {
		dir, unmount := b.mount(t, true)
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err == nil {
			b.Errorf("%s, mounted to be read only, was written to", name)
		}
		unmount()
	}
}

func testCommitAgain(b *bench) {
	t := b.create(snapshot.Active)
	b.commit(t, func(dir string) { b.write(dir, "x", "1", 0o600) })
	b.commit(t, func(dir string) { b.write(dir, "x", "2", 0o600) })
	layer := b.commit(t, func(string) {})
	child := b.create(snapshot.Active, layer)
	dir, _ := b.mount(child, false)
	if got, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(got) != "2" {
		b.Errorf("after three commits there is %q, %v", got, err)
	}
}

func testMountsChangeNothing(b *bench) {
	base := b.commit(b.create(snapshot.Active), b.fill)
	t := b.create(snapshot.Active, base)
	before := List(b, b.root)
	first, err := b.driver.Mounts(context.Background(), t, false)
	b.must(err)
	again, err := b.driver.Mounts(context.Background(), t, false)
	b.must(err)
	if fmt.Sprint(first) != fmt.Sprint(again) {
		b.Errorf("mounts %v, then %v", first, again)
	}
	Equal(b, "the store", List(b, b.root), before)
}

func testUsage(b *bench) {
	const size = 3 << 20
	ctx := context.Background()
	base := b.commit(b.create(snapshot.Active), func(dir string) {
		content := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{}).Read(content) // a file system may compress zeros away
		b.write(dir, "large", string(content), 0o600)
		f, err := os.OpenFile(filepath.Join(dir, "large"), os.O_RDWR, 0)
		b.must(err)
		b.must(f.Sync()) // btrfs counts what is written
		b.must(f.Close())
	})
	u, err := b.driver.Usage(ctx, snapshot.Tree{Layer: base, Kind: snapshot.Active})
	b.must(err)
	if u.Size < size || u.Size > 2*size || u.Inodes < 2 || u.Inodes > 10 {
		b.Errorf("a file of %d bytes takes %+v", size, u)
	}
	t := b.create(snapshot.Active, base)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // files come and go meanwhile
		dir, _ := b.mount(t, false)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				b.write(dir, fmt.Sprint(i%7), "x", 0o600)
				_ = os.Remove(filepath.Join(dir, fmt.Sprint((i+3)%7)))
			}
		}
	})
	for range 50 {
		if _, err := b.driver.Usage(ctx, t); err != nil {
			b.Errorf("usage while files are removed: %v", err)
		}
	}
	close(stop)
	wg.Wait()
	if u, err = b.driver.Usage(ctx, b.create(snapshot.View, base)); err != nil || u.Size > 1<<16 {
		b.Errorf("a view takes %+v, %v", u, err)
	}
}

func testRemoveAgain(b *bench) {
	base := b.commit(b.create(snapshot.Active), b.fill)
	want := b.look(base)
	child := b.commit(b.create(snapshot.Active, base), func(dir string) { b.write(dir, "more", "more", 0o600) })
	b.remove(child)
	b.remove(child)
	Equal(b, "the parent", b.look(base), want)
	b.remove(base)
	for _, dir := range []string{"snapshots", "trash"} {
		if left, err := os.ReadDir(filepath.Join(b.root, dir)); err != nil || len(left) != 0 {
			b.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

func testRemoveUnmade(b *bench) {
	b.remove(b.tree(snapshot.Active).Layer)
	t := b.tree(snapshot.Active, b.tree(snapshot.Active).Layer) // its parent is not there
	err := b.make(context.Background(), t)
	if err == nil {
		mounts, err := b.driver.Mounts(context.Background(), t, false)
		b.Fatalf("a snapshot was made of a parent that is not there: %v, %v", mounts, err)
	}
	b.remove(t.Layer)
}

func testConcurrent(b *bench) {
	base := b.commit(b.create(snapshot.Active), b.fill)
	want := b.look(base)
	var wg sync.WaitGroup
	trees := make([]snapshot.Tree, 8)
	for i := range trees {
		wg.Go(func() {
			trees[i] = b.tree(snapshot.Active, base)
			if err := b.make(context.Background(), trees[i]); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	for _, t := range trees {
		dir, unmount := b.mount(t, false)
		Equal(b, t.ID.String(), List(b, dir), want)
		unmount()
	}
}

func testCanceled(b *bench) {
	base := b.commit(b.create(snapshot.Active), b.fill)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	began := time.Now()
	t := b.tree(snapshot.Active, base)
	if err := b.make(ctx, t); err != nil && !errors.Is(err, context.Canceled) {
		b.Errorf("after %v: %v", time.Since(began), err)
	}
	b.remove(t.Layer)
}

func testRebase(b *bench) {
	if _, ok := b.driver.(snapshot.Rebaser); !ok {
		return // it does not claim to
	}
	base := b.commit(b.create(snapshot.Active), func(dir string) { b.write(dir, "below", "b", 0o600) })
	alone := b.commit(b.create(snapshot.Active), func(dir string) { b.write(dir, "above", "a", 0o600) })
	list := b.look(alone, base)
	if len(list) != 3 || list["below"] == "" || list["above"] == "" {
		b.Errorf("one that was made without a parent and put on one has %v", list)
	}
}

func testFinish(b *bench) {
	f, ok := b.driver.(snapshot.Finisher)
	if !ok {
		return // there is nothing to finish
	}
	ctx := context.Background()
	base := b.commit(b.create(snapshot.Active), b.fill)
	if f.Finished(base) {
		b.Error("a snapshot is finished when it was just committed")
	}
	want := b.look(base)
	early := b.create(snapshot.Active, base)
	dir, _ := b.mount(early, false)
	b.must(f.Finish(ctx, base))
	b.must(f.Finish(ctx, base))
	if !f.Finished(base) {
		b.Error("a snapshot is not finished after Finish")
	}
	Equal(b, "what was mounted before", List(b, dir), want)
	Equal(b, "finished", b.look(base), want)
	top := b.commit(b.create(snapshot.Active, base), func(dir string) { b.must(os.RemoveAll(filepath.Join(dir, "a"))) })
	want = b.look(top, base)
	b.must(f.Finish(ctx, top))
	Equal(b, "both finished", b.look(top, base), want)
}
