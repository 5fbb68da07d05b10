package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
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
func eachNamespace(sub string, each func(*group, *mountinfo)) error {
	all, err := groups()
	if err != nil {
		return err
	}
	for _, g := range all {
		if err := g.mounts(sub, each); err != nil {
			return err
		}
	}
	return nil
}

// mounts reads the mountinfo of the first process of the group that is still there.
func (g *group) mounts(sub string, each func(*group, *mountinfo)) error {
	for _, pid := range g.pids {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"))
		if err != nil {
			continue
		}
		err = readMountinfo(f, sub, func(m *mountinfo) { each(g, m) })
		_ = f.Close()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		return err
	}
	return nil
}
