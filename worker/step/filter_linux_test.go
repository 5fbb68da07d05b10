package step

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

// decider runs a filter as the kernel does.
func decider(t testing.TB, f seccomp.Filter) func(arch, number uint32, args [6]uint64) uint32 {
	t.Helper()
	var program []bpf.Instruction
	for _, i := range f {
		program = append(program, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	must(t, err)
	return func(arch, number uint32, args [6]uint64) uint32 {
		const dataNumber, dataArch, dataArgs = 0, 4, 16 // offsets in struct seccomp_data
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data[dataNumber:], number) // as package bpf loads it
		binary.BigEndian.PutUint32(data[dataArch:], arch)
		for i, a := range args {
			binary.BigEndian.PutUint32(data[dataArgs+8*i:], uint32(a))
			binary.BigEndian.PutUint32(data[dataArgs+8*i+4:], uint32(a>>32))
		}
		n, err := vm.Run(data)
		must(t, err)
		return uint32(n)
	}
}

const (
	answerAllow = uint32(unix.SECCOMP_RET_ALLOW)
	answerNosys = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
	answerPerm  = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
)

// expected is what a profile says of a call, one rule after the other.
func expected(p *specs.LinuxSeccomp, names map[string]int, number uint32, args [6]uint64) uint32 {
	highest := uint32(0)
	for _, s := range p.Syscalls {
		for _, name := range s.Names {
			if n, ok := names[name]; ok {
				highest = max(highest, uint32(n))
			}
		}
	}
	if number > highest {
		return answerNosys
	}
	for _, s := range p.Syscalls {
		for _, name := range s.Names {
			n, ok := names[name]
			if !ok || uint32(n) != number {
				continue
			}
			all := true
			for _, a := range s.Args {
				switch v := args[a.Index]; a.Op {
				case specs.OpEqualTo:
					all = all && v == a.Value
				case specs.OpMaskedEqual:
					all = all && v&a.Value == a.ValueTwo
				case specs.OpLessThan:
					all = all && v < a.Value
				default:
					all = false
				}
			}
			switch {
			case all && s.Action == specs.ActAllow:
				return answerAllow
			case all && s.ErrnoRet != nil:
				return uint32(unix.SECCOMP_RET_ERRNO) | uint32(*s.ErrnoRet)
			case all:
				return answerPerm
			}
		}
	}
	return answerPerm
}

// The filter says of every call, with arguments about the values that matter, what the profile says.
func TestFilterIsProfile(t *testing.T) {
	machine, err := arch.GetInfo("")
	must(t, err)
	for name, caps := range map[string][]string{"of steps": capabilityNames(), "all": {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE"}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			p, err := seccomp.Profile(caps)
			must(t, err)
			f, err := seccomp.Compile(p)
			must(t, err)
			decide := decider(t, f)
			values := []uint64{0, 1, 2, 3, 8, 37, 38, 39, 40, 41, 0xffffffff, 1 << 32, 1<<32 + 1, 1<<32 + 40, 1 << 63, unix.CLONE_NEWUSER, unix.CLONE_NEWUSER | 1<<32, unix.CLONE_THREAD, 0x20000, 0x20008}
			for _, s := range p.Syscalls {
				for _, a := range s.Args {
					values = append(values, a.Value-1, a.Value, a.Value+1, a.Value|1<<32, a.ValueTwo)
				}
			}
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			for number := uint32(0); number < 700; number++ {
				for i := range 120 {
					var args [6]uint64
					for j := range args {
						args[j] = values[r.IntN(len(values))]
					}
					args[0] = values[i%len(values)]
					if got, want := decide(uint32(machine.ID), number, args), expected(p, machine.SyscallNames, number, args); got != want {
						t.Fatalf("seed %d: %s (%d) of %x: %#x, and not %#x", seed, machine.SyscallNumbers[int(number)], number, args, got, want)
					}
				}
			}
		})
	}
}

// What a step must not reach, whatever the profile of the day says. (Installed compilers of filters take an
// argument of one call for the number of the next: socket(AF_VSOCK), 40, was allowed as sendfile, 40.)
func TestFilterRefuses(t *testing.T) {
	machine, err := arch.GetInfo("")
	must(t, err)
	f, err := stepFilter()
	must(t, err)
	decide := decider(t, f)
	for _, name := range []string{
		"io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "keyctl", "add_key", "request_key", "bpf", "perf_event_open",
		"mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
		"unshare", "setns", "open_by_handle_at", "kexec_load", "init_module", "finit_module", "delete_module", "reboot", "swapon",
		"settimeofday", "clock_settime", "syslog", "acct", "quotactl", "iopl", "ioperm", "pidfd_getfd", "kcmp", "sethostname",
	} {
		n, ok := machine.SyscallNames[name]
		if !ok {
			if machine == arch.X86_64 {
				t.Errorf("%s has no number", name)
			}
			continue
		}
		if got := decide(uint32(machine.ID), uint32(n), [6]uint64{}); got != answerPerm {
			t.Errorf("%s: %#x", name, got)
		}
	}
	call := func(name string, args ...uint64) uint32 {
		var six [6]uint64
		copy(six[:], args)
		return decide(uint32(machine.ID), uint32(machine.SyscallNames[name]), six)
	}
	for _, flag := range []uint64{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		if got := call("clone", flag|uint64(unix.SIGCHLD)); got != answerPerm {
			t.Errorf("clone with %#x: %#x", flag, got)
		}
	}
	for want, got := range map[uint32][]uint32{
		answerPerm:                            {call("socket", unix.AF_VSOCK, unix.SOCK_STREAM), call("socket", unix.AF_ALG, unix.SOCK_SEQPACKET), call("socket", 1<<32|unix.AF_VSOCK)},
		answerNosys:                           {call("clone3"), decide(uint32(machine.ID), 5000, [6]uint64{}), decide(uint32(machine.ID), 1<<30|uint32(unix.SYS_MOUNT), [6]uint64{})},
		answerAllow:                           {call("clone", uint64(unix.SIGCHLD)), call("socket", unix.AF_INET), call("socket", unix.AF_UNIX), call("read"), call("execve"), call("chroot"), call("personality", 0xffffffff)},
		uint32(unix.SECCOMP_RET_KILL_PROCESS): {decide(uint32(arch.I386.ID), 1, [6]uint64{}), decide(0, 1, [6]uint64{})},
	} {
		for i, g := range got {
			if g != want {
				t.Errorf("number %d of %#x: %#x", i, want, g)
			}
		}
	}
}

// What cannot be compiled is an error, and no filter that allows something else.
func TestFilterErrors(t *testing.T) {
	good := func() *specs.LinuxSeccomp {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{{Names: []string{"read"}, Action: specs.ActAllow}}}
	}
	_, err := seccomp.Compile(good())
	must(t, err)
	for name, spoil := range map[string]func(*specs.LinuxSeccomp){
		"an action":   func(p *specs.LinuxSeccomp) { p.Syscalls[0].Action = specs.ActTrace },
		"the default": func(p *specs.LinuxSeccomp) { p.DefaultAction = "" },
		"an operator": func(p *specs.LinuxSeccomp) { p.Syscalls[0].Args = []specs.LinuxSeccompArg{{Op: specs.OpGreaterThan}} },
		"an argument": func(p *specs.LinuxSeccomp) {
			p.Syscalls[0].Args = []specs.LinuxSeccompArg{{Index: 6, Op: specs.OpEqualTo}}
		},
		"nothing": func(p *specs.LinuxSeccomp) { p.Syscalls[0].Names = []string{"no such call"} },
	} {
		p := good()
		spoil(p)
		if f, err := seccomp.Compile(p); err == nil {
			t.Errorf("%s: a filter of %d instructions", name, len(f))
		}
	}
}
