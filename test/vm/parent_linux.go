package vm

import "syscall"

// endsWithParent has the system kill a process when the thread ends that has started it.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
