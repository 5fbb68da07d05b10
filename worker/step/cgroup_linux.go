package step

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// This file has the groups with the limits of steps; place_linux.go has those in which their processes are.
//
// containerd/cgroups does not serve: it opens each file by its path, again for each process, and the thread that
// starts a command sees no cgroups, so descriptors are held here; it moves processes, by their ids, where steps begin
// in their group; and it removes no group that has processes.

// cgroups is where groups of steps can be made: for each controller a directory in a hierarchy of version 1, or
// that of version 2.
type cgroups struct {
	name string
	v1   map[string]string // controller -> where its hierarchy is mounted
	v2   string            // where that of version 2 is mounted; ""
	has  []string          // the controllers that it has
	all  []hierarchy
}

// controllers are those for which there are limits.
var controllers = []string{"memory", "cpu", "pids"}

// findCgroups looks for hierarchies in the mountinfo of the process.
func findCgroups(name string) (*cgroups, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return nil, invalidf("%q is not a name of a cgroup", name)
	}
	c := &cgroups{name: name, v1: map[string]string{}}
	err := mountinfo.Each(mountinfo.Own, func(m *mountinfo.Mount) {
		h, ok := hierarchyOf(m)
		if !ok {
			return
		}
		c.all = append(c.all, h)
		if h.v2 {
			c.v2 = h.at
		}
		for _, o := range h.options {
			if slices.Contains(controllers, o) {
				c.v1[o] = h.at
			}
		}
	}, " /sys/fs/cgroup")
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	if c.v2 != "" {
		b, _ := os.ReadFile(filepath.Join(c.v2, "cgroup.controllers"))
		c.has = strings.Fields(string(b))
	}
	return c, nil
}

// dirs are the directories of the name, in all hierarchies.
func (c *cgroups) dirs() []string {
	all := make([]string, len(c.all))
	for i, h := range c.all {
		all[i] = filepath.Join(h.at, c.name)
	}
	return all
}

// clean removes the groups that an earlier run has left, and ends what is in them.
func (c *cgroups) clean() error {
	for _, dir := range c.everywhere() {
		var found []string
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() && path != dir {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("step: %w", err)
		}
		slices.Reverse(found) // what lies deeper comes first
		for _, path := range found {
			if err := removeGroup(path); err != nil {
				return fmt.Errorf("step: a cgroup of an earlier run: %w", err)
			}
		}
	}
	return nil
}

// removeEverywhere removes the groups of a name in all hierarchies, with what is in them.
func (c *cgroups) removeEverywhere(name string) error {
	var errs []error
	for _, dir := range c.everywhere() {
		below, _ := filepath.Glob(filepath.Join(dir, name, "*", "cgroup.procs"))
		for _, f := range below {
			errs = append(errs, removeGroup(filepath.Dir(f)))
		}
		errs = append(errs, removeGroup(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// removeAll removes the directories of the name, where nothing is in them.
func (c *cgroups) removeAll() {
	for _, dir := range c.everywhere() {
		_ = unix.Rmdir(dir)
	}
}

// kill kills the processes in the groups of a name, and in those directly below them.
func (c *cgroups) kill(name string) {
	for _, dir := range c.everywhere() {
		killMembers(filepath.Join(dir, name))
		below, _ := filepath.Glob(filepath.Join(dir, name, "*", "cgroup.procs"))
		for _, f := range below {
			killMembers(filepath.Dir(f))
		}
	}
}

// killMembers kills the processes in a group.
func killMembers(dir string) {
	for _, pid := range members(dir) {
		// Held, and looked for once more, so that it is not another that has got its number.
		fd, err := unix.PidfdOpen(pid, 0)
		if err == unix.ESRCH || !slices.Contains(members(dir), pid) {
			_ = unix.Close(fd)
			continue
		}
		if err != nil || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_ = unix.Close(fd)
	}
}

// members are the processes in a group, but for this one.
func members(dir string) []int {
	list, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	var pids []int
	for _, text := range strings.Fields(string(list)) {
		if pid, err := strconv.Atoi(text); err == nil && pid > 1 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// everywhere are the directories of the name in all hierarchies that there are, those of controllers that only
// runc uses included.
func (c *cgroups) everywhere() []string {
	all, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", c.name))
	return append(all, filepath.Join("/sys/fs/cgroup", c.name))
}

// removeTries is how often a group is tried to be removed, a millisecond apart: the last process
// in it can be on its way out.
const removeTries = 1000

// removeGroup removes a group, and ends what is in it.
func removeGroup(dir string) error {
	for try := 0; ; try++ {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY || try == removeTries {
			return fmt.Errorf("removing %s: %w", dir, err)
		}
		killMembers(dir)
		time.Sleep(time.Millisecond)
	}
}

// group is that of one step.
type group struct {
	dirs   []string
	memory string // the directory with the memory controller; ""
	v1     bool   // of that
	limit  int64  // of memory, in bytes
	limits Limits
	later  []lateLimit
}

// lateLimit is a limit that bound sets.
type lateLimit struct {
	controller, dir string
	v1              bool
}

// make makes a group with limits; errors.ErrUnsupported if there is no controller for one.
func (c *cgroups) make(name string, l *Limits) (g *group, err error) {
	if g, err = c.prepare(name, l); err != nil {
		return g, err
	}
	if err := g.bound(0); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// prepare makes a group with the limit of memory. Those of processes and processors would be in the way of a thread
// that starts a command in the group: bound sets them.
func (c *cgroups) prepare(name string, l *Limits) (g *group, err error) {
	g = &group{limits: *l}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}()
	for _, want := range []struct {
		controller string
		set        bool
	}{{"memory", l.Memory > 0}, {"cpu", l.CPU > 0}, {"pids", l.Pids > 0}} {
		if !want.set {
			continue
		}
		dir, v1, err := c.add(g, want.controller, name)
		if err != nil {
			return g, fmt.Errorf("the limit of %s: %w", want.controller, err)
		}
		if want.controller != "memory" {
			g.later = append(g.later, lateLimit{want.controller, dir, v1})
			continue
		}
		g.memory, g.v1, g.limit = dir, v1, l.Memory
		if err := writeLimit(dir, "memory", v1, l); err != nil {
			return g, fmt.Errorf("the limit of memory: %w", err)
		}
	}
	return g, nil
}

// bound sets the limits that prepare has not set, that of processes to so many at least.
func (g *group) bound(pids int64) error {
	limits := g.limits
	limits.Pids = max(limits.Pids, pids)
	for _, l := range g.later {
		if err := writeLimit(l.dir, l.controller, l.v1, &limits); err != nil {
			return fmt.Errorf("the limit of %s: %w", l.controller, err)
		}
	}
	return nil
}

// can tells whether there is a controller.
func (c *cgroups) can(controller string) bool {
	return c.v1[controller] != "" || slices.Contains(c.has, controller)
}

func (c *cgroups) missing(controller string) error {
	return fmt.Errorf("the machine has no cgroup controller %q, which the limit of %s needs: %w", controller, controller, errors.ErrUnsupported)
}

// add makes the directory of a group in the hierarchy of a controller.
func (c *cgroups) add(g *group, controller, name string) (dir string, v1 bool, err error) {
	base := c.v1[controller]
	v1 = base != ""
	if !v1 {
		if !slices.Contains(c.has, controller) {
			return "", false, c.missing(controller)
		}
		base = c.v2
	}
	parent := filepath.Join(base, c.name)
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", v1, notAllowed(err)
	}
	if !v1 {
		for _, d := range []string{base, parent} {
			if err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
				return "", v1, notAllowed(err)
			}
		}
	}
	dir = filepath.Join(parent, name)
	if slices.Contains(g.dirs, dir) {
		return dir, v1, nil
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", v1, notAllowed(err)
	}
	g.dirs = append(g.dirs, dir)
	return dir, v1, nil
}

// notAllowed says of what the kernel forbids that limits are not to be had.
func notAllowed(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("cgroups cannot be made here: %w: %w", err, errors.ErrUnsupported)
	}
	return err
}

const cpuPeriod = 100_000 // microseconds

func writeLimit(dir, controller string, v1 bool, l *Limits) error {
	put := func(file, value string) error {
		return os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
	}
	quota := strconv.FormatInt(max(int64(l.CPU*cpuPeriod), 1000), 10) // the kernel's least
	memory := strconv.FormatInt(l.Memory, 10)
	switch {
	case controller == "pids":
		return put("pids.max", strconv.FormatInt(l.Pids, 10))
	case controller == "cpu" && v1:
		return errors.Join(put("cpu.cfs_period_us", strconv.Itoa(cpuPeriod)), put("cpu.cfs_quota_us", quota))
	case controller == "cpu":
		return put("cpu.max", fmt.Sprintf("%s %d", quota, cpuPeriod))
	case v1:
		if err := put("memory.limit_in_bytes", memory); err != nil {
			return err
		}
		return optional(put("memory.memsw.limit_in_bytes", memory))
	}
	if err := put("memory.max", memory); err != nil {
		return err
	}
	return errors.Join(optional(put("memory.swap.max", "0")), optional(put("memory.oom.group", "1")))
}

// optional is nil for a file that the kernel does not have.
func optional(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}

// happened tells whether the kernel has counted an event of a controller in the group or in that of its processes.
func happened(dir, file, event string) bool {
	for _, d := range []string{dir, filepath.Join(dir, innerGroup)} {
		b, _ := os.ReadFile(filepath.Join(d, file))
		for line := range strings.Lines(string(b)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), event+" "); ok && n != "0" {
				return true
			}
		}
	}
	return false
}

// measure reads what the kernel knows of the memory of the group, and whether it has refused a process.
func (g *group) measure(e *ended) {
	if g == nil {
		return
	}
	for _, l := range g.later {
		if l.controller == "pids" && happened(l.dir, "pids.events", "max") {
			e.crowded = true
		}
	}
	if g.memory == "" {
		return
	}
	peak, events := "memory.peak", "memory.events"
	if g.v1 {
		peak, events = "memory.max_usage_in_bytes", "memory.oom_control"
	}
	if b, err := os.ReadFile(filepath.Join(g.memory, peak)); err == nil {
		n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		e.usage.Memory = max(n, 0)
	}
	if happened(g.memory, events, "oom_kill") {
		e.oom = true
	}
	// Version 1 does not count in a group what was killed in those below it, where runc puts the
	// processes: one that was killed when there was no memory left was killed for that.
	if g.v1 && e.code == 128+int(unix.SIGKILL) && e.usage.Memory >= g.limit-oomSlack {
		e.oom = true
	}
}

// oomSlack is how much of a limit the kernel leaves unused when it kills, at most.
const oomSlack = 1 << 20

func (g *group) remove() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, d := range g.dirs {
		errs = append(errs, removeGroup(d))
	}
	return errors.Join(errs...)
}
