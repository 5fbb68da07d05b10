package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"holdfast/command/cli"
)

// privileged tells whether the process can be expected to mount.
func privileged() bool { return os.Geteuid() == 0 }

// userNamespaces is what to do where an unprivileged user can have none.
const userNamespaces = "run it as root, or allow them: see the settings user.max_user_namespaces and kernel.unprivileged_userns_clone of sysctl"

// ownNamespace starts a process as root of a user namespace, which is killed with the thread that has started it.
func ownNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
}

// tryUserNamespace tells whether the user can have a user namespace, by having one.
func tryUserNamespace() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("true")
	cmd.SysProcAttr = ownNamespace()
	return cmd.Run()
}

// endedBy is the signal that has ended the context of c, so that the exit code of the other process is that of this
// one.
func (c *call) endedBy() os.Signal {
	var by *cli.Interrupted
	if errors.As(context.Cause(c.ctx), &by) {
		return by.Signal
	}
	return syscall.SIGTERM // a program that has the command in it
}

// inUserNamespace runs this program again, with the same arguments, as root of a user namespace of its own, and
// returns with its exit code.
func (c *call) inUserNamespace() error {
	runtime.LockOSThread() // the other one is killed with the thread that has started it
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.cmd.InOrStdin(), c.cmd.OutOrStdout(), c.cmd.ErrOrStderr()
	cmd.SysProcAttr = ownNamespace()
	if err := cmd.Start(); err != nil {
		return &nextError{fmt.Errorf("this needs root, or a user namespace, which this system does not let an unprivileged user have: %w", err),
			userNamespaces}
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-c.ctx.Done():
			_ = cmd.Process.Signal(c.endedBy())
		case <-ended:
		}
	}()
	err := cmd.Wait()
	close(ended)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &exitError{exitOwn, fmt.Errorf("the process in the user namespace was killed: %v", status.Signal())}
	}
	return &exitError{code: exit.ExitCode()} // it has said why
}
