package snaplife

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"golang.org/x/sys/unix"

	"holdfast/bench/age"
)

// label is that of committed snapshots: one that containerd's garbage collection reads.
const label = "containerd.io/gc.ref.content.0"

// stand is a peer with an open store.
type stand struct {
	Peer
	root   string
	target string // where its snapshots are mounted
	s      snapshots.Snapshotter
	close  func() error

	samples age.Samples
	ops     int // done
}

// newStand makes directories in dir, and opens a store in one of them.
func newStand(dir string, at int, p Peer) (*stand, error) {
	st := &stand{Peer: p, root: filepath.Join(dir, fmt.Sprint("peer", at)), target: filepath.Join(dir, fmt.Sprint("mounted", at))}
	for _, made := range []string{st.root, st.target} {
		if err := os.Mkdir(made, 0o700); err != nil {
			return nil, err
		}
	}
	return st, st.open()
}

func (st *stand) open() (err error) {
	st.close = func() error { return nil } // if it cannot be opened
	s, closeIt, err := st.Peer.Open(st.root)
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	st.s, st.close = s, closeIt
	return nil
}

// do does an operation.
func (st *stand) do(ctx context.Context, op Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	st.ops++
	var err error
	switch op.Do {
	case DoStep:
		_, err = st.step(ctx, op.Name, op.Parent)
	case DoCycle:
		err = st.cycle(ctx, op.Name, op.Parent)
	case DoStart:
		_, err = st.s.Prepare(ctx, op.Name, op.Parent)
	case DoView:
		_, err = st.s.View(ctx, op.Name, op.Parent)
	case DoRemove:
		err = st.s.Remove(ctx, op.Name)
	case DoSweep:
		err = st.sweep(ctx)
	}
	if err != nil {
		return fmt.Errorf("%v of %q on %q: %w", op.Do, op.Name, op.Parent, err)
	}
	return nil
}

// stepTimes are how long parts of a step took.
type stepTimes struct{ prepare, commit time.Duration }

func (st *stand) step(ctx context.Context, name, parent string) (took stepTimes, err error) {
	key, files := "extract "+name, layer(name)
	began := time.Now()
	mounts, err := st.s.Prepare(ctx, key, parent)
	took.prepare = time.Since(began)
	if err != nil {
		return took, err
	}
	if err := st.mounted(mounts, func() error { return write(st.target, files, parent) }); err != nil {
		return took, err
	}
	committing := time.Now()
	err = st.s.Commit(ctx, name, key, snapshots.WithLabels(map[string]string{label: labelOf(name)}))
	took.commit = time.Since(committing)
	return took, err
}

func (st *stand) cycle(ctx context.Context, name, parent string) error {
	if _, err := st.s.Prepare(ctx, name, parent); err != nil {
		return err
	}
	if _, err := st.s.Mounts(ctx, name); err != nil {
		return err
	}
	return st.s.Remove(ctx, name)
}

// sweep has deleted what was removed when it returns.
func (st *stand) sweep(ctx context.Context) error {
	if c, ok := st.s.(snapshots.Cleaner); ok {
		return c.Cleanup(ctx)
	}
	return nil
}

// mounted calls fn with mounts at the target, which it leaves unmounted.
func (st *stand) mounted(mounts []mount.Mount, fn func() error) (err error) {
	defer func() { // also if one of several could not be mounted
		if busy := mount.UnmountAll(st.target, 0); busy != nil {
			err = errors.Join(err, fmt.Errorf("unmounting %s: %w", st.target, busy), mount.UnmountAll(st.target, unix.MNT_DETACH))
		}
	}()
	if err := mount.All(mounts, st.target); err != nil {
		return fmt.Errorf("mounting %+v: %w", mounts, err)
	}
	return fn()
}

// write writes files below dir, and removes the file of the parent that its children do not have.
func write(dir string, files Files, parent string) error {
	for file, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			return err
		}
	}
	if parent == "" {
		return nil
	}
	return os.Remove(filepath.Join(dir, filepath.FromSlash(layerFile(parent, 0))))
}

// read returns the files below dir. Of what is no regular file and no directory the content is its type.
func read(dir string) (Files, error) {
	files := Files{}
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content := []byte(e.Type().String())
		if e.Type().IsRegular() {
			if content, err = os.ReadFile(at); err != nil {
				return err
			}
		}
		name, err := filepath.Rel(dir, at)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	return files, err
}

// settle flushes the file system of all stores.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only opened
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("flushing the file system of %s: %w", dir, err)
	}
	return nil
}
