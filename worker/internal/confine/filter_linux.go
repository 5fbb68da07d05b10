package confine

import (
	"fmt"
	"slices"

	bpf "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// filter is which system calls the program may make.
type filter struct{ policy bpf.Policy }

// denied are calls that the default profile allows and that reading a tree does not take.
var denied = []string{"ioctl", "socket", "socketpair", "connect", "bind", "listen", "ptrace", "process_vm_readv", "process_vm_writev", "keyctl", "mount_setattr"}

// newFilter allows what the default profile of containers allows to a command without capabilities, but for those that are denied. clone
// starts threads, and the program itself as the first process of a namespace, and makes no other namespaces.
func newFilter() (*filter, error) {
	spec := specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	profile, err := seccomp.GetDefaultProfile(&spec)
	if err != nil {
		return nil, fmt.Errorf("the profile of system calls: %w", err)
	}
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("filtering system calls: %w", err)
	}
	var names []string
	for _, s := range profile.Syscalls {
		if s.Action != specs.ActAllow || len(s.Args) > 0 {
			continue
		}
		for _, name := range s.Names {
			if _, known := machine.SyscallNames[name]; known && name != "clone3" && !slices.Contains(denied, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	return &filter{bpf.Policy{
		DefaultAction: bpf.ActionErrno,
		Syscalls: []bpf.SyscallGroup{{
			Action: bpf.ActionAllow,
			Names:  slices.Compact(names),
			NamesWithCondtions: []bpf.NameWithConditions{{
				Name: "clone", Conditions: bpf.ArgumentConditions{{Argument: 0, Operation: bpf.BitsNotSet, Value: namespaces}},
			}},
		}, {
			Action: bpf.Action(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)), // whose flags a filter does not see: libraries use clone then
			Names:  []string{"clone3"},
		}},
	}}, nil
}

// install puts the filter on the calling thread and what it starts.
func (f *filter) install() error {
	if err := bpf.LoadFilter(bpf.Filter{NoNewPrivs: true, Policy: f.policy}); err != nil {
		return fmt.Errorf("filtering system calls: %w", err)
	}
	return nil
}
