package step

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

// This file has a program that has stopped before its first instruction make system calls: it sets limits,
// enters its user namespace, and installs its own filter. Its starting thread cannot have those: they are
// for good, and refuse what that thread does for the next step; and package os lets nothing be done between
// the new process and its program.

// canInject is why a stopped program cannot be made to install a filter.
func canInject() error { return nil }

const (
	userCS   = 0x33 // the code segment of 64-bit programs
	redZone  = 128  // below the stack pointer: the program's own
	pageSize = 4096
)

// injected is what the program executes instead of its own first instructions: it makes R12 system calls,
// whose numbers and arguments RBX points to, until one fails, and stops again. All at once, since each stop
// takes as long as many calls.
var injected = []byte{
	0x48, 0x8b, 0x03, //       mov rax, [rbx]
	0x48, 0x8b, 0x7b, 0x08, // mov rdi, [rbx+8]
	0x48, 0x8b, 0x73, 0x10, // mov rsi, [rbx+16]
	0x48, 0x8b, 0x53, 0x18, // mov rdx, [rbx+24]
	0x4c, 0x8b, 0x53, 0x20, // mov r10, [rbx+32]
	0x0f, 0x05, //             syscall
	0x48, 0x85, 0xc0, //       test rax, rax
	0x75, 0x09, //             jnz to the end
	0x48, 0x83, 0xc3, 0x28, // add rbx, 40
	0x41, 0xff, 0xcc, //       dec r12d
	0x75, 0xdd, //             jnz to the beginning
	0xcc, //                   int3
}

// injectedCall is a system call that the program makes.
type injectedCall struct {
	name       string
	number     uint64
	a, b, c, d uint64
}

const injectedSize = 40 // of a call in memory

// inject has a process that the calling thread traces, and that has stopped at the first instruction of its
// program, set limits of its resources, enter its user namespace unless own is nil, and install the filter.
// (The tracer may not set limits of another user's process.) The process then stands where it stood, as it
// was, but for bytes below its stack that mean nothing to it. While it does that, meanwhile is called; if
// that fails, or anything else, the process is to be killed.
func (of stoppedProgram) inject(f seccomp.Filter, limits []resourceLimit, own *entry, meanwhile func() error) error {
	pid := of.pid
	var saved unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &saved); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	if saved.Cs != userCS {
		return &startError{126, fmt.Errorf("a program for another architecture, whose system calls are not filtered: %w", unix.ENOEXEC)}
	}
	m := newInjectedMemory(saved.Rsp, f, limits, own)
	calls := m.limits(limits)
	if own != nil {
		calls = append(calls, m.enter(own, m.install(f))...)
	} else {
		calls = append(calls, m.install(f))
	}
	table, err := m.write(of, calls)
	if err != nil {
		return err
	}
	// The page of the first instruction can be the last of the program.
	code := uintptr(saved.Rip)
	if over := code%pageSize + uintptr(len(injected)); over > pageSize {
		code -= over - pageSize
	}
	text := make([]byte, len(injected))
	if err := of.peek(code, text); err != nil {
		return &startError{126, fmt.Errorf("the first instruction of the program: %w", err)}
	}
	if err := of.poke(code, injected); err != nil {
		return &startError{126, fmt.Errorf("the first instruction of the program: %w", err)}
	}
	if err := execute(pid, saved, uint64(code), table, calls, meanwhile); err != nil {
		return err
	}
	if err := of.poke(code, text); err != nil {
		return fmt.Errorf("the first instruction of the program: %w", err)
	}
	if err := unix.PtraceSetRegs(pid, &saved); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	return nil
}

// peek reads memory of the program. A tracer may not look into one that its user may execute but not read;
// through /proc it may if it has the right to look into all processes.
func (t stoppedProgram) peek(at uintptr, b []byte) error {
	_, err := unix.PtracePeekText(t.pid, at, b)
	if err == unix.EIO {
		return t.memory(unix.O_RDONLY, func(f *os.File) (int, error) { return f.ReadAt(b, int64(at)) })
	}
	return err
}

// poke writes memory of the program, also where the program cannot.
func (t stoppedProgram) poke(at uintptr, b []byte) error {
	_, err := unix.PtracePokeText(t.pid, at, b)
	if err == unix.EIO {
		return t.memory(unix.O_WRONLY, func(f *os.File) (int, error) { return f.WriteAt(b, int64(at)) })
	}
	return err
}

// memory calls a function with the file of the program's memory.
func (t stoppedProgram) memory(flags int, do func(*os.File) (int, error)) error {
	name := strconv.Itoa(t.pid) + "/mem"
	fd, err := unix.Openat(int(t.proc.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = do(f)
	return errors.Join(err, f.Close())
}

// execute runs the injected code.
func execute(pid int, regs unix.PtraceRegs, code, table uint64, calls []injectedCall, meanwhile func() error) error {
	regs.Orig_rax = ^uint64(0) // no system call is to be restarted
	regs.Rip, regs.Rbx, regs.R12 = code, table, uint64(len(calls))
	if err := unix.PtraceSetRegs(pid, &regs); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	if err := unix.PtraceCont(pid, 0); err != nil {
		return fmt.Errorf("having the command set itself up: %w", err)
	}
	if err := errors.Join(meanwhile(), stopped(pid)); err != nil {
		return err
	}
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return fmt.Errorf("the registers of the command: %w", err)
	}
	if regs.R12 == 0 && regs.Rip == code+uint64(len(injected)) {
		return nil
	}
	if left := regs.R12; left > 0 && left <= uint64(len(calls)) {
		return fmt.Errorf("having the command %s: %w", calls[uint64(len(calls))-left].name, unix.Errno(-int64(regs.Rax)))
	}
	return fmt.Errorf("having the command set itself up: it has stopped at %#x", regs.Rip)
}

// injectedMemory is what calls point to, below the stack of a stopped program.
type injectedMemory struct {
	at uint64 // where it will be
	b  []byte
}

// maxCalls is how many system calls are made at most besides those that set limits: one for each
// capability, and the others.
const maxCalls = 64 + 8

func newInjectedMemory(stack uint64, f seccomp.Filter, limits []resourceLimit, own *entry) *injectedMemory {
	size := len(limits)*limitSize + len(f)*int(unsafe.Sizeof(f[0])) + 64 + (len(limits)+maxCalls)*injectedSize
	if own != nil && own.user != nil {
		size += (len(own.user.Groups) + 1) * 4
	}
	return &injectedMemory{at: (stack - redZone - uint64(size)) &^ 15, b: make([]byte, 0, size)}
}

// put adds values, and returns their address.
func (m *injectedMemory) put(values ...uint64) (at uint64) {
	at = m.at + uint64(len(m.b))
	for _, v := range values {
		m.b = binary.LittleEndian.AppendUint64(m.b, v)
	}
	return at
}

// list adds a list of ids.
func (m *injectedMemory) list(ids []uint32) (at uint64) {
	at = m.put()
	for i := 0; i < len(ids); i += 2 {
		pair := uint64(ids[i])
		if i+1 < len(ids) {
			pair |= uint64(ids[i+1]) << 32
		}
		m.put(pair)
	}
	return at
}

// limitSize is how many bytes a limit takes: struct rlimit64.
const limitSize = 16

func (m *injectedMemory) limits(list []resourceLimit) (calls []injectedCall) {
	for _, l := range list {
		calls = append(calls, injectedCall{"set " + l.name, unix.SYS_PRLIMIT64, 0, uint64(l.number), m.put(l.Cur, l.Max), 0})
	}
	return calls
}

// enter are the calls that enter a user namespace, install the filter, and give up what a process can do that has just
// entered one.
func (m *injectedMemory) enter(own *entry, install injectedCall) []injectedCall {
	calls := []injectedCall{
		{"enter its user namespace: setns", unix.SYS_SETNS, uint64(own.fd), unix.CLONE_NEWUSER, 0, 0},
		{"close it", unix.SYS_CLOSE, uint64(own.fd), 0, 0, 0},
	}
	if own.gains { // without no_new_privs a filter takes a capability that it has only now
		calls = append(calls, install)
	}
	if u := own.user; u != nil {
		groups := m.list(u.Groups)
		uid, gid := uint64(u.UID), uint64(u.GID)
		calls = append(calls,
			injectedCall{"have its groups: setgroups", unix.SYS_SETGROUPS, uint64(len(u.Groups)), groups, 0, 0},
			injectedCall{"have its group: setresgid", unix.SYS_SETRESGID, gid, gid, gid, 0},
			injectedCall{"have its user: setresuid", unix.SYS_SETRESUID, uid, uid, uid, 0})
	}
	for _, c := range own.drop {
		calls = append(calls, injectedCall{"drop capabilities", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uint64(c), 0, 0})
	}
	low, high := own.keep&0xffffffff, own.keep>>32
	header := m.put(unix.LINUX_CAPABILITY_VERSION_3)
	sets := m.put(low|low<<32, high<<32, high) // effective, permitted, inheritable; and the upper halves
	calls = append(calls, injectedCall{"keep few capabilities: capset", unix.SYS_CAPSET, header, sets, 0, 0})
	if own.user != nil {
		// With other ids it is another process to the kernel: its /proc would belong to the machine's root,
		// and it would forget what was to happen when the one above ends. Who keeps them is not asked: what
		// the user may only execute is not to be looked into.
		calls = append(calls, injectedCall{"be dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0})
	}
	calls = append(calls, injectedCall{"have a signal at the end", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uint64(unix.SIGKILL), 0, 0})
	if !own.gains {
		calls = append(calls, install)
	}
	return calls
}

func (m *injectedMemory) install(f seccomp.Filter) injectedCall {
	at := m.put(uint64(len(f))) // struct sock_fprog: a length, and a pointer
	m.put(at + 16)
	m.b = append(m.b, f.Bytes()...)
	return injectedCall{"install its filter: seccomp", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, at, 0}
}

// write writes it to the program, with the calls at its end, and returns where those are.
func (m *injectedMemory) write(of stoppedProgram, calls []injectedCall) (table uint64, err error) {
	table = m.put()
	for _, c := range calls {
		m.put(c.number, c.a, c.b, c.c, c.d)
	}
	local := []unix.Iovec{{Base: &m.b[0], Len: uint64(len(m.b))}}
	n, err := unix.ProcessVMWritev(of.pid, local, []unix.RemoteIovec{{Base: uintptr(m.at), Len: len(m.b)}}, 0)
	if err != nil || n != len(m.b) {
		// It needs the right to look into processes of other users; a tracer can write all the same, word by word.
		if err := of.poke(uintptr(m.at), m.b); err != nil {
			return 0, &startError{126, fmt.Errorf("the stack of the program: %w", err)}
		}
	}
	return table, nil
}
