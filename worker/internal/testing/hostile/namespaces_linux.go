package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// child starts this program in new namespaces, to make an inner attempt there; "" makes none.
func child(attr *syscall.SysProcAttr, name string) error {
	cmd := exec.Command("/hostile", "true")
	if name != "" {
		cmd = exec.Command("/hostile", "only", inner+name)
		if attr.Cloneflags&syscall.CLONE_NEWUSER != 0 {
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
	}
	cmd.SysProcAttr = attr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	if name == "" {
		return did("a process is in the new namespace")
	}
	if text, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "SUCCEEDED"); ok {
		return did("%s%s", name, text)
	}
	return fmt.Errorf("%s", out)
}

func namespaceAttempts() []attempt {
	list := []attempt{}
	for _, n := range []struct {
		name string
		flag uintptr
	}{
		{"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	} {
		list = append(list,
			attempt{"unshare " + n.name, func() error { return child(&syscall.SysProcAttr{Unshareflags: n.flag}, "") }},
			attempt{"clone " + n.name, func() error { return child(&syscall.SysProcAttr{Cloneflags: n.flag}, "") }},
			attempt{"setns " + n.name, func() error { return setns(n.name, n.flag) }},
		)
	}
	return append(list,
		attempt{"clone3 user", func() error { return clone3(unix.CLONE_NEWUSER) }},
		attempt{"user namespace, cgroup2 mounted", func() error { return inUserNamespace("mount cgroup2") }},
		attempt{"user namespace, cgroup mounted", func() error { return inUserNamespace("mount cgroup") }},
		attempt{"user namespace, tmpfs mounted", func() error { return inUserNamespace("mount tmpfs") }},
		attempt{inner + "mount cgroup2", func() error { return unix.Mount("x", "/tmp", "cgroup2", 0, "") }},
		attempt{inner + "mount cgroup", func() error { return unix.Mount("x", "/tmp", "cgroup", 0, "freezer") }},
		attempt{inner + "mount tmpfs", func() error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") }},
		attempt{"setns of the host's process", hostNamespace},
		attempt{"sethostname", func() error { return unix.Sethostname([]byte("hostile")) }},
		attempt{"setdomainname", func() error { return unix.Setdomainname([]byte("hostile")) }},
		attempt{"chroot leads out", chrootOut},
	)
}

func inUserNamespace(name string) error {
	return child(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWCGROUP}, name)
}

func setns(name string, flag uintptr) error {
	fd, err := unix.Open("/proc/1/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, int(flag))
}

// hostNamespace enters the mount namespace of a process of the host, by its id there.
func hostNamespace() error {
	var pid int
	if _, err := fmt.Sscan(env("PID"), &pid); err != nil {
		return err
	}
	return first(
		func() error {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Setns(fd, unix.CLONE_NEWNS)
		},
		func() error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			return unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWPID)
		})
}

// clone3 starts a process in new namespaces. It ends at once.
func clone3(flags uint64) error {
	args := [11]uint64{0: flags, 4: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno == 0 && pid == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return orNil(errno)
}

// chrootOut climbs from a directory that a chroot has left outside, and looks for a file of the host.
func chrootOut() error {
	if err := os.MkdirAll("/tmp/jail", 0o755); err != nil {
		return err
	}
	if err := unix.Chroot("/tmp/jail"); err != nil {
		return err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return err
		}
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return secret("")
}

// secret reads a file of the host below a directory.
func secret(below string) error {
	b, err := os.ReadFile(below + env("SECRET"))
	if err != nil {
		return err
	}
	return did("read %q", b)
}

func cgroupAttempts() []attempt {
	return []attempt{
		{"cgroup: the host's path is seen", cgroupPath},
		{"cgroup: files can be written", cgroupFiles},
		{"cgroup: mounted", func() error {
			return first(
				func() error { return unix.Mount("x", "/tmp", "cgroup2", 0, "") },
				func() error { return unix.Mount("x", "/tmp", "cgroup", 0, "freezer") },
				func() error { return unix.Mount("x", "/tmp", "cgroup", 0, "none,name=hostile,release_agent=/hostile") },
			)
		}},
	}
}

// cgroupPath tells whether the step sees where in the host's hierarchies it is.
func cgroupPath() error {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[2] != "/" {
			return did("%s", strings.TrimSpace(line))
		}
	}
	return fmt.Errorf("only roots")
}

// cgroupFiles opens files of cgroups for writing, wherever some are mounted.
func cgroupFiles() error {
	dirs := []string{"/sys/fs/cgroup"}
	err := mountinfo.Each(mountinfo.Own, func(m *mountinfo.Mount) {
		if strings.HasPrefix(m.Type, "cgroup") {
			dirs = append(dirs, m.Point)
		}
	})
	if err != nil {
		return err
	}
	return writable(dirs, func(name string) bool {
		switch filepath.Base(name) {
		case "cgroup.procs", "tasks", "cgroup.freeze", "cgroup.kill", "freezer.state", "release_agent", "notify_on_release", "pids.max", "memory.max", "memory.limit_in_bytes":
			return true
		}
		return false
	})
}

// writable opens files below directories for writing, and writes nothing.
func writable(dirs []string, which func(string) bool) error {
	tried, last := 0, error(unix.ENOENT)
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !which(name) {
				return nil //nolint:nilerr // what cannot be read is passed over
			}
			tried++
			fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				last = err
				return nil
			}
			_ = unix.Close(fd)
			return did("%s can be written", name)
		})
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%d files tried: %w", tried, last)
}
