package step

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// This file puts the processes of a step into cgroups of their own. In a hierarchy in which the step has a
// limit, the group with the limit (cgroup_linux.go) is the parent of that in which the processes are, so
// that a step that could write its own could not lift the limit.
//
// A process that is moved from one group to another makes the kernel wait until no process forks, some
// milliseconds. So it is never moved, but begins in its group: in hierarchies of version 1 since the thread
// that starts it has gone there before (that a thread moves itself is cheap) and goes home afterwards; in
// version 2 by clone.

// hierarchy is a tree of cgroups.
type hierarchy struct {
	at      string   // where it is mounted
	root    string   // the group that is seen there
	options []string // of version 1: controllers and names
	v2      bool
}

// hierarchyOf is the hierarchy that is mounted. ok is false for other mounts.
func hierarchyOf(m *mountinfo.Mount) (h hierarchy, ok bool) {
	h = hierarchy{at: m.Point, root: m.Root, v2: m.Type == "cgroup2"}
	if m.Type == "cgroup" {
		h.options = strings.Split(m.Options, ",")
	}
	return h, (h.v2 || m.Type == "cgroup") && strings.HasPrefix(m.Point, "/sys/fs/cgroup")
}

// home is the group that the calling thread is in, of a hierarchy of version 1, as a path.
func (h *hierarchy) home() (string, error) {
	b, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(b), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) < 3 || !slices.Contains(h.options, strings.Split(parts[1], ",")[0]) {
			continue
		}
		rest, ok := strings.CutPrefix(parts[2], strings.TrimSuffix(h.root, "/"))
		if !ok {
			return "", fmt.Errorf("the group %s is not below %s: %w", parts[2], h.root, errors.ErrUnsupported)
		}
		return filepath.Join(h.at, rest), nil
	}
	return "", fmt.Errorf("no group in %s: %w", h.at, errors.ErrUnsupported)
}

// places are the hierarchies in which steps get groups of their own.
type places struct {
	*cgroups
	in    []hierarchy
	homes []int // where threads go back to: the file tasks of each of version 1
	clone bool  // the kernel can start a process in a group of version 2
}

// left are the hierarchies of version 1 in which steps stay in the groups of this process. Joining a group
// of cpuset makes a process forget to which processors it was bound; systemd knows by its own what belongs
// to a service; the others only count.
func (h *hierarchy) left() bool {
	return slices.ContainsFunc(h.options, func(o string) bool { return o == "cpuset" || strings.HasPrefix(o, "name=") }) ||
		!h.v2 && !slices.ContainsFunc(h.options, func(o string) bool { return slices.Contains(bounding, o) })
}

// bounding are the controllers that can stop, slow down or bound the processes of a group.
var bounding = []string{"blkio", "cpu", "devices", "freezer", "hugetlb", "memory", "net_cls", "net_prio", "pids", "rdma", "misc"}

// openPlaces finds out where groups can be made.
func (c *cgroups) openPlaces() *places {
	p := &places{cgroups: c, clone: canClone()}
	for _, h := range c.all {
		if h.left() {
			continue
		}
		if err := os.Mkdir(filepath.Join(h.at, c.name), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			continue
		}
		if !h.v2 {
			home, err := h.home()
			fd := -1
			if err == nil {
				fd, err = unix.Open(filepath.Join(home, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			}
			if err != nil {
				continue
			}
			p.homes = append(p.homes, fd)
		}
		p.in = append(p.in, h)
	}
	return p
}

func (p *places) close() {
	if p != nil {
		closeAll(p.homes)
	}
}

// v2 tells whether there is a hierarchy of version 2.
func (p *places) v2() bool { return slices.ContainsFunc(p.in, func(h hierarchy) bool { return h.v2 }) }

// place is where the processes of a step are.
type place struct {
	of      *places
	dirs    []string
	tasks   []int // of version 1: where a thread joins
	unified int   // the directory of version 2; -1
	joined  bool  // the thread that starts the step is in it
}

// innerGroup is the name of the group in which processes are, below that with their limits.
const innerGroup = "step"

// make makes the groups of a step, with the name of that with its limits.
func (p *places) make(name string, limits *group) (*place, error) {
	l := &place{of: p, unified: -1}
	for _, h := range p.in {
		dir := filepath.Join(h.at, p.name, name)
		if slices.Contains(limits.dirs, dir) {
			dir = filepath.Join(dir, innerGroup)
		}
		err := makeGroup(dir, filepath.Join(h.at, p.name))
		if err == nil {
			l.dirs = append(l.dirs, dir)
			err = l.open(dir, h.v2)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the cgroup %s: %w", dir, err), l.remove())
		}
	}
	return l, nil
}

// makeGroup makes a group, and that of all steps anew if it is gone: something that tidies up, as a systemd does when it ends,
// removes groups that are empty. A group with limits is not made anew: it would have none.
func makeGroup(dir, all string) error {
	for {
		err := unix.Mkdir(dir, 0o755)
		if err != unix.ENOENT || filepath.Dir(dir) != all {
			return err
		}
		if err := unix.Mkdir(all, 0o755); err != nil && err != unix.EEXIST {
			return err
		}
	}
}

func (l *place) open(dir string, v2 bool) (err error) {
	if v2 {
		l.unified, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	}
	fd, err := unix.Open(filepath.Join(dir, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		l.tasks = append(l.tasks, fd)
	}
	return err
}

// self is what a thread writes to move itself.
var self = []byte("0")

// join has the calling thread join the groups of version 1, and what it starts begin in all of them.
func (l *place) join(attr *syscall.SysProcAttr) error {
	l.joined = true
	for _, fd := range l.tasks {
		if _, err := unix.Write(fd, self); err != nil {
			return fmt.Errorf("joining a cgroup: %w", err)
		}
	}
	if l.unified >= 0 && l.of.clone {
		attr.UseCgroupFD, attr.CgroupFD = true, l.unified
	}
	return nil
}

// leave has the thread go home.
func (l *place) leave() error {
	if !l.joined {
		return nil
	}
	for _, fd := range l.of.homes {
		if _, err := unix.Write(fd, self); err != nil {
			return fmt.Errorf("leaving a cgroup: %w", err)
		}
	}
	l.joined = false
	return nil
}

// move moves a process that runs to the group of version 2, if it could not begin there.
func (l *place) move(pid int) error {
	if l.unified < 0 || l.of.clone {
		return nil
	}
	fd, err := unix.Openat(l.unified, "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, fmt.Append(nil, pid))
		_ = unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("joining a cgroup: %w", err)
	}
	return nil
}

// remove ends what is left in the groups, and removes them.
func (l *place) remove() error {
	if l == nil {
		return nil
	}
	closeAll(append(l.tasks, l.unified))
	var errs []error
	for _, dir := range l.dirs {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

// groups are the cgroups of a job: that with its limits, and those in which its processes are.
type groups struct {
	group *group
	place *place
	err   error // why there are none
}

func (g groups) remove() error { return errors.Join(g.place.remove(), g.group.remove()) }

// groups makes the cgroups of a job.
func (o *openNative) groups(name string, limits Limits) groups {
	if limits.Pids == 0 {
		limits.Pids = o.pids
	}
	g, err := o.cgroups.prepare(name, &limits)
	if err != nil {
		return groups{err: err}
	}
	place, err := o.places.make(name, g)
	if err != nil {
		return groups{err: errors.Join(err, g.remove())}
	}
	return groups{group: g, place: place}
}

// canClone tells whether the kernel can start a process in a group of version 2 (Linux 5.7). It is asked for one in a
// group of a descriptor that does not exist.
func canClone() bool {
	const intoCgroup = 1 << 33
	args := [11]uint64{0: intoCgroup | unix.CLONE_VM | unix.CLONE_VFORK, 4: uint64(unix.SIGCHLD), 10: 1<<31 - 1}
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	return errno == unix.EBADF
}
