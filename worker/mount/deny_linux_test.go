package mount

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denials are what a kernel of some age, or a container with a strict filter, refuses.
var denials = map[string]struct {
	deny []denial
	lack []Call // what the manager must find missing
}{
	"Linux 6.1": {
		[]denial{{nr: unix.SYS_FSCONFIG, arg: 1, is: unix.FSCONFIG_SET_FD, errno: unix.EINVAL}},
		[]Call{CallLayerFD},
	},
	"Linux 5.10": {
		[]denial{
			{nr: unix.SYS_FSCONFIG, arg: 1, is: unix.FSCONFIG_SET_FD, errno: unix.EINVAL},
			{nr: unix.SYS_MOUNT_SETATTR, arg: -1, errno: unix.ENOSYS},
		},
		[]Call{CallLayerFD, CallMountSetattr},
	},
	"no clones of detached mounts": {
		[]denial{{nr: unix.SYS_OPEN_TREE, arg: 2, is: unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH, errno: unix.EINVAL}},
		[]Call{CallCloneDetached},
	},
	"Linux 4.19": {
		[]denial{
			{nr: unix.SYS_OPEN_TREE, arg: -1, errno: unix.ENOSYS},
			{nr: unix.SYS_MOVE_MOUNT, arg: -1, errno: unix.ENOSYS},
			{nr: unix.SYS_FSOPEN, arg: -1, errno: unix.ENOSYS},
			{nr: unix.SYS_FSCONFIG, arg: -1, errno: unix.ENOSYS},
			{nr: unix.SYS_FSMOUNT, arg: -1, errno: unix.ENOSYS},
			{nr: unix.SYS_MOUNT_SETATTR, arg: -1, errno: unix.ENOSYS},
			{nr: unix.SYS_PIDFD_OPEN, arg: -1, errno: unix.ENOSYS},
		},
		[]Call{CallOpenTree, CallMoveMount, CallCloneDetached, CallFsopen, CallLayerFD, CallLowerAppend, CallMountSetattr, CallPidfd},
	},
	"no inotify": {
		[]denial{{nr: unix.SYS_INOTIFY_INIT1, arg: -1, errno: unix.EMFILE}},
		[]Call{CallInotify},
	},
	"no watches": { // found with the first overlay
		[]denial{{nr: unix.SYS_INOTIFY_ADD_WATCH, arg: -1, errno: unix.ENOSPC}},
		[]Call{CallInotify},
	},
	"a filter that answers EPERM": {
		[]denial{
			{nr: unix.SYS_FSOPEN, arg: -1, errno: unix.EPERM},
			{nr: unix.SYS_MOUNT_SETATTR, arg: -1, errno: unix.EPERM},
			{nr: unix.SYS_PIDFD_OPEN, arg: -1, errno: unix.EPERM},
		},
		[]Call{CallFsopen, CallLayerFD, CallLowerAppend, CallMountSetattr, CallPidfd},
	},
}

// denial refuses a system call, or one with a value as an argument.
type denial struct {
	nr    uint32
	arg   int // -1: whatever the arguments
	is    uint32
	errno unix.Errno
}

const envDeny = "HOLDFAST_MOUNT_DENY"

func init() {
	// The tests in a process to which calls are denied for good.
	preludes = append(preludes, func() {
		if name := os.Getenv(envDeny); name != "" {
			check(install(denials[name].deny))
		}
	})
}

// install denies calls to all threads of the process.
func install(list []denial) error {
	var filter []unix.SockFilter
	add := func(code uint16, k uint32, jt, jf uint8) {
		filter = append(filter, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
	}
	const load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	for _, d := range list {
		add(load, 0, 0, 0) // the number of the call
		if d.arg < 0 {
			add(equal, d.nr, 0, 1)
		} else {
			add(equal, d.nr, 0, 3)
			add(load, uint32(16+8*d.arg), 0, 0) // the lower half of an argument
			add(equal, d.is, 0, 1)
		}
		add(ret, unix.SECCOMP_RET_ERRNO|uint32(d.errno), 0, 0)
	}
	add(ret, unix.SECCOMP_RET_ALLOW, 0, 0)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
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
		if w.Used == missing {
			t.Errorf("%s: used %t, %v", w.Call, w.Used, w.Err)
		}
		if n := strings.Count(log.String(), fmt.Sprintf("call=%q", string(w.Call))) + strings.Count(log.String(), fmt.Sprintf("call=%s ", w.Call)); missing && n != 1 {
			t.Errorf("%s was logged %d times:\n%s", w.Call, n, log.String())
		}
	}
}

// TestWork is TestKinds with whatever there is.
func TestWork(t *testing.T) { kinds(newStand(t, Options{})) }
