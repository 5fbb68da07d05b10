package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/zfsfuse"
)

// What zfs-fuse has for the whole machine: its socket, its lock, and its cache of pools, of which
// a stale one would break later runs.
var zfsDirs = []string{"/var/run/zfs", "/var/lock/zfs", "/var/lib/zfs"}

// kstatDir is a directory that the daemon makes.
const kstatDir = "/zfs-kstat"

// envZFS marks a process that is alone with its zfs-fuse.
const envZFS = "HOLDFAST_TEST_ZFS"

// wantZFS has the tests run that need zfs-fuse.
const wantZFS = "HOLDFAST_ZFS"

// NeedZFS skips a test that needs zfs-fuse, unless it is wanted: zfs-fuse 0.7.0 hangs, or leaves a dataset busy, in
// one run of the tests of a few, at a mount or unmount.
func NeedZFS(t testing.TB) {
	t.Helper()
	switch {
	case os.Geteuid() != 0:
		t.Skip("needs root: it runs a zfs-fuse of its own")
	case os.Getenv(wantZFS) == "":
		t.Skip("zfs-fuse hangs now and then: scripts/test zfs, or HOLDFAST_ZFS=1, runs it")
	}
}

// MainZFS is Main for a package that tests ZFS by means of zfs-fuse. As root it runs the tests in mount and process
// namespaces of their own, where they have directories for a daemon of their own. Whatever becomes of them, the
// kernel ends the daemon and its mounts with the first process there, and that with this one.
func MainZFS(m *testing.M) int {
	if os.Geteuid() != 0 || os.Getenv(wantZFS) == "" {
		return Main(m)
	}
	if os.Getenv(envZFS) == "" {
		return alone()
	}
	if err := own(); err != nil {
		fmt.Fprintln(os.Stderr, "namespaces for zfs-fuse:", err)
		return 1
	}
	code := Main(m)
	StopZFS()
	return code
}

func alone() int {
	runtime.LockOSThread() // the child is killed with the thread that has started it
	_, err := os.Lstat(kstatDir)
	mine := errors.Is(err, os.ErrNotExist)
	dir, err := os.MkdirTemp("", "holdfast-zfs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) // also what a killed process has left; nothing of it is mounted here
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envZFS+"=1", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if mine {
		_ = os.Remove(kstatDir)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func own() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, dir := range zfsDirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// zfsDaemon is the one of this process.
var zfsDaemon struct {
	sync.Mutex
	cmd   *exec.Cmd
	pools int
}

// StartZFS starts the daemon unless it runs. It knows again the pools that an earlier one had.
func StartZFS() error {
	zfsDaemon.Lock()
	defer zfsDaemon.Unlock()
	if zfsDaemon.cmd != nil {
		return nil
	}
	if os.Getenv(envZFS) == "" {
		return errors.New("zfs-fuse is started by tests with the main function MainZFS only")
	}
	path, err := exec.LookPath("zfs-fuse")
	if err != nil {
		return fmt.Errorf("%w; Debian has it in zfs-fuse", err)
	}
	cmd := exec.Command(path, "-x", "-n")
	if err := cmd.Start(); err != nil {
		return err
	}
	zfsDaemon.cmd = cmd
	var out []byte
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if out, err = exec.Command("zpool", "list").CombinedOutput(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("zfs-fuse does not answer: %w: %s", err, out)
}

// StopZFS kills the daemon with SIGKILL, and waits until it has ended.
func StopZFS() {
	zfsDaemon.Lock()
	defer zfsDaemon.Unlock()
	if zfsDaemon.cmd != nil {
		_ = zfsDaemon.cmd.Process.Kill()
		_ = zfsDaemon.cmd.Wait()
		zfsDaemon.cmd = nil
	}
}

// ZFS runs zfs or zpool when nobody else speaks with the daemon, and returns what it prints.
func ZFS(program string, args ...string) ([]byte, error) {
	turn, err := zfsfuse.Begin(context.Background())
	if err != nil {
		return nil, err
	}
	defer turn.End()
	return exec.Command(program, args...).CombinedOutput()
}

// MakePool makes a pool in the file image, of a number of bytes that is 64 MiB at least, and returns its name, and
// what destroys it.
func MakePool(image string, size int64) (pool string, destroy func() error, err error) {
	if err := StartZFS(); err != nil {
		return "", nil, err
	}
	f, err := os.Create(image)
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return "", nil, err
	}
	zfsDaemon.Lock()
	zfsDaemon.pools++
	pool = fmt.Sprintf("test%d", zfsDaemon.pools)
	zfsDaemon.Unlock()
	if out, err := ZFS("zpool", "create", "-m", "none", pool, image); err != nil {
		return "", nil, fmt.Errorf("zpool create: %w: %s", err, out)
	}
	return pool, func() error {
		var out []byte
		var err error
		// The daemon learns some time later that something was unmounted.
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
			if out, err = ZFS("zpool", "destroy", pool); err == nil {
				return os.Remove(image)
			}
			if !strings.Contains(string(out), "pool is busy") {
				break
			}
		}
		return fmt.Errorf("zpool destroy %s: %w: %s", pool, err, strings.TrimSpace(string(out)))
	}, nil
}

// Pool makes a pool for as long as the test takes. Without root the test is skipped; without
// zfs-fuse, it fails.
func Pool(t testing.TB, size int64) string {
	t.Helper()
	NeedZFS(t)
	pool, destroy, err := MakePool(filepath.Join(t.TempDir(), "image"), size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := destroy(); err != nil {
			t.Error(err)
		}
	})
	return pool
}
