package zfsfuse

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
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// daemon is a process of zfs-fuse.
type daemon struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	how    *os.ProcessState // when it has ended
	killed atomic.Bool      // by us
}

// zfs is the daemon of this process.
var zfs struct {
	sync.Mutex
	daemon *daemon
	pools  int
}

func running() *daemon {
	zfs.Lock()
	defer zfs.Unlock()
	return zfs.daemon
}

// Start starts the daemon unless it runs. It knows again the pools that an earlier one had.
func Start() error {
	if running() != nil {
		return nil
	}
	if !InOwn() {
		return errors.New("zfs-fuse is started by tests that call Own only")
	}
	d, err := startDaemon()
	if err != nil {
		return fmt.Errorf("%w; Debian has it in zfs-fuse", err)
	}
	zfs.Lock()
	zfs.daemon = d
	zfs.Unlock()
	var out []byte
	for began := time.Now(); time.Since(began) < commandLimit; time.Sleep(20 * time.Millisecond) {
		if out, err = Run("zpool", "list"); err == nil {
			return nil
		}
	}
	return fmt.Errorf("zfs-fuse does not answer: %w: %s", err, out)
}

// startDaemon starts a daemon that is killed when this process is, even if a thread of that waits for the daemon.
func startDaemon() (*daemon, error) {
	// Its mount of statistics would be in one directory for the whole machine.
	d := &daemon{cmd: exec.Command("zfs-fuse", "-x", "-n", "--no-kstat-mount"), ended: make(chan struct{})}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // it is killed with the thread that has started it
		err := d.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = d.cmd.Wait()
		d.how = d.cmd.ProcessState
		close(d.ended)
	}()
	return d, <-started
}

// Stop kills the daemon with SIGKILL, and waits until it has ended.
func Stop() {
	zfs.Lock()
	defer zfs.Unlock()
	if d := zfs.daemon; d != nil {
		d.killed.Store(true)
		_ = d.cmd.Process.Kill()
		<-d.ended
		zfs.daemon = nil
	}
}

// Pause stops the daemon until the function is called that it returns.
func Pause() (resume func(), err error) {
	d := running()
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	resume = func() { _ = d.cmd.Process.Signal(syscall.SIGCONT) }
	for {
		stopped, err := d.stopped()
		if err != nil {
			resume()
			return nil, err
		}
		if stopped {
			return resume, nil
		}
		time.Sleep(time.Millisecond)
	}
}

// AwaitIdle returns when the daemon of the tests handles nothing.
func AwaitIdle() error {
	d := running()
	for !Idle(d.cmd.Process.Pid) {
		if err := d.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// stopped tells whether all threads have stopped.
func (d *daemon) stopped() (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.cmd.Process.Pid))
	for _, path := range stats {
		stat, e := os.ReadFile(path)
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return false, e
		}
	}
	return len(stats) > 0, err
}

// Run runs the daemon's zfs or zpool in a session, and returns what it prints.
func Run(program string, args ...string) ([]byte, error) {
	s, err := Begin(context.Background())
	if err != nil {
		return nil, err
	}
	defer s.End()
	cmd, err := real(context.Background(), program, args...)
	if err != nil {
		return nil, err
	}
	return cmd.CombinedOutput()
}

// MakePool makes a pool in the file image, of a number of bytes that is 64 MiB at least, and returns its name, and
// what destroys it.
func MakePool(image string, size int64) (pool string, destroy func() error, err error) {
	if err := Start(); err != nil {
		return "", nil, err
	}
	f, err := os.Create(image)
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return "", nil, err
	}
	zfs.Lock()
	zfs.pools++
	pool = fmt.Sprintf("test%d", zfs.pools)
	zfs.Unlock()
	if out, err := Run("zpool", "create", "-m", "none", pool, image); err != nil {
		return "", nil, fmt.Errorf("zpool create: %w: %s", err, out)
	}
	return pool, func() error {
		if out, err := Run("zpool", "destroy", pool); err != nil {
			return fmt.Errorf("zpool destroy %s: %w: %s", pool, err, strings.TrimSpace(string(out)))
		}
		return os.Remove(image)
	}, nil
}

// Pool makes a pool for as long as the test takes, which has called Own.
func Pool(t testing.TB, size int64) string {
	t.Helper()
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
