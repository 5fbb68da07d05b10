package seccomp

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The program looks a number up by bisection, in about a dozen instructions. (A list with one comparison
// for each call is what most compilers make: the kernel runs it for every number when it is installed,
// which takes longer than a step's other preparations.)

// Filter is a program that the kernel runs before each system call of a process.
type Filter []unix.SockFilter

// Offsets in what the program is given, struct seccomp_data. Arguments are little-endian on the architectures
// for which there are tables of numbers.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// A rule is what is done with a call if its arguments satisfy all conditions.
type rule struct {
	args   []specs.LinuxSeccompArg
	action uint32
}

// Compile makes a filter of a profile. A call that the profile does not name gets its default, and one with
// a higher number than it names any ENOSYS: libraries then do without what they have learnt to use since
// the profile was written. A process of another architecture is killed.
func Compile(p *specs.LinuxSeccomp) (Filter, error) {
	machine, err := arch.GetInfo("")
	if err != nil || len(machine.SyscallNames) == 0 {
		return nil, fmt.Errorf("no numbers of system calls are known for this architecture: %w", unix.ENOTSUP)
	}
	calls, err := rulesByNumber(p, machine)
	if err != nil {
		return nil, err
	}
	byDefault, err := action(p.DefaultAction, p.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	ranges, err := rangesOf(calls, byDefault)
	if err != nil {
		return nil, err
	}
	program := append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(machine.ID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
	}, bisect(ranges)...)
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assembling the filter of system calls: %w", err)
	}
	f := make(Filter, len(raw))
	for i, r := range raw {
		f[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return f, nil
}

// rulesByNumber lists the rules for each call in the order of the profile. The first that applies decides.
func rulesByNumber(p *specs.LinuxSeccomp, machine *arch.Info) (map[uint32][]rule, error) {
	calls := map[uint32][]rule{}
	for _, s := range p.Syscalls {
		do, err := action(s.Action, s.ErrnoRet)
		if err != nil {
			return nil, err
		}
		for _, name := range s.Names {
			// A profile names calls of all architectures and kernels.
			if n, ok := machine.SyscallNames[name]; ok {
				calls[uint32(n)] = append(calls[uint32(n)], rule{s.Args, do})
			}
		}
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("a profile without any system call: %w", unix.EINVAL)
	}
	return calls, nil
}

// action is the value that a program returns for an action.
func action(a specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	switch a {
	case specs.ActAllow:
		return unix.SECCOMP_RET_ALLOW, nil
	case specs.ActErrno:
		if errno == nil {
			return unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), nil
		}
		return unix.SECCOMP_RET_ERRNO | uint32(*errno)&unix.SECCOMP_RET_DATA, nil
	}
	return 0, fmt.Errorf("the action %q of a profile of system calls: %w", a, unix.EINVAL)
}

// span is what is done with the calls from a number up to the next span.
type span struct {
	from uint32
	code []bpf.Instruction // ends with a return
}

// rangesOf covers all numbers with spans.
func rangesOf(calls map[uint32][]rule, byDefault uint32) ([]span, error) {
	numbers := make([]uint32, 0, len(calls))
	for n := range calls {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	var all []span
	add := func(from uint32, code []bpf.Instruction) {
		if n := len(all); n > 0 && slices.Equal(all[n-1].code, code) {
			return
		}
		all = append(all, span{from, code})
	}
	next := uint32(0)
	for _, n := range numbers {
		if n > next {
			add(next, []bpf.Instruction{bpf.RetConstant{Val: byDefault}})
		}
		code, err := decide(calls[n], byDefault)
		if err != nil {
			return nil, err
		}
		add(n, code)
		next = n + 1
	}
	add(next, []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}})
	return all, nil
}

// decide makes the code for one call.
func decide(rules []rule, byDefault uint32) ([]bpf.Instruction, error) {
	var code []bpf.Instruction
	for _, r := range rules {
		part := []bpf.Instruction{bpf.RetConstant{Val: r.action}}
		for _, c := range slices.Backward(r.args) {
			test, err := condition(c, len(part))
			if err != nil {
				return nil, err
			}
			part = append(test, part...)
		}
		code = append(code, part...)
		if len(r.args) == 0 {
			return code, nil // what comes after it is never reached
		}
	}
	return append(code, bpf.RetConstant{Val: byDefault}), nil
}

// condition makes code that goes on with what comes next if a condition holds, and otherwise skips so many
// instructions.
func condition(c specs.LinuxSeccompArg, otherwise int) ([]bpf.Instruction, error) {
	if c.Index > 5 || otherwise > math.MaxUint8-8 {
		return nil, fmt.Errorf("a condition of a profile of system calls: %w", unix.EINVAL)
	}
	low := bpf.LoadAbsolute{Off: dataArgs + 8*uint32(c.Index), Size: 4}
	high := bpf.LoadAbsolute{Off: low.Off + 4, Size: 4}
	skip := uint8(otherwise)
	mask, value := uint64(math.MaxUint64), c.Value
	switch c.Op {
	case specs.OpMaskedEqual:
		mask, value = c.Value, c.ValueTwo
		fallthrough
	case specs.OpEqualTo:
		return []bpf.Instruction{
			high, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(mask >> 32)},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(value >> 32), SkipFalse: skip + 3},
			low, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(mask)},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(value), SkipFalse: skip},
		}, nil
	case specs.OpLessThan:
		return []bpf.Instruction{
			high, bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(value >> 32), SkipTrue: skip + 3},
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: uint32(value >> 32), SkipTrue: 2},
			low, bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(value), SkipTrue: skip},
		}, nil
	}
	return nil, fmt.Errorf("the operator %q of a profile of system calls: %w", c.Op, unix.EINVAL)
}

// bisect makes code that finds the span of the number that is loaded.
func bisect(all []span) []bpf.Instruction {
	if len(all) == 1 {
		return all[0].code
	}

	middle := len(all) / 2
	below, above := bisect(all[:middle]), bisect(all[middle:])
	from := all[middle].from
	var code []bpf.Instruction
	if len(below) <= math.MaxUint8 {
		code = []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: from, SkipTrue: uint8(len(below))}}
	} else {
		code = []bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: from, SkipFalse: 1}, bpf.Jump{Skip: uint32(len(below))},
		}
	}
	return slices.Concat(code, below, above)
}

// Available is why the kernel filters no system calls; nil if it does.
func Available() error {
	do := uint32(unix.SECCOMP_RET_ERRNO)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&do))); errno != 0 {
		return fmt.Errorf("filtering system calls: seccomp: %w", errno)
	}
	return nil
}

// Install puts the filter on the calling thread, for good, and on all that it starts.
func (f Filter) Install() error {
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("filtering system calls: seccomp: %w", errno)
	}
	return nil
}

// Bytes are the program as the kernel wants it.
func (f Filter) Bytes() []byte {
	b := make([]byte, 0, len(f)*int(unsafe.Sizeof(f[0])))
	for _, i := range f {
		b = binary.NativeEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	return b
}

// Parse is the inverse of Bytes.
func Parse(b []byte) (Filter, error) {
	const size = int(unsafe.Sizeof(unix.SockFilter{}))
	if len(b) == 0 || len(b)%size != 0 {
		return nil, fmt.Errorf("a filter of %d bytes: %w", len(b), unix.EINVAL)
	}
	f := make(Filter, 0, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		f = append(f, unix.SockFilter{Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])})
	}
	return f, nil
}

// Profile returns what a command with a bounding set of capabilities may call: the default profile of Docker for them,
// for the machine's own architecture alone. The others that the kernel could execute (i386 and x32 on amd64) reach
// the same kernel by other numbers; programs built for them are not run.
func Profile(capabilities []string) (*specs.LinuxSeccomp, error) {
	spec := specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: capabilities}}}
	p, err := seccomp.GetDefaultProfile(&spec)
	if err != nil {
		return nil, fmt.Errorf("the profile of system calls: %w", err)
	}
	if len(p.Architectures) > 1 {
		p.Architectures = p.Architectures[:1] // its own comes first
	}
	return p, nil
}
