package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	sysKexecFileLoad = unix.SYS_KEXEC_FILE_LOAD
	x32              = 0x40000000 // added to a number, a call of 64 bits with pointers of 32
)

func iopl() error { return unix.Iopl(3) }

// int80 makes a system call of i386, which has other numbers than those of amd64.
//
//go:noescape
func int80(number, a, b, c uint32) int32

// Numbers of i386.
const (
	i386Mount      = 21
	i386Socketcall = 102
	i386Keyctl     = 288
	i386Unshare    = 310
	i386Bpf        = 357
	i386Socket     = 359
	i386Uring      = 425
)

func of80(number, a, b, c uint32) error {
	if n := int80(number, a, b, c); n < 0 {
		return unix.Errno(-n)
	}
	return nil
}

// of80Reaches is of80 for calls whose arguments make no sense.
func of80Reaches(number, a, b, c uint32) error {
	switch err := of80(number, a, b, c); err {
	case nil, unix.EPERM, unix.EACCES, unix.ENOSYS:
		return err
	default:
		return did("the kernel has looked at the arguments: %v", err)
	}
}

func i386Attempts() []attempt {
	return []attempt{
		{"i386 socket AF_VSOCK", func() error { return of80(i386Socket, unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
		{"i386 socketcall AF_VSOCK", socketcall},
		{"i386 keyctl", func() error { return of80(i386Keyctl, 0, uint32(0xfffffffd), 0) }}, // the id of the session keyring
		{"i386 unshare", func() error { return of80(i386Unshare, unix.CLONE_NEWIPC, 0, 0) }},
		{"i386 bpf", func() error { return of80Reaches(i386Bpf, 0, 0, 0) }},
		{"i386 mount", func() error { return of80Reaches(i386Mount, 0, 0, 0) }},
		{"i386 io_uring_setup", func() error { return of80Reaches(i386Uring, 1, 0, 0) }},
		{"x32 keyctl", func() error { return call(x32|unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, uintptr(0xfffffffd), 0) }},
		{"x32 unshare", func() error { return call(x32|unix.SYS_UNSHARE, unix.CLONE_NEWIPC) }},
	}
}

// socketcall has its arguments in memory, where no filter sees them.
func socketcall() error {
	b, err := unix.MmapPtr(-1, 0, nil, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_32BIT)
	if err != nil {
		return err
	}
	args := (*[3]uint32)(b)
	args[0], args[1] = unix.AF_VSOCK, unix.SOCK_STREAM
	return of80(i386Socketcall, 1, uint32(uintptr(unsafe.Pointer(args))), 0)
}
