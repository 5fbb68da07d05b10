package step

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file has a program that has stopped before its first instruction install its own filter. Its starting thread cannot
// have it: a filter is for good, and refuses what that thread does for the next step; and package os lets nothing be
// done between the new process and its program.

// canInject is why a stopped program cannot be made to install a filter.
func canInject() error { return nil }

const (
	userCS   = 0x33 // the code segment of 64-bit programs
	redZone  = 128  // below the stack pointer: the program's own
	callSize = 3
)

// syscall, then int3: the program makes one system call and stops again.
var callAndStop = []byte{0x0f, 0x05, 0xcc}

// inject has a process that the calling thread traces, and that has stopped at the first instruction of its program, install
// the filter. It then stands where it stood, as it was, but for bytes below its stack that mean nothing to it.
func (f filter) inject(pid int) error {
	var saved unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &saved); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	if saved.Cs != userCS {
		return &startError{126, fmt.Errorf("a program for another architecture, whose system calls are not filtered: %w", unix.ENOEXEC)}
	}
	at, err := f.place(pid, saved.Rsp)
	if err != nil {
		return err
	}
	code := uintptr(saved.Rip)
	text := make([]byte, callSize)
	if _, err := unix.PtracePeekText(pid, code, text); err != nil {
		return &startError{126, fmt.Errorf("the first instruction of the program: %w", err)}
	}
	if _, err := unix.PtracePokeText(pid, code, callAndStop); err != nil {
		return &startError{126, fmt.Errorf("the first instruction of the program: %w", err)}
	}
	regs := saved
	regs.Orig_rax = ^uint64(0) // no system call is to be restarted
	regs.Rax, regs.Rdi, regs.Rsi, regs.Rdx = unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, at
	if err := unix.PtraceSetRegs(pid, &regs); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	if err := unix.PtraceCont(pid, 0); err != nil {
		return fmt.Errorf("having the command install its filter: %w", err)
	}
	if err := stopped(pid); err != nil {
		return err
	}
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	if regs.Rax != 0 || regs.Rip != saved.Rip+callSize {
		return fmt.Errorf("having the command install its filter: seccomp: %w", unix.Errno(-int64(regs.Rax)))
	}
	if _, err := unix.PtracePokeText(pid, code, text); err != nil {
		return fmt.Errorf("the first instruction of the program: %w", err)
	}
	if err := unix.PtraceSetRegs(pid, &saved); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	return nil
}

// place writes the filter below the stack of a stopped program, as the argument of seccomp, and returns where it is.
func (f filter) place(pid int, stack uint64) (at uint64, err error) {
	const head = 16 // struct sock_fprog: a length, and a pointer
	size := head + len(f)*int(unsafe.Sizeof(f[0]))
	at = (stack - redZone - uint64(size)) &^ 15
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, size), uint64(len(f)))
	b = binary.LittleEndian.AppendUint64(b, at+head)
	b = append(b, f.bytes()...)
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMWritev(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err != nil || n != len(b) {
		// It needs the right to look into processes of other users; a tracer can write all the same, word by word.
		if _, err := unix.PtracePokeData(pid, uintptr(at), b); err != nil {
			return 0, &startError{126, fmt.Errorf("the stack of the program: %w", err)}
		}
	}
	return at, nil
}
