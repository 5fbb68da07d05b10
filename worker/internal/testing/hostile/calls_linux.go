package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func callAttempts() []attempt {
	name, _ := unix.BytePtrFromString("/proc/self/exe")
	path := uintptr(unsafe.Pointer(name))
	return []attempt{
		{"io_uring_setup", func() error {
			params := make([]byte, 120)
			return call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])))
		}},
		{"userfaultfd", func() error { return call(unix.SYS_USERFAULTFD, 1|unix.O_CLOEXEC) }},
		{"bpf", func() error {
			attr := make([]byte, 128)
			attr[0], attr[4], attr[8], attr[12] = unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1
			return reaches(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr[0])), 72)
		}},
		{"perf_event_open", func() error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			_, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
			return err
		}},
		{"kexec_load", func() error { return reaches(unix.SYS_KEXEC_LOAD, 0, 1000, 0, 0) }},
		{"kexec_file_load", func() error { return reaches(sysKexecFileLoad, ^uintptr(0), ^uintptr(0), 0, 0, 0) }},
		{"init_module", func() error { return reaches(unix.SYS_INIT_MODULE, path, 4, path) }},
		{"finit_module", func() error { return reaches(unix.SYS_FINIT_MODULE, 0, path, 0) }},
		{"delete_module", func() error { return reaches(unix.SYS_DELETE_MODULE, path, 0) }},
		{"acct", func() error { return reaches(unix.SYS_ACCT, path) }},
		{"swapon", func() error { return reaches(unix.SYS_SWAPON, path, 0) }},
		{"reboot", func() error { return reaches(unix.SYS_REBOOT, 0, 0, 0, 0) }}, // the kernel wants other numbers
		{"settimeofday", func() error { return reaches(unix.SYS_SETTIMEOFDAY, ^uintptr(0), 0) }},
		{"clock_settime", func() error {
			wrong := unix.Timespec{Nsec: -1}
			return reaches(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, uintptr(unsafe.Pointer(&wrong)))
		}},
		{"quotactl", func() error { return reaches(unix.SYS_QUOTACTL, 0x800002<<8, path, 0, 0) }},
		{"syslog", func() error { return call(unix.SYS_SYSLOG, 10, 0, 0) }},
		{"fanotify_init", func() error { return call(unix.SYS_FANOTIFY_INIT, 4, 0) }},
		{"name of this machine's file", func() error { return call(unix.SYS_LOOKUP_DCOOKIE, 0, 0, 0) }},
		{"vhangup", func() error { return call(unix.SYS_VHANGUP) }},
		{"iopl", func() error { return iopl() }},
		{"filter of system calls is missing", func() error { return status("Seccomp:", "0") }},
		{"new privileges can be had", func() error { return status("NoNewPrivs:", "0") }},
		{"capability SYS_ADMIN", capability},
		{"limit of descriptors is raised", func() error { return raise(unix.RLIMIT_NOFILE) }},
		{"core files can be had", func() error { return raise(unix.RLIMIT_CORE) }},
		{"real time scheduling", func() error {
			runtime.LockOSThread()
			return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
		}},
		{"nice below zero", func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) }},
		{"protection from the killer of memory", func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) }},
	}
}

// status looks for the value of a field in the status of this process.
func status(field, value string) error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			if strings.TrimSpace(rest) == value {
				return did("%s", strings.TrimSpace(line))
			}
			return fmt.Errorf("%s", strings.TrimSpace(line))
		}
	}
	return did("no %s", field)
}

func capability() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective |= 1 << unix.CAP_SYS_ADMIN
	data[0].Permitted |= 1 << unix.CAP_SYS_ADMIN
	return unix.Capset(&header, &data[0])
}

// raise raises the hard limit of a resource.
func raise(resource int) error {
	var l unix.Rlimit
	if err := unix.Prlimit(0, resource, nil, &l); err != nil {
		return err
	}
	if l.Max == unix.RLIM_INFINITY {
		return did("there is no limit")
	}
	l.Max++
	return unix.Prlimit(0, resource, &l, nil)
}

func keyAttempts() []attempt {
	search := func(ring int) func() error {
		return func() error {
			id, err := unix.KeyctlSearch(ring, "user", env("KEY"), 0)
			if err != nil {
				return err
			}
			return did("key %d was found", id)
		}
	}
	return []attempt{
		{"key of the session keyring", search(unix.KEY_SPEC_SESSION_KEYRING)},
		{"key of the user's keyring", search(unix.KEY_SPEC_USER_KEYRING)},
		{"key of the user's session keyring", search(unix.KEY_SPEC_USER_SESSION_KEYRING)},
		{"key by its number", func() error {
			serial, err := strconv.Atoi(env("SERIAL"))
			if err != nil {
				return err
			}
			_, err = unix.KeyctlBuffer(unix.KEYCTL_READ, serial, make([]byte, 64), 0)
			return err
		}},
		{"request_key", func() error { _, err := unix.RequestKey("user", env("KEY"), "", 0); return err }},
		{"add_key", func() error {
			_, err := unix.AddKey("user", "hostile", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
			return err
		}},
	}
}

func socketAttempts() []attempt {
	list := []attempt{
		{"abstract unix socket of the host", func() error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + env("SOCKET")})
		}},
		{"TCP port of the host", func() error {
			c, err := net.DialTimeout("tcp", "127.0.0.1:"+env("PORT"), 5*time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err
		}},
		{"connections of an earlier step", connections},
		{"audit", audit},
		{"shared memory of the host", func() error {
			key, err := strconv.Atoi(env("SHM"))
			if err != nil {
				return err
			}
			_, err = unix.SysvShmGet(key, 0, 0)
			return err
		}},
	}
	for _, f := range []struct {
		name                   string
		family, kind, protocol int
	}{
		{"AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {"AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0}, {"raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"AF_BLUETOOTH", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
	} {
		list = append(list, attempt{f.name, func() error { _, err := unix.Socket(f.family, f.kind, f.protocol); return err }})
	}
	return list
}

// connections looks for those that are there before this step has made one: see leave.
func connections() error {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if n := strings.Count(string(b), "\n"); n > 1 {
			return did("%d", n-1)
		}
	}
	return fmt.Errorf("none")
}

// leave makes a connection to this process and closes it, so that the kernel remembers it for a minute.
func leave() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		var c, s net.Conn
		if c, err = net.Dial("tcp", l.Addr().String()); err == nil {
			if s, err = l.Accept(); err == nil {
				_ = c.Close()
				_ = s.Close()
			}
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// audit asks the kernel's audit system for its state.
func audit() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return err
	}
	get := unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: unix.AUDIT_GET, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK, Seq: 1}
	b := (*[unix.SizeofNlMsghdr]byte)(unsafe.Pointer(&get))[:]
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n >= unix.SizeofNlMsghdr+4 && (*unix.NlMsghdr)(unsafe.Pointer(&answer[0])).Type == unix.NLMSG_ERROR {
		return orNil(unix.Errno(-*(*int32)(unsafe.Pointer(&answer[unix.SizeofNlMsghdr]))))
	}
	return did("%d bytes", n)
}
