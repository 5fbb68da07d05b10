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

// inject has a process that the calling thread traces, and that has stopped at the first instruction of its program, set
// limits of its resources and install the filter. For each of these it runs and stops once more. The process then stands where
// it stood, as it was, but for bytes below its stack that mean nothing to it.
func (f filter) inject(pid int, limits []resourceLimit) error {
	var saved unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &saved); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	if saved.Cs != userCS {
		return &startError{126, fmt.Errorf("a program for another architecture, whose system calls are not filtered: %w", unix.ENOEXEC)}
	}
	at, err := f.place(pid, saved.Rsp, limits)
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
	for i, l := range limits {
		if err := callIn(pid, &saved, unix.SYS_PRLIMIT64, 0, uint64(l.number), at+uint64(i*limitSize), 0); err != nil {
			return fmt.Errorf("having the command set %s: %w", l.name, err)
		}
	}
	if err := callIn(pid, &saved, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, at+uint64(len(limits)*limitSize), 0); err != nil {
		return fmt.Errorf("having the command install its filter: seccomp: %w", err)
	}
	if _, err := unix.PtracePokeText(pid, code, text); err != nil {
		return fmt.Errorf("the first instruction of the program: %w", err)
	}
	if err := unix.PtraceSetRegs(pid, &saved); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	return nil
}

// callIn has a process make a system call. Its registers are those that are given, but for what the call needs.
func callIn(pid int, saved *unix.PtraceRegs, number, a, b, c, d uint64) error {
	regs := *saved
	regs.Orig_rax = ^uint64(0) // no system call is to be restarted
	regs.Rax, regs.Rdi, regs.Rsi, regs.Rdx, regs.R10 = number, a, b, c, d
	if err := unix.PtraceSetRegs(pid, &regs); err != nil {
		return fmt.Errorf("its registers: %w", err)
	}
	if err := unix.PtraceCont(pid, 0); err != nil {
		return err
	}
	if err := stopped(pid); err != nil {
		return err
	}
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return fmt.Errorf("its registers: %w", err)
	}
	if regs.Rax != 0 || regs.Rip != saved.Rip+callSize {
		return unix.Errno(-int64(regs.Rax))
	}
	return nil
}

// limitSize is how many bytes a limit takes in memory: struct rlimit64.
const limitSize = 16

// place writes limits and the filter below the stack of a stopped program, as arguments of prlimit64 and seccomp, and
// returns where they are.
func (f filter) place(pid int, stack uint64, limits []resourceLimit) (at uint64, err error) {
	const head = 16 // struct sock_fprog: a length, and a pointer
	size := len(limits)*limitSize + head + len(f)*int(unsafe.Sizeof(f[0]))
	at = (stack - redZone - uint64(size)) &^ 15
	b := make([]byte, 0, size)
	for _, l := range limits {
		b = binary.LittleEndian.AppendUint64(b, l.Cur)
		b = binary.LittleEndian.AppendUint64(b, l.Max)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f)))
	b = binary.LittleEndian.AppendUint64(b, at+uint64(len(limits)*limitSize)+head)
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
