package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
	"holdfast/worker/internal/osthread"
)

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
