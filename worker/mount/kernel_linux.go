package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/internal/mountinfo"
)

// kernel is what a manager has in the kernel.
type kernel struct {
	dir      string // the manager's own, on a tmpfs
	prefix   string // of all names of this run
	keep     []string
	features *kernelFeatures
	host     *Namespace
	points   atomic.Uint64
	served   map[string]Mounter
	ownTmp   bool // the tmpfs at dir was mounted for it

	events   *unmountEvents // nil: there are none
	searches atomic.Uint64  // of the mounts of all processes

	mu      sync.Mutex
	steps   *Namespace             // where programs are started
	staging *Namespace             // where masters are attached
	users   map[idmap.Map]*os.File // user namespaces
}

func newKernel(o *Options) (*kernel, error) {
	if err := errors.Join(kernelSupported(), mayMount()); err != nil {
		return nil, err
	}
	k := &kernel{dir: o.Directory, host: &Namespace{}, served: o.Mounters}
	if err := k.ensureTmpfs(); err != nil {
		return nil, err
	}
	k.keep = append([]string{k.dir}, o.Keep...)
	for _, d := range []string{mastersDir, pointsDir} {
		if err := os.MkdirAll(filepath.Join(k.dir, d), 0o700); err != nil {
			return nil, fmt.Errorf("mount: %w", err)
		}
	}
	var err error
	if k.features, err = probe(k.dir, o.Without, o.Logger); err != nil {
		return nil, errors.Join(err, k.removeTmpfs())
	}
	if k.features.has(FeatureInotify) {
		if k.events, err = newUnmountEvents(); err != nil {
			k.features.lacks(FeatureInotify, err)
		}
	}
	return k, nil
}

// mayMount tells whether the process has the privilege that nearly all of this needs.
func mayMount() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("mount: capget: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return fmt.Errorf("mount: mounting needs CAP_SYS_ADMIN, which root has, or who is root in a user namespace: %w", os.ErrPermission)
	}
	return nil
}

// ensureTmpfs makes the manager's directory, on a tmpfs of its own if it is not on one.
func (k *kernel) ensureTmpfs() error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	real, err := filepath.EvalSymlinks(k.dir)
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	k.dir = real
	var st unix.Statfs_t
	if err := unix.Statfs(k.dir, &st); err != nil {
		return fmt.Errorf("mount: %s: %w", k.dir, err)
	}
	if typeOf(&st) == unix.TMPFS_MAGIC {
		return eachMount(" "+tmpfsSource+" ", func(m *mountinfo.Mount) {
			k.ownTmp = k.ownTmp || m.Point == k.dir
		})
	}
	err = unix.Mount(tmpfsSource, k.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64m,mode=0700")
	if err != nil {
		return fmt.Errorf("mount: a tmpfs at %s, for what is mounted: %w", k.dir, err)
	}
	k.ownTmp = true
	return nil
}

// tmpfsSource is the source of the tmpfs at a manager's directory.
const tmpfsSource = "holdfast"

// stepNamespace is where programs are started. It is made when it is first asked for.
func (k *kernel) stepNamespace() (*Namespace, error) { return k.namespace(&k.steps, stepMark) }

// stagingNamespace is where masters are attached that cannot be cloned while they are detached. It is made when it is
// first asked for.
func (k *kernel) stagingNamespace() (*Namespace, error) { return k.namespace(&k.staging, stagingMark) }

func (k *kernel) namespace(made **Namespace, mark string) (*Namespace, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if *made == nil {
		n, err := newNamespace(k.dir, k.prefix+mark, k.keep)
		if err != nil {
			return nil, err
		}
		*made = n
	}
	return *made, nil
}

// unmake unmounts a master. It can be called again after an error.
func (k *kernel) unmake(m *master) error {
	if m.closed != nil { // a caller that sees the mount gone may unmount the file systems of its layers
		<-m.closed
	}
	if m.fd >= 0 {
		_ = unix.Close(m.fd)
		m.fd = -1
	}
	if m.release != nil {
		return m.release()
	}
	if m.path == "" {
		return nil
	}
	return m.from.Do(func() error { return unmountPoint(m.path) })
}

// leaves tells whether a master is detached, and the kernel tells when its file system has left it.
func (k *kernel) leaves(m *master) bool {
	return m.left != nil && m.path == "" && m.release == nil && k.events.known()
}

// release closes a master that is detached.
func (k *kernel) release(m *master) { _ = unix.Close(m.fd) }

// unmountPoint unmounts what is at a mount point that is the manager's own, with what has come with it below it, and
// removes the point.
func unmountPoint(path string) error {
	err := unmount(path)
	if errors.Is(err, unix.EBUSY) {
		err = unmountTree(path)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// unmount unmounts what is at a path. That nothing is there is no error.
func unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if err == nil || err == unix.EINVAL || err == unix.ENOENT {
		return nil
	}
	return fmt.Errorf("umount %s: %w", path, err)
}

// unmountTree unmounts what is at a path, and before it what is below, the last first. In a user namespace what came
// there with a recursive mount from outside cannot be unmounted by itself, but goes with the mount that it came with.
func unmountTree(path string) error {
	below, err := listBelow(path)
	for _, p := range slices.Backward(below) {
		if err == nil {
			err = unmount(p)
		}
	}
	if err == nil {
		below, err = listBelow(path)
	}
	if err != nil {
		return err
	}
	if len(below) == 0 {
		return unmount(path)
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return fmt.Errorf("umount -l %s: %w", path, err)
	}
	return nil
}

// listBelow lists what is mounted below a path in the namespace of the thread.
func listBelow(path string) (points []string, err error) {
	if path != "/" {
		path += "/"
	}
	err = eachMount(" "+mountinfo.Escape(path), func(m *mountinfo.Mount) {
		if strings.HasPrefix(m.Point, path) {
			points = append(points, m.Point)
		}
	})
	return points, err
}

// attach makes a clone of a master at a path in a namespace.
func (k *kernel) attach(m *master, recursive bool, n *Namespace, path string) error {
	clone, err := k.clone(m, recursive)
	if err != nil {
		return err
	}
	defer unix.Close(clone)
	return n.Do(func() error {
		if err := unix.MoveMount(clone, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("move_mount to %s: %w", path, err)
		}
		return nil
	})
}

// clone makes a detached clone of a master.
func (k *kernel) clone(m *master, recursive bool) (int, error) {
	flags := uint(0)
	if recursive {
		flags = unix.AT_RECURSIVE
	}
	fd := -1
	err := m.from.Do(func() (err error) {
		if m.path != "" {
			fd, err = cloneTree(unix.AT_FDCWD, m.path, flags)
		} else {
			fd, err = cloneTree(m.fd, "", flags)
		}
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	return fd, nil
}

// detach unmounts an attachment. made tells whether the mount point is the manager's own.
func (k *kernel) detach(n *Namespace, path string, made bool) error {
	return n.Do(func() error {
		if made {
			return unmountPoint(path)
		}
		return unmount(path)
	})
}

// close ends the threads, and takes away the tmpfs if all is gone.
func (k *kernel) close() {
	k.mu.Lock()
	steps, staging := k.steps, k.staging
	k.mu.Unlock()
	steps.close()
	staging.close()
	k.closeUsers()
	if k.events != nil {
		k.events.close()
	}
}

// removeTmpfs unmounts the tmpfs that was mounted for the directory. What was just closed in it
// can keep it busy for a moment, though no process has it any more: the kernel lets files and
// namespaces go in the background.
func (k *kernel) removeTmpfs() error {
	if !k.ownTmp {
		return nil
	}
	const patience = time.Second
	wait := time.Millisecond
	for waited := time.Duration(0); ; waited += wait {
		err := unmount(k.dir)
		if !errors.Is(err, unix.EBUSY) || waited >= patience {
			return err
		}
		time.Sleep(wait)
		wait *= 2
	}
}

// defaultMaxMounts is what half of the process's descriptors and 64 MiB allow.
func defaultMaxMounts() int {
	most := 64 << 20 / KernelBytesPerMount
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && limit.Cur/2 < uint64(most) {
		most = int(limit.Cur / 2)
	}
	return most
}

// deviceOf is the number of the file system that a file is on.
func deviceOf(st *unix.Stat_t) uint64 {
	return uint64(st.Dev) //nolint:unconvert // on mips it is an uint32
}

// typeOf is the number of the type of a file system.
func typeOf(st *unix.Statfs_t) int64 {
	return int64(st.Type) //nolint:unconvert // on 32-bit systems it is an int32
}
