package confine

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

// denied are calls that the default profile allows and that reading a tree does not take.
var denied = []string{"ioctl", "socket", "socketpair", "connect", "bind", "listen", "ptrace", "process_vm_readv", "process_vm_writev", "keyctl", "mount_setattr"}

// newFilter allows what the default profile of containers allows to a command without capabilities, whatever the
// arguments are, but for calls that are denied. clone starts threads, and the program itself as the first process of a
// namespace, and makes no other namespaces.
func newFilter() (seccomp.Filter, error) {
	profile, err := seccomp.Profile(nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range profile.Syscalls {
		if s.Action == specs.ActAllow && len(s.Args) == 0 {
			names = append(names, s.Names...)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "clone3" || slices.Contains(denied, name) })
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	missing := uint(unix.ENOSYS)
	return seccomp.Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
		{Names: names, Action: specs.ActAllow},
		{Names: []string{"clone"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{Op: specs.OpMaskedEqual, Value: namespaces}}},
		{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &missing}, // a filter does not see its flags: libraries use clone then
	}})
}
