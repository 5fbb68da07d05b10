//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside is set in the environment of the process that does the work.
const inside = "HOLDFAST_PROGRAMS_INSIDE"

// enter starts this program again in namespaces of its own, of processes and of mounts, and returns its exit code. However the two of them
// end, with kill -9 too, the kernel then ends all daemons, shims and containers, and unmounts what is mounted.
func enter() int {
	runtime.LockOSThread() // whose end would be taken for that of this process
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "programs: start in namespaces of its own, which takes root:", err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	default:
		fmt.Fprintln(os.Stderr, "programs:", err)
		return 1
	}
}

// settleIn makes the namespaces those of this process: no mount gets out, and /proc shows its own processes.
func settleIn() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// workDir makes a directory for one run, and removes those of runs that were killed. It is the run's as long as lock is open.
func workDir(parent string) (dir string, lock *os.File, err error) {
	const name = "holdfast-programs"
	old, err := filepath.Glob(filepath.Join(parent, name+"*", "lock"))
	if err != nil {
		return "", nil, err
	}
	for _, name := range old {
		if held, err := tryLock(name); err != nil || held == nil {
			continue // in use, or of another user
		} else if err := errors.Join(os.RemoveAll(filepath.Dir(name)), held.Close()); err != nil {
			return "", nil, err
		}
	}
	if dir, err = os.MkdirTemp(parent, name); err != nil {
		return "", nil, err
	}
	lock, err = tryLock(filepath.Join(dir, "lock"))
	if err == nil && lock == nil {
		err = errors.New("another process has locked it")
	}
	return dir, lock, err
}

// tryLock opens a file, or creates it, and locks it. It returns nil if another process holds the lock.
func tryLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}
