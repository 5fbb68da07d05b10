package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func processAttempts() []attempt {
	return []attempt{
		{"signal to a process of the host", func() error { return unix.Kill(host(), unix.SIGKILL) }},
		{"stopping a process of the host", func() error { return unix.Kill(host(), unix.SIGSTOP) }},
		{"pidfd of a process of the host", func() error { _, err := unix.PidfdOpen(host(), 0); return err }},
		{"ptrace of a process of the host", func() error { return unix.PtraceAttach(host()) }},
		{"memory of a process of the host", func() error {
			local := make([]byte, 8)
			iov := unix.Iovec{Base: &local[0]}
			iov.SetLen(8)
			_, err := unix.ProcessVMReadv(host(), []unix.Iovec{iov}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
			return err
		}},
		{"limits of a process of the host", func() error { return unix.Prlimit(host(), unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}) }},
		{"more processes than allowed", forks},
	}
}

func host() int {
	n, err := strconv.Atoi(env("PID"))
	if err != nil {
		panic("HOSTILE_PID is not set")
	}
	return n
}

// forks starts processes until it cannot, twice as many as the step may have. They do nothing, and are killed then.
// Meanwhile nothing is done that could have the runtime start a thread.
func forks() error {
	allowed, err := strconv.Atoi(env("FORKS"))
	if err != nil {
		return err
	}
	list := make([]uintptr, 0, 2*allowed)
	var failed unix.Errno
	for len(list) < cap(list) {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
			for {
				_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		if failed = errno; errno != 0 {
			break
		}
		list = append(list, pid)
	}
	for _, pid := range list {
		_, _, _ = unix.RawSyscall(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0)
	}
	for _, pid := range list {
		_, _, _ = unix.RawSyscall6(unix.SYS_WAIT4, pid, 0, 0, 0, 0, 0)
	}
	if failed != 0 {
		return fmt.Errorf("after %d: %w", len(list), failed)
	}
	return did("%d processes", len(list))
}

// overwrite tries to change the file that pid 1 of the step was started from, which is the runtime's. This program is
// pid 1 then, as the interpreter of that file. A child gets hold of the file by a descriptor that is not open for
// anything; pid 1 executes another program, so that the file is in use no more.
func overwrite() {
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
	in, out, err := os.Pipe()
	if err == nil {
		cmd := exec.Command("/hostile", "overwrite")
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stdout, []*os.File{out}
		err = cmd.Start()
	}
	if err == nil {
		_ = out.Close()
		_, err = in.Read(make([]byte, 1)) // the child has the descriptor
	}
	if err == nil {
		err = unix.Exec("/hostile", []string{"/hostile", "wait"}, os.Environ())
	}
	fmt.Println("unknown:", err)
	os.Exit(1)
}

// mark is what is appended to the file.
const mark = "overwritten by a hostile step"

// overwriteLater is the child of overwrite. It writes down in /rw what came of it: the runtime may have ended.
func overwriteLater() {
	result := "refused: busy"
	fd, err := unix.Open("/proc/1/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	name, _ := os.Readlink("/proc/1/exe")
	if err != nil {
		result = fmt.Sprint("unknown: ", err)
	} else {
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
		_, _ = unix.Write(3, []byte("x"))
		for range 3000 {
			err := appendTo("/proc/self/fd/" + strconv.Itoa(fd))
			if err == unix.ETXTBSY {
				_ = os.WriteFile("/rw/waiting", []byte("x"), 0o644)
				time.Sleep(10 * time.Millisecond)
				continue
			}
			result = "SUCCEEDED"
			if err != nil {
				result = "refused: " + err.Error()
			}
			break
		}
	}
	result += " (" + name + ", " + strings.Join(more(fd), ", ") + ")"
	_ = os.WriteFile("/rw/result.new", []byte(result), 0o644)
	_ = os.Rename("/rw/result.new", "/rw/result")
}

// more are further changes to a file: of its mode, and of its length.
func more(fd int) (list []string) {
	name := "/proc/self/fd/" + strconv.Itoa(fd)
	list = append(list, fmt.Sprint("chmod: ", unix.Chmod(name, 0)), fmt.Sprint("truncate: ", unix.Truncate(name, 10)))
	return list
}

func appendTo(name string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(mark))
	return err
}

// wait is pid 1 until its children have ended.
func wait() {
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && err != unix.EINTR {
			return
		}
	}
}
