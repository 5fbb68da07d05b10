package zfsfuse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
	"holdfast/worker/snapshot/drivertest"
)

// What zfs-fuse has for the whole machine: its socket, its lock, and its cache of pools, of which
// a stale one would break later runs.
var zfsDirs = []string{"/var/run/zfs", "/var/lock/zfs", "/var/lib/zfs"}

const (
	// envZFS marks a process that is alone with its zfs-fuse.
	envZFS = "HOLDFAST_TEST_ZFS"
	// envStuck is a file to which each attempt is written that came to nothing, since the daemon was stuck.
	envStuck = "HOLDFAST_TEST_ZFS_STUCK"
	// exitStuck is how such a process ends if its daemon is stuck.
	exitStuck = 75
	attempts  = 5
)

// Limits of one attempt. They are far beyond what it takes on a machine that has much else to do.
const (
	attemptLimit = 15 * time.Minute
	stuckAfter   = time.Minute      // of not waiting for a request
	commandLimit = 30 * time.Second // of a command
)

// InOwn tells whether this is a process that Own or Subtests has started.
func InOwn() bool { return os.Getenv(envZFS) != "" }

// Own is called first by a test that needs zfs-fuse. It returns true in a process that runs this test alone, in mount
// and process namespaces of its own, with directories for a daemon of its own (Start). In the process that go
// test has started it starts that one, has the test end as it did, and returns false.
//
// An attempt whose daemon is stuck or has ended by itself, as the process finds that by looking at the daemon, is made
// again from the beginning, five times at most. Nothing else is a reason for that.
func Own(t *testing.T) bool {
	t.Helper()
	if InOwn() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs a zfs-fuse of its own")
	}
	if _, err := exec.LookPath("zfs-fuse"); err != nil {
		t.Fatalf("%v; Debian has it in zfs-fuse", err)
	}
	t.Parallel()
	for n := 1; ; n++ {
		out, err := attempt(t, exact(t.Name()))
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitStuck {
			note := fmt.Sprintf("%s: attempt %d: %s", t.Name(), n, lastLine(out))
			t.Logf("%s\n%s", note, out)
			if err := noteStuck(note); err != nil {
				t.Error(err)
			}
			if n < attempts {
				continue
			}
		}
		switch {
		case err != nil:
			t.Errorf("%v\n%s", err, out)
		case !ended(out, "PASS", t.Name()) && ended(out, "SKIP", t.Name()):
			t.Skipf("%s", out)
		case !ended(out, "PASS", t.Name()):
			t.Errorf("it gave no result:\n%s", out)
		}
		return false
	}
}

// exact is the pattern of a test, or of a subtest.
func exact(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func ended(out []byte, how, name string) bool {
	return regexp.MustCompile(`(?m)^ *--- ` + how + ": " + regexp.QuoteMeta(name) + ` \(`).Match(out)
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

func noteStuck(note string) error {
	path := os.Getenv(envStuck)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, note)
	return errors.Join(err, f.Close())
}

// attempt runs tests of this program in namespaces of their own. When it returns, their daemon and mounts are gone.
func attempt(t *testing.T, pattern string, env ...string) ([]byte, error) {
	runtime.LockOSThread() // the child is killed with the thread that has started it
	defer runtime.UnlockOSThread()
	dir := t.TempDir() // nothing of it is mounted here
	ctx, cancel := context.WithTimeout(context.Background(), attemptLimit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run="+pattern, "-test.v", "-test.timeout="+attemptLimit.String())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(append(os.Environ(), envZFS+"=1", "TMPDIR="+dir), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	return out.Bytes(), err
}

// Subtests gives the names of the subtests of a test that a process of its own begins, which is told to with an
// environment variable: it makes each of them fail at once.
func Subtests(t *testing.T, env string) (names []string) {
	t.Helper()
	out, _ := attempt(t, exact(t.Name()), env)
	for _, m := range regexp.MustCompile(`(?m)^=== RUN +`+regexp.QuoteMeta(t.Name())+`/(\S+)$`).FindAllSubmatch(out, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

// Main is Main for a package with tests that call Own.
func Main(m *testing.M) int {
	if !InOwn() {
		return drivertest.Main(m)
	}
	if err := own(); err != nil {
		fmt.Fprintln(os.Stderr, "namespaces for zfs-fuse:", err)
		return 1
	}
	go guard()
	code := drivertest.Main(m)
	if code != 0 {
		if why := stuck(); why != "" {
			giveUp(why)
		}
	}
	if left, err := leftMounted(); err != nil || len(left) > 0 {
		fmt.Fprintln(os.Stderr, "datasets that are left mounted:", left, err)
		code = 1
	}
	Stop()
	return code
}

func own() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("%s is set in a process that has no namespaces of its own", envZFS)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := forgetOthers(os.Getenv("TMPDIR")); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	if err := install(os.Getenv("TMPDIR")); err != nil {
		return fmt.Errorf("programs: %w", err)
	}
	for _, dir := range zfsDirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// forgetOthers unmounts in this mount namespace what other tests have mounted below the directory that has all of
// theirs: with a copy here their file systems would be in use for as long as this test.
func forgetOthers(own string) error {
	all := own
	for strings.Contains(all, drivertest.TempName) {
		all = filepath.Dir(all)
	}
	return mountinfo.Each(mountinfo.Own, func(m *mountinfo.Mount) {
		if strings.HasPrefix(m.Point, all+"/") && !strings.HasPrefix(own+"/", m.Point+"/") {
			_ = unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // gone with another, perhaps
		}
	})
}

// guard ends this process when its daemon is stuck: the test would wait for it.
func guard() {
	for {
		if d := running(); d != nil {
			if why := d.stuck(stuckAfter); why != "" {
				giveUp(why)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// giveUp ends this process so that the attempt is made again. Without the daemon nothing waits for it: a process
// that does cannot be killed.
func giveUp(why string) {
	Stop()
	fmt.Fprintln(os.Stderr, "zfs-fuse:", why)
	os.Exit(exitStuck)
}

// stuck tells whether the daemon is of no use any more, and why; "" if it is.
func stuck() string {
	d := running()
	if d == nil {
		return ""
	}
	if why := d.stuck(commandLimit); why != "" {
		return why
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
		cmd, err := real(ctx, "zpool", "list")
		if err == nil {
			cmd.WaitDelay = time.Second
			err = cmd.Run()
		}
		late := ctx.Err() != nil
		cancel()
		if !late || err == nil {
			return d.stuck(commandLimit) // it can have ended of the question
		}
	}
	return "zpool list had no answer in " + commandLimit.String() + ", twice"
}

// stuck looks whether the process has ended, or for some time never waits for requests.
func (d *daemon) stuck(limit time.Duration) string {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-d.ended:
			if d.killed.Load() {
				return ""
			}
			return "the daemon has ended by itself: " + d.how.String()
		default:
		}
		if Idle(d.cmd.Process.Pid) {
			return ""
		}
		if time.Since(began) > limit {
			return "process " + strconv.Itoa(d.cmd.Process.Pid) + " has not waited for requests for " + limit.String()
		}
	}
}
