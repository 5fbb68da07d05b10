package step

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// counted are the system calls that are counted: those that the program determines. Others are the Go runtime's,
// or depend on time (tries of unmounts), or on the depth of a tree of metadata (writes of pages).
var counted = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_OPEN: "open", unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STAT: "stat", unix.SYS_LSTAT: "lstat", unix.SYS_FSTAT: "fstat", unix.SYS_STATX: "statx",
	unix.SYS_STATFS: "statfs", unix.SYS_FSTATFS: "fstatfs", unix.SYS_READLINKAT: "readlinkat",
	unix.SYS_MKDIRAT: "mkdirat", unix.SYS_MKDIR: "mkdir", unix.SYS_MKNODAT: "mknodat", unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_LINKAT: "linkat",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_RENAME: "rename", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_UNLINK: "unlink", unix.SYS_RMDIR: "rmdir",
	unix.SYS_FCHMODAT: "fchmodat", unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_LCHOWN: "lchown", unix.SYS_UTIMENSAT: "utimensat",
	unix.SYS_GETXATTR: "getxattr", unix.SYS_LGETXATTR: "lgetxattr", unix.SYS_LISTXATTR: "listxattr", unix.SYS_LLISTXATTR: "llistxattr", unix.SYS_SETXATTR: "setxattr", unix.SYS_LSETXATTR: "lsetxattr",
	unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount2", unix.SYS_MOVE_MOUNT: "move_mount", unix.SYS_OPEN_TREE: "open_tree", unix.SYS_FSOPEN: "fsopen", unix.SYS_FSCONFIG: "fsconfig",
	unix.SYS_FSMOUNT: "fsmount", unix.SYS_MOUNT_SETATTR: "mount_setattr", unix.SYS_PIVOT_ROOT: "pivot_root", unix.SYS_CHROOT: "chroot", unix.SYS_CHDIR: "chdir", unix.SYS_FCHDIR: "fchdir",
	unix.SYS_SETNS: "setns", unix.SYS_UNSHARE: "unshare", unix.SYS_PTRACE: "ptrace", unix.SYS_WAITID: "waitid", unix.SYS_PIPE2: "pipe2", unix.SYS_INOTIFY_ADD_WATCH: "inotify_add_watch",
	unix.SYS_CLONE3: "clone3", unix.SYS_FLOCK: "flock", unix.SYS_SOCKET: "socket",
}

// A call that nobody makes otherwise, with a number as its argument, stands between two steps.
const (
	markCall  = unix.SYS_GETPGID
	firstMark = 0x70000000
)

func mark(i int) { _, _, _ = unix.RawSyscall(markCall, uintptr(firstMark+i), 0, 0) }

const countedSteps = 21

func init() {
	helpers["counted"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.prepare()
		base = os.Getenv("TMPDIR")
		err := s.tryOpen()
		if err == nil {
			s.Runner.background.Wait() // the sweep
			err = s.store.Cleanup(s.ctx)
		}
		for i := -3; i <= countedSteps && err == nil; i++ { // the first ones make threads
			if i >= 0 {
				mark(i)
			}
			_, err = s.Run(s.ctx, Step{Base: "base", Command: []string{"/bin/true", fmt.Sprint(i)}}, nil)
		}
		if err == nil {
			err = errors.Join(s.Runner.Close(), s.mounts.Close(s.ctx), s.store.Close())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// The system calls of a step do not depend on how many snapshots there are.
func TestSystemCalls(t *testing.T) {
	few, many := callsWith(t, 10), callsWith(t, 3000)
	t.Logf("of one step: %v", few)
	if !maps.Equal(few, many) {
		t.Errorf("with 10 snapshots %v,\nwith 3000 %v", few, many)
	}
	for _, name := range []string{"fsmount", "move_mount", "chroot", "ptrace", "mkdirat", "openat"} {
		if few[name] == 0 {
			t.Errorf("no %s: the steps were not seen", name)
		}
	}
	// A step took 0.2 to 0.6 ms to leave the root that its namespace began with: the kernel waits for all
	// processors before it lets go of a mount.
	for _, name := range []string{"pivot_root", "umount2"} {
		if few[name] > 0 {
			t.Errorf("%s in a step", name)
		}
	}
}

// callsWith is how often each call is made in a step, in the median, in a store with n snapshots.
func callsWith(t *testing.T, n int) map[string]int {
	s := newStand(t, Options{})
	s.fill(n)
	s.close()
	self, err := os.Readlink("/proc/self/exe")
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envHelper+"=counted", envDir+"="+s.dir, "GODEBUG=asyncpreemptoff=1")
	var out strings.Builder
	cmd.Stderr = &out
	done := make(chan error)
	var steps []map[string]int
	go func() {
		var err error
		steps, err = traced(cmd)
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if len(steps) != countedSteps+1 {
		t.Fatalf("%d steps were seen", len(steps))
	}
	counts := map[string]int{}
	for _, name := range counted {
		var all []int
		for _, step := range steps[:countedSteps] {
			all = append(all, step[name])
		}
		slices.Sort(all)
		if m := all[len(all)/2]; m > 0 {
			counts[name] = m
		}
	}
	s.open()
	return counts
}

// traced runs a program to its end, and counts the calls of its threads behind each mark. It follows threads, and not
// processes: those are followed by the program itself.
func traced(cmd *exec.Cmd) (steps []map[string]int, err error) {
	runtime.LockOSThread() // who traces is a thread; it ends with the goroutine
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	main := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(main, &status, 0, nil); err != nil {
		return nil, err
	}
	if err := unix.PtraceSetOptions(main, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return nil, err
	}
	if err := unix.PtraceSyscall(main, 0); err != nil {
		return nil, err
	}
	for {
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ECHILD {
			break
		}
		if err != nil {
			return nil, err
		}
		if tid == main && status.Exited() && status.ExitStatus() != 0 {
			err = fmt.Errorf("exit code %d", status.ExitStatus())
		}
		if err != nil {
			_ = cmd.Wait() // its output
			return nil, err
		}
		if !status.Stopped() {
			continue
		}
		signal := 0
		switch sig := status.StopSignal(); {
		case sig == unix.SIGTRAP|0x80:
			steps = see(tid, steps)
		case sig == unix.SIGTRAP, sig == unix.SIGSTOP: // a new thread, on either side
		default:
			signal = int(sig)
		}
		if err := unix.PtraceSyscall(tid, signal); err != nil && err != unix.ESRCH {
			return nil, err
		}
	}
	_ = cmd.Wait()
	return steps, nil
}

// see counts the call that a thread is about to make.
func see(tid int, steps []map[string]int) []map[string]int {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil || int64(regs.Rax) != -int64(unix.ENOSYS) {
		return steps // it is the end of one
	}
	if regs.Orig_rax == markCall && regs.Rdi >= firstMark {
		return append(steps, map[string]int{})
	}
	if name := counted[regs.Orig_rax]; name != "" && len(steps) > 0 {
		steps[len(steps)-1][name]++
	}
	return steps
}
