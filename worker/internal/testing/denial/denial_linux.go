// Package denial has the kernel refuse system calls, for tests of what is done without them.
package denial

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Denial refuses a system call, or one with a value as an argument.
type Denial struct {
	Call  uint32
	Arg   int // -1: whatever the arguments
	Is    uint32
	Errno unix.Errno
}

// Install denies calls to all threads of the process, and to what they start, for good.
func Install(list []Denial) error {
	var filter []unix.SockFilter
	add := func(code uint16, k uint32, jt, jf uint8) {
		filter = append(filter, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
	}
	const load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	for _, d := range list {
		add(load, 0, 0, 0) // the number of the call
		if d.Arg < 0 {
			add(equal, d.Call, 0, 1)
		} else {
			add(equal, d.Call, 0, 3)
			add(load, uint32(16+8*d.Arg), 0, 0) // the lower half of an argument
			add(equal, d.Is, 0, 1)
		}
		add(ret, unix.SECCOMP_RET_ERRNO|uint32(d.Errno), 0, 0)
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
