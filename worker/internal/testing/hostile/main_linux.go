// Command hostile is run as a step, and tries to reach the step's host. For each attempt it prints a line: its name,
// a tab, and "refused" with the error, or "SUCCEEDED" with what it could do.
//
// It knows of the host what its environment says, as an attacker could who has seen it once; see env.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attempt is one that is made in a process of its own. It returns nil if it has succeeded.
type attempt struct {
	name string
	do   func() error
}

// inner begins the names of attempts that others make in a namespace of their own.
const inner = "in a user namespace: "

// attempts are all, in the order in which they are made.
func attempts() []attempt {
	return slices.Concat(cgroupAttempts(), namespaceAttempts(), mountAttempts(), deviceAttempts(), fileAttempts(),
		callAttempts(), keyAttempts(), socketAttempts(), processAttempts(), userAttempts(), i386Attempts())
}

// env is what the host has told: HOSTILE_PID a process of the host, HOSTILE_SECRET a file of the host by its path
// there, HOSTILE_HANDLE the same as a file handle, HOSTILE_KEY the description of a key in the host's session
// keyring, HOSTILE_SERIAL its serial number, HOSTILE_SOCKET an abstract unix socket, HOSTILE_PORT a TCP port on the
// loopback device, HOSTILE_SHM the key of a segment of System V shared memory, HOSTILE_FORKS how many processes the
// step may have, HOSTILE_CAPS what userAttempts says.
func env(name string) string { return os.Getenv("HOSTILE_" + name) }

func init() {
	runtime.LockOSThread() // what happens when the runtime ends is a property of the first thread
}

func main() {
	if len(os.Args) < 2 {
		all()
		return
	}
	switch os.Args[1] {
	case "only":
		only(os.Args[2])
	case "overwrite":
		overwriteLater()
	case "wait":
		wait()
	case "true":
	case "who":
		who()
	case "capable":
		capable(os.Args[2])
	case "leave":
		leave()
	default:
		// Started as the interpreter of another program: its name is not known.
		overwrite()
	}
}

// patience is how long an attempt may take until it is killed, which is neither success nor refusal.
const patience = 10 * time.Second

// all makes each attempt in a process of its own: what one has changed does not help or hinder the next.
func all() {
	if env("OVERWRITE") != "" {
		overwrite()
	}
	for _, a := range attempts() {
		if strings.HasPrefix(a.name, inner) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		cmd := exec.CommandContext(ctx, "/hostile", "only", a.name)
		cmd.WaitDelay = patience // what it has started can have its output
		out, err := cmd.Output()
		cancel()
		var exit *exec.ExitError
		switch text := strings.TrimSpace(string(out)); {
		case text != "":
			fmt.Printf("%s\t%s\n", a.name, text)
		case ctx.Err() == context.DeadlineExceeded:
			fmt.Printf("%s\tunknown: it hangs\n", a.name)
		case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
			fmt.Printf("%s\trefused: killed by %v\n", a.name, exit.Sys().(syscall.WaitStatus).Signal())
		case exit != nil && bytes.Contains(exit.Stderr, []byte("failed to create new OS thread")):
			// At a limit of processes Go's own threads meet it now and then.
			fmt.Printf("%s\trefused: not even a thread of its own\n", a.name)
		case exit != nil:
			first, _, _ := bytes.Cut(exit.Stderr, []byte("\n"))
			fmt.Printf("%s\tunknown: %v: %s\n", a.name, err, first)
		default:
			fmt.Printf("%s\tunknown: %v\n", a.name, err)
		}
	}
}

func only(name string) {
	for _, a := range attempts() {
		if a.name != name {
			continue
		}
		err := onThread(a.do)
		var did succeeded
		switch {
		case err == nil:
			fmt.Println("SUCCEEDED")
		case errors.As(err, &did):
			fmt.Println("SUCCEEDED:", string(did))
		default:
			var errno unix.Errno
			if errors.As(err, &errno) {
				fmt.Printf("refused: %s (%v)\n", unix.ErrnoName(errno), err)
				return
			}
			fmt.Println("refused:", err)
		}
		return
	}
	fmt.Println("unknown attempt")
}

// errKilled is what became of a thread that a filter has killed.
var errKilled = errors.New("the thread was killed")

// onThread makes an attempt on a thread of its own. A filter can kill that, and the process goes on.
func onThread(do func() error) error {
	runtime.GOMAXPROCS(8) // a thread that is killed keeps one
	thread, done := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		done <- do()
	}()
	name := fmt.Sprintf("/proc/self/task/%d", <-thread)
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(5 * time.Millisecond):
		}
		if _, err := os.Stat(name); err != nil {
			return errKilled
		}
	}
}

// succeeded is what an attempt could do.
type succeeded string

func (s succeeded) Error() string { return string(s) }

func did(format string, args ...any) error { return succeeded(fmt.Sprintf(format, args...)) }

// call makes a system call.
func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	return orNil(errno)
}

// reaches is call where the arguments make no sense: an error about them means that the kernel had looked at them.
func reaches(number uintptr, args ...uintptr) error {
	switch err := call(number, args...); err {
	case nil, unix.EPERM, unix.EACCES, unix.ENOSYS:
		return err
	default:
		return did("the kernel has looked at the arguments: %v", err)
	}
}

func orNil(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// opens tries to open a file.
func opens(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_ = unix.Close(fd)
	return did("%s is open", name)
}

// first is the first of some attempts that succeeds, or the error of the last.
func first(list ...func() error) (err error) {
	for _, do := range list {
		err = do()
		var did succeeded
		if err == nil || errors.As(err, &did) {
			return err
		}
	}
	return err
}
