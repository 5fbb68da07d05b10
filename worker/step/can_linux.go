package step

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
	"holdfast/worker/mount"
)

// This file finds out what the kernel lets Native do.

// lacking is why the machine cannot do without another runtime; nil if it can.
func lacking(m *mount.Manager) error {
	for _, w := range m.Ways() {
		switch w.Call {
		case mount.CallOpenTree, mount.CallMoveMount, mount.CallFsopen:
			if !w.Used {
				return fmt.Errorf("it needs the system call %s (Linux %s), without which the runtime runc works: %w: %w", w.Call, w.Since, w.Err, errors.ErrUnsupported)
			}
		}
	}
	return nil
}

// canProc is why /proc of another pid namespace cannot be made.
func canProc() error {
	own, err := os.Open("/proc/self/ns/pid")
	if err != nil {
		return err
	}
	defer own.Close()
	fd, err := newProc(int(own.Fd()))
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// canTrace is why a program cannot be started so that it stops at its beginning.
func canTrace() error {
	failed := make(chan error)
	osthread.Own(func() {
		p, err := os.StartProcess("/proc/self/exe", []string{initName}, &os.ProcAttr{
			Env: []string{}, Sys: &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}})
		if err != nil {
			failed <- fmt.Errorf("tracing a program: %w", err)
			return
		}
		_ = p.Kill() // before its first instruction
		_, _ = p.Wait()
		failed <- nil
	})
	return <-failed
}
