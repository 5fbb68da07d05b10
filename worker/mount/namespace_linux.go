package mount

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
	"holdfast/worker/internal/osthread"
)

// Namespace is a mount namespace of a manager: the host's, which is the one that the
// process is in, or the step namespace. Its methods can be called by several goroutines at once.
// It ends with its manager.
type Namespace struct {
	file *os.File // the namespace; nil is that of the process
	jobs chan job

	mu      sync.RWMutex
	threads int
	closed  bool
}

type job struct {
	do   func() error
	done chan error
}

// maxThreads is how many threads a namespace has at most. They start programs and mount;
// what waits does so elsewhere.
const maxThreads = 8

// Start starts a command in the namespace, as cmd.Start does; everything else about the
// command is as ever. Its program and cmd.Dir must be there in the namespace. Without
// cmd.Dir it begins in the root directory, or, in the host's namespace, where the process is.
// With Pdeathsig in cmd.SysProcAttr the command gets the signal when the manager is closed.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Do runs a function on a thread that is in the namespace. What it does with paths happens
// there. It must not keep the thread long: there are eight.
func (n *Namespace) Do(do func() error) error {
	if n.file == nil {
		return do()
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return ErrClosed
	}
	j := job{do: do, done: make(chan error, 1)}
	select {
	case n.jobs <- j:
	default:
		if err := n.more(); err != nil {
			return err
		}
		n.jobs <- j
	}
	return <-j.done
}

// threadsMu guards the number of threads of each namespace.
var threadsMu sync.Mutex

// more adds a thread, if there may be one more.
func (n *Namespace) more() error {
	threadsMu.Lock()
	defer threadsMu.Unlock()
	if n.threads == maxThreads {
		return nil
	}
	ready := make(chan error)
	osthread.Own(func() { n.thread(ready) })
	err := <-ready
	if err == nil {
		n.threads++
	}
	return err
}

// thread serves jobs, on a thread of its own.
func (n *Namespace) thread(ready chan error) {
	err := unix.Unshare(unix.CLONE_FS)
	if err == nil {
		err = unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNS)
	}
	if err != nil {
		ready <- fmt.Errorf("mount: entering a namespace: %w", err)
		return
	}
	ready <- nil
	for j := range n.jobs {
		j.done <- j.do()
	}
}

// close ends the threads. Programs that were started go on.
func (n *Namespace) close() {
	if n == nil || n.file == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	close(n.jobs)
	_ = n.file.Close()
}

// Mounts counts the mounts that are in the namespace.
func (n *Namespace) Mounts() (int, error) {
	count := 0
	err := n.Do(func() error {
		return eachMount("", func(*mountinfo.Mount) { count++ })
	})
	return count, err
}

// eachMount reads the mounts of the namespace that the thread is in.
func eachMount(sub string, each func(*mountinfo.Mount)) error {
	if err := mountinfo.Each(mountinfo.Own, each, sub); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	return nil
}

// under tells whether a path is a directory or lies below it.
func under(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// newNamespace makes a small namespace: root, what programs need, and what leads to the
// directories of keep. dir, which is one of them, is the manager's; mark is the source of
// a tmpfs in it, by which the namespace is known.
func newNamespace(dir, mark string, keep []string) (*Namespace, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	osthread.Own(func() {
		file, err := enterNew(dir, mark, keep)
		made <- result{file, err}
	})
	r := <-made
	if r.err != nil {
		return nil, fmt.Errorf("mount: making a namespace: %w", r.err)
	}
	return &Namespace{file: r.file, jobs: make(chan job)}, nil
}

func enterNew(dir, mark string, keep []string) (*os.File, error) {
	root, marked := filepath.Join(dir, rootDir), filepath.Join(dir, markDir)
	for _, d := range []string{root, marked} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("making all mounts private: %w", err)
	}
	small, err := bindNeeded(root, keep)
	if err != nil {
		return nil, err
	}
	if small {
		marked = filepath.Join(root, marked)
	}
	if err := unix.Mount(mark, marked, "tmpfs", unix.MS_RDONLY, "size=4k,mode=0700"); err != nil {
		return nil, fmt.Errorf("mounting the mark: %w", err)
	}
	if !small {
		return os.Open("/proc/thread-self/ns/mnt")
	}
	// The old root comes to lie over the new one, and goes with all that is on it.
	if err := unix.Chdir(root); err != nil {
		return nil, err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return nil, fmt.Errorf("pivot_root (it cannot leave an initial ramdisk): %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return nil, fmt.Errorf("detaching the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return nil, err
	}
	return os.Open("/proc/thread-self/ns/mnt")
}

// bindNeeded binds what a small namespace has below its new root. It returns false if
// the kernel does not allow it to be small: in a user namespace, what was mounted outside
// of it cannot be taken apart.
func bindNeeded(root string, keep []string) (bool, error) {
	points, err := neededMounts(keep)
	if err != nil {
		return false, err
	}
	for i, p := range points {
		err := unix.Mount(p, filepath.Join(root, p), "", unix.MS_BIND, "")
		if i == 0 && err == unix.EINVAL {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("binding %s: %w", p, err)
		}
	}
	return true, nil
}

// standardMounts are the mounts that programs expect, where they are mounts.
var standardMounts = map[string]bool{
	"/": true, "/proc": true, "/sys": true, "/dev": true, "/dev/pts": true, "/dev/shm": true, "/dev/mqueue": true,
	"/sys/fs/cgroup": true, "/usr": true, "/etc": true, "/bin": true, "/sbin": true, "/lib": true, "/lib64": true,
}

// neededMounts lists the mount points that a small namespace has, each after those that
// it lies on.
func neededMounts(keep []string) ([]string, error) {
	real := make([]string, 0, len(keep))
	for _, k := range keep {
		path, err := filepath.EvalSymlinks(k)
		if err != nil {
			return nil, fmt.Errorf("a directory to keep: %w", err)
		}
		real = append(real, path)
	}
	points := map[string]bool{}
	err := eachMount("", func(m *mountinfo.Mount) {
		cgroup := strings.HasPrefix(m.Type, "cgroup") && under(m.Point, "/sys/fs/cgroup")
		if standardMounts[m.Point] || cgroup {
			points[m.Point] = true
			return
		}
		for _, path := range real {
			if under(path, m.Point) {
				points[m.Point] = true
			}
		}
	})
	sorted := make([]string, 0, len(points))
	for p := range points {
		sorted = append(sorted, p)
	}
	sort.Strings(sorted)
	return sorted, err
}
