package mount

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/testing/denial"
)

// denials are what a kernel of some age, or a container with a strict filter, refuses.
var denials = map[string]struct {
	deny []denial.Denial
	lack []Call // what the manager must find missing
}{
	"Linux 6.1": {
		[]denial.Denial{{Call: unix.SYS_FSCONFIG, Arg: 1, Is: unix.FSCONFIG_SET_FD, Errno: unix.EINVAL}},
		[]Call{CallLayerFD},
	},
	"Linux 5.10": {
		[]denial.Denial{
			{Call: unix.SYS_FSCONFIG, Arg: 1, Is: unix.FSCONFIG_SET_FD, Errno: unix.EINVAL},
			{Call: unix.SYS_MOUNT_SETATTR, Arg: -1, Errno: unix.ENOSYS},
		},
		[]Call{CallLayerFD, CallMountSetattr},
	},
	"no clones of detached mounts": {
		[]denial.Denial{{Call: unix.SYS_OPEN_TREE, Arg: 2, Is: unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH, Errno: unix.EINVAL}},
		[]Call{CallCloneDetached},
	},
	"Linux 4.19": {
		[]denial.Denial{
			{Call: unix.SYS_OPEN_TREE, Arg: -1, Errno: unix.ENOSYS},
			{Call: unix.SYS_MOVE_MOUNT, Arg: -1, Errno: unix.ENOSYS},
			{Call: unix.SYS_FSOPEN, Arg: -1, Errno: unix.ENOSYS},
			{Call: unix.SYS_FSCONFIG, Arg: -1, Errno: unix.ENOSYS},
			{Call: unix.SYS_FSMOUNT, Arg: -1, Errno: unix.ENOSYS},
			{Call: unix.SYS_MOUNT_SETATTR, Arg: -1, Errno: unix.ENOSYS},
			{Call: unix.SYS_PIDFD_OPEN, Arg: -1, Errno: unix.ENOSYS},
		},
		[]Call{CallOpenTree, CallMoveMount, CallCloneDetached, CallFsopen, CallLayerFD, CallLowerAppend, CallMountSetattr, CallPidfd},
	},
	"no inotify": {
		[]denial.Denial{{Call: unix.SYS_INOTIFY_INIT1, Arg: -1, Errno: unix.EMFILE}},
		[]Call{CallInotify},
	},
	"no watches": { // found with the first overlay
		[]denial.Denial{{Call: unix.SYS_INOTIFY_ADD_WATCH, Arg: -1, Errno: unix.ENOSPC}},
		[]Call{CallInotify},
	},
	"a filter that answers EPERM": {
		[]denial.Denial{
			{Call: unix.SYS_FSOPEN, Arg: -1, Errno: unix.EPERM},
			{Call: unix.SYS_MOUNT_SETATTR, Arg: -1, Errno: unix.EPERM},
			{Call: unix.SYS_PIDFD_OPEN, Arg: -1, Errno: unix.EPERM},
		},
		[]Call{CallFsopen, CallLayerFD, CallLowerAppend, CallMountSetattr, CallPidfd},
	},
}

const envDeny = "HOLDFAST_MOUNT_DENY"

func init() {
	// The tests in a process to which calls are denied for good.
	preludes = append(preludes, func() {
		if name := os.Getenv(envDeny); name != "" {
			check(denial.Install(denials[name].deny))
		}
	})
}

// The tests that matter run again in processes that the kernel denies calls.
func TestDenied(t *testing.T) {
	needRoot(t)
	if os.Getenv(envDeny) != "" {
		return // this is such a process
	}
	for name := range denials {
		t.Run(name, func(t *testing.T) {
			self, err := os.Readlink("/proc/self/exe")
			must(t, err)
			cmd := exec.Command(self, "-test.run=^(TestLacking|TestWork|TestKilled)$", "-test.v")
			cmd.Env = append(os.Environ(), envDeny+"="+name, "TMPDIR="+t.TempDir())
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			for _, want := range []string{"--- PASS: TestLacking", "--- PASS: TestWork", "--- PASS: TestKilled"} {
				if err != nil || !strings.Contains(string(out), want) {
					t.Fatalf("%v; want %q in\n%s", err, want, out)
				}
			}
		})
	}
}

// What is denied is found, and said once.
func TestLacking(t *testing.T) {
	var log strings.Builder
	s := newStand(t, Options{Logger: textLogger(&log)})
	_, options := s.work("up")
	s.free(s.get(overlay([]string{s.layer("a")}, options...)))
	lack := denials[os.Getenv(envDeny)].lack
	for _, w := range s.Ways() {
		missing := false
		for _, c := range lack {
			missing = missing || c == w.Call
		}
		if w.Used == missing && !(!missing && kernelBefore(t, w.Since)) {
			t.Errorf("%s: used %t, %v", w.Call, w.Used, w.Err)
		}
		if n := strings.Count(log.String(), fmt.Sprintf("call=%q", string(w.Call))) + strings.Count(log.String(), fmt.Sprintf("call=%s ", w.Call)); missing && n != 1 {
			t.Errorf("%s was logged %d times:\n%s", w.Call, n, log.String())
		}
	}
}

// kernelBefore tells whether the machine's kernel is older than a version such as "6.13"; "" is none.
func kernelBefore(t *testing.T, version string) bool {
	t.Helper()
	var u unix.Utsname
	must(t, unix.Uname(&u))
	var have, want [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &want[0], &want[1]); err != nil {
		return false
	}
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &have[0], &have[1])
	must(t, err)
	return slices.Compare(have[:], want[:]) < 0
}

// TestWork is TestKinds with whatever there is.
func TestWork(t *testing.T) { kinds(newStand(t, Options{})) }
