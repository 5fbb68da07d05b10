package step

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// This file finds out what the kernel lets Native do.

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
