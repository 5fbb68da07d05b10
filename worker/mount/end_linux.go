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
)

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
