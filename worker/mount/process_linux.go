package mount

import (
	"context"
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
	"holdfast/worker/internal/osthread"
)

// This file finds processes by their mount namespace and their cgroup, and ends them.

// group are processes in one mount namespace that have the same root, and so the same
// mountinfo.
type group struct {
	namespace string // as in /proc/PID/ns/mnt
	pids      []int
}

// groups finds the groups of all processes.
func groups() ([]*group, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	type key struct {
		namespace string
		dev, ino  uint64
	}
	found := map[key]*group{}
	var all []*group
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process may end at any time, and a zombie has neither.
		namespace, err := namespaceOf(pid)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join("/proc", e.Name(), "root"), &st); err != nil {
			continue
		}
		at := key{namespace, deviceOf(&st), st.Ino}
		if found[at] == nil {
			found[at] = &group{namespace: namespace}
			all = append(all, found[at])
		}
		found[at].pids = append(found[at].pids, pid)
	}
	return all, nil
}

func namespaceOf(pid int) (string, error) {
	return os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", "mnt"))
}

// eachNamespace calls each for the mounts of all groups whose line in mountinfo holds sub.
func eachNamespace(sub string, each func(*group, *mountinfo.Mount)) error {
	all, err := groups()
	if err != nil {
		return err
	}
	return eachOf(all, sub, each)
}

func eachOf(all []*group, sub string, each func(*group, *mountinfo.Mount)) error {
	for _, g := range all {
		if err := g.mounts(sub, each); err != nil {
			return err
		}
	}
	return nil
}

// mounts reads the mountinfo of the first process of the group that is still there.
func (g *group) mounts(sub string, each func(*group, *mountinfo.Mount)) error {
	for _, pid := range g.pids {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"))
		if err != nil {
			continue
		}
		err = mountinfo.Read(f, func(m *mountinfo.Mount) { each(g, m) }, sub)
		_ = f.Close()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		return err
	}
	return nil
}

// fromInside calls each for all mounts of the groups' namespaces as these have them, whatever root directory their
// processes have. Left out are the namespace of this process, and those that it may not enter.
func fromInside(all []*group, sub string, each func(*group, *mountinfo.Mount)) error {
	own, err := namespaceOf(os.Getpid())
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount: /proc: %w", err)
	}
	defer unix.Close(proc)
	in := map[string][]*group{}
	for _, g := range all {
		if g.namespace != own {
			in[g.namespace] = append(in[g.namespace], g)
		}
	}
	done := make(chan error)
	osthread.Own(func() {
		err := unix.Unshare(unix.CLONE_FS)
		for _, same := range in {
			if err != nil {
				break
			}
			err = mountsInside(proc, same[0], sub, func(m *mountinfo.Mount) {
				for _, g := range same {
					each(g, m)
				}
			})
		}
		done <- err
	})
	if err := <-done; err != nil {
		return fmt.Errorf("mount: looking into namespaces: %w", err)
	}
	return nil
}

// mountsInside has the calling thread enter the namespace of a group, and reads its mounts.
func mountsInside(proc int, g *group, sub string, each func(*mountinfo.Mount)) error {
	for _, pid := range g.pids {
		ns, err := unix.Openat(proc, strconv.Itoa(pid)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it has ended
		}
		err = unix.Setns(ns, unix.CLONE_NEWNS)
		_ = unix.Close(ns)
		if err != nil {
			return nil //nolint:nilerr // not ours, if it may not be entered
		}
		fd, err := unix.Openat(proc, "thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "mountinfo")
		defer f.Close()
		return mountinfo.Read(f, each, sub)
	}
	return nil
}

// endCgroup kills all processes in a cgroup and in those below it, and waits until they
// have ended. A cgroup that is not there has none.
func endCgroup(ctx context.Context, dir string) ([]int, error) {
	var killed []int
	for {
		pids, err := cgroupPids(dir)
		if err != nil || len(pids) == 0 {
			return killed, err
		}
		// What is frozen does not end. (These are files of v1 and of v2.)
		_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
		_ = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
		now, err := endProcesses(ctx, pids, func(pid int) bool {
			again, err := cgroupPids(dir)
			return err == nil && slices.Contains(again, pid)
		})
		killed = append(killed, now...)
		if err != nil {
			return killed, fmt.Errorf("mount: cgroup %s: %w", dir, err)
		}
	}
}

// cgroupPids lists the processes in a cgroup and in those below it, but for this one.
func cgroupPids(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		list, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, line := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(line)
			if err != nil {
				return fmt.Errorf("%s: the line %q", path, line)
			}
			if pid > 0 && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mount: the processes of cgroup %s: %w", dir, err)
	}
	return pids, nil
}

// endProcesses kills processes and waits until they have ended. still is asked when the
// process is held, so that it is not another that has got its number.
func endProcesses(ctx context.Context, pids []int, still func(int) bool) ([]int, error) {
	var killed []int
	for _, pid := range pids {
		if pid <= 1 || pid == os.Getpid() {
			continue
		}
		done, err := endProcess(ctx, pid, still)
		if done {
			killed = append(killed, pid)
		}
		if err != nil {
			return killed, err
		}
	}
	return killed, nil
}

// endProcess kills one process and waits; it returns false if there was nothing to kill.
func endProcess(ctx context.Context, pid int, still func(int) bool) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening the process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !still(pid) {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		if err == unix.ESRCH {
			return false, nil
		}
		return false, fmt.Errorf("killing the process %d: %w", pid, err)
	}
	return true, waitEnded(ctx, fd, pid)
}

// endWait is how long a killed process may take to end. One in an uninterruptible wait can
// take for ever, and then nothing that it holds may be touched.
const endWait = 10 * time.Second

func waitEnded(ctx context.Context, fd, pid int) error {
	deadline := time.Now().Add(endWait)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("waiting for the process %d: %w", pid, err)
		}
		if err := notEnded(ctx, pid, deadline); err != nil {
			return err
		}
	}
}

func notEnded(ctx context.Context, pid int, deadline time.Time) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("waiting for the process %d: %w", pid, err)
	}
	if time.Now().After(deadline) {
		return fmt.Errorf("the process %d of an earlier run was killed and has not ended; what it holds cannot be used: %w", pid, ErrBusy)
	}
	return nil
}
