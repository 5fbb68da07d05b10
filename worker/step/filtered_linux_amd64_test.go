package step

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// elf64 is a program of a few instructions of amd64.
func elf64(t testing.TB, code []byte) []byte {
	const base, head = 0x400000, 64 + 56
	size := uint64(head + len(code))
	return image(t, code, elf.Header64{Ident: ident(elf.ELFCLASS64), Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: base + head, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 0x1000})
}

// elf32 is a program of a few instructions of i386.
func elf32(t testing.TB, code []byte) []byte {
	const base, head = 0x400000, 52 + 32
	size := uint32(head + len(code))
	return image(t, code, elf.Header32{Ident: ident(elf.ELFCLASS32), Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT),
		Entry: base + head, Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1},
		elf.Prog32{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 0x1000})
}

func ident(class elf.Class) (b [elf.EI_NIDENT]byte) {
	copy(b[:], elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA], b[elf.EI_VERSION] = byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	return b
}

// image is a file of headers and code.
func image(t testing.TB, code []byte, headers ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, h := range headers {
		must(t, binary.Write(&b, binary.LittleEndian, h))
	}
	return append(b.Bytes(), code...)
}

// call is code for amd64 that makes a system call with up to three arguments, and ends with 0 if that succeeded, and
// else with the error.
func call(number uint32, args ...uint32) []byte {
	var code []byte
	for i, a := range args {
		code = binary.LittleEndian.AppendUint32(append(code, [][]byte{{0xbf}, {0xbe}, {0xba}}[i]...), a) // mov edi, esi, edx
	}
	code = binary.LittleEndian.AppendUint32(append(code, 0xb8), number) // mov eax
	return append(code,
		0x0f, 0x05, // syscall
		0x31, 0xff, // xor edi, edi
		0x48, 0x85, 0xc0, // test rax, rax
		0x79, 0x04, // jns over
		0x89, 0xc7, // mov edi, eax
		0xf7, 0xdf, // neg edi
		0xb8, 0x3c, 0, 0, 0, // mov eax, exit
		0x0f, 0x05)
}

// program is a step that executes a file of the host.
func (s *stand) program(name string, content []byte) Step {
	s.Helper()
	file := filepath.Join(s.dir, name)
	must(s, os.WriteFile(file, content, 0o755))
	must(s, os.Chmod(file, 0o755))
	step := sh("base", "")
	step.Command = []string{"/program"}
	step.Mounts = []Mount{{Source: file, Target: "/program", ReadOnly: true}}
	return step
}

// exit is the code with which a step ends.
func (s *stand) exit(step Step) (int, error) {
	s.Helper()
	_, err := s.Run(s.ctx, step, nil)
	var f *Failure
	if err != nil && !errors.As(err, &f) {
		s.Fatal(err)
	}
	if f == nil {
		return 0, nil
	}
	return f.Code, err
}

// A step made namespaces of its own, in which it was root with all capabilities, mounted the cgroups of the
// host, froze a process of it, and lifted its own limits; it opened vsock, io_uring and userfaultfd, and
// read the keys of root. No system call was filtered.
func TestFiltered(t *testing.T) {
	natives(t, func(s *stand) {
		for name, script := range map[string]string{
			"no filter":       "! grep -q 'Seccomp:.*2' /proc/self/status",
			"user namespace":  "unshare -U true",
			"mount namespace": "unshare -r -m true",
			"cgroups":         "unshare -r -m -C mount -t cgroup2 none /tmp",
		} {
			if got := s.text(sh("base", "if { "+script+"; } 2>/dev/null; then echo could; fi")); got != "" {
				s.Errorf("%s: %s", name, got)
			}
		}
		asUser := sh("base", "grep Seccomp: /proc/self/status")
		asUser.User = User{UID: 1000, GID: 1000}
		if got := s.text(asUser); got != "Seccomp:\t2" {
			s.Errorf("of another user: %q", got)
		}
		for name, c := range map[string]struct {
			code []byte
			want unix.Errno
		}{
			"getpid":            {call(unix.SYS_GETPID), 0},
			"socket":            {call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM), 0},
			"vsock":             {call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM), unix.EPERM},
			"io_uring":          {call(unix.SYS_IO_URING_SETUP, 1), unix.EPERM},
			"userfaultfd":       {call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1), unix.EPERM},
			"keyctl":            {call(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, 0xfffffffd), unix.EPERM},
			"bpf":               {call(unix.SYS_BPF), unix.EPERM},
			"clone of a user":   {call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uint32(unix.SIGCHLD)), unix.EPERM},
			"clone3":            {call(unix.SYS_CLONE3), unix.ENOSYS},
			"x32":               {call(1<<30 | unix.SYS_GETPID), unix.ENOSYS},
			"of a later kernel": {call(10000), unix.ENOSYS},
		} {
			step := s.program("call", elf64(s, c.code))
			step.Env = append(step.Env, "CALL="+name) // the content of the program is not part of its ID
			if code, err := s.exit(step); code != int(c.want) {
				s.Errorf("%s: %d, and not %d: %v", name, code, c.want, err)
			}
		}
		s.clean()
	})
}

// The calls of i386 lead past a filter that knows those of amd64: a program made for it, and one that uses
// them by int 0x80.
func TestOtherArchitecture(t *testing.T) {
	getpid := []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80} // mov eax, getpid; int 0x80
	end32 := []byte{0x31, 0xdb, 0xb8, 1, 0, 0, 0, 0xcd, 0x80}
	end64 := []byte{0x31, 0xff, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05}
	natives(t, func(s *stand) {
		for name, program := range map[string][]byte{"i386": elf32(s, append(getpid, end32...)), "int 0x80": elf64(s, append(getpid, end64...))} {
			if code, err := s.exit(s.program(name, program)); code != 128+int(unix.SIGSYS) && !errors.Is(err, unix.ENOEXEC) {
				s.Errorf("%s: %d, %v", name, code, err)
			}
		}
		s.clean()
	})
}
