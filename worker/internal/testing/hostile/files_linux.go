package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func mountAttempts() []attempt {
	list := []attempt{}
	for _, kind := range []string{"proc", "sysfs", "tmpfs", "devpts", "mqueue", "debugfs", "binfmt_misc", "overlay", "devtmpfs", "fusectl"} {
		list = append(list, attempt{"mount " + kind, func() error { return unix.Mount("x", "/tmp", kind, 0, "") }})
	}
	return append(list,
		attempt{"fsopen", func() error { _, err := unix.Fsopen("tmpfs", 0); return err }},
		attempt{"open_tree of a clone", func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err }},
		attempt{"mount_setattr", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/proc/sys", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		}},
		attempt{"bind mount", func() error { return unix.Mount("/", "/tmp", "", unix.MS_BIND, "") }},
		attempt{"remount of /proc/sys", func() error { return unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		attempt{"remount of /ro", func() error { return unix.Mount("", "/ro", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		attempt{"umount of a mask", func() error {
			return first(
				func() error { return unix.Unmount("/proc/kcore", unix.MNT_DETACH) },
				func() error { return unix.Unmount("/proc/sys", unix.MNT_DETACH) },
				func() error { return unix.Unmount("/ro", unix.MNT_DETACH) })
		}},
		attempt{"pivot_root", func() error { return unix.PivotRoot("/", "/") }},
	)
}

func deviceAttempts() []attempt {
	list := []attempt{}
	for _, d := range []struct {
		name         string
		mode         uint32
		major, minor uint32
	}{
		{"disk", unix.S_IFBLK, 8, 0}, {"virtual disk", unix.S_IFBLK, 253, 0}, {"memory", unix.S_IFCHR, 1, 1}, {"fuse", unix.S_IFCHR, 10, 229},
		{"null", unix.S_IFCHR, 1, 3}, {"whiteout", unix.S_IFCHR, 0, 0},
	} {
		list = append(list, attempt{"mknod of " + d.name, func() error {
			make := func(name string) func() error {
				return func() error { return unix.Mknod(name, d.mode|0o600, int(unix.Mkdev(d.major, d.minor))) }
			}
			if d.major == 0 { // it is not a device: it must not be in the result alone
				return make("/node")()
			}
			return first(make("/node"), make("/dev/node"))
		}})
	}
	for _, name := range []string{"mem", "kmem", "kmsg", "port", "sda", "vda", "fuse", "kvm", "vsock", "net/tun", "loop0", "loop-control", "mapper/control", "userfaultfd", "tty", "console", "tty1", "hpet", "snapshot"} {
		list = append(list, attempt{"open /dev/" + name, func() error { return opens("/dev/"+name, unix.O_RDWR) }})
	}
	return append(list,
		// The host has made this one in a directory that the step sees.
		attempt{"open a disk in a mount", func() error { return opens("/rw/disk", unix.O_RDONLY) }},
		attempt{"devices of the host are listed", hostDevices},
		attempt{"terminals of the host are listed", func() error {
			if names, err := filepath.Glob("/dev/pts/[0-9]*"); err != nil || len(names) > 0 {
				return did("%v", names)
			}
			return fmt.Errorf("none")
		}},
		attempt{"TIOCSTI", func() error {
			return first(tiocsti(0), tiocsti(1), tiocsti(2), func() error {
				fd, err := unix.Open("/dev/tty", unix.O_RDWR, 0)
				if err != nil {
					return err
				}
				return tiocsti(fd)()
			})
		}},
	)
}

func tiocsti(fd int) func() error {
	return func() error {
		b := byte('x')
		return call(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&b)))
	}
}

// hostDevices looks for device nodes in /dev that steps have no use for.
func hostDevices() error {
	own := map[string]bool{"null": true, "zero": true, "full": true, "random": true, "urandom": true, "tty": true, "ptmx": true}
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&os.ModeDevice != 0 && !own[e.Name()] {
			return did("%s", e.Name())
		}
	}
	return fmt.Errorf("none")
}

func fileAttempts() []attempt {
	list := []attempt{}
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/panic_on_oom", "/proc/sys/vm/drop_caches", "/proc/dynamic_debug/control"} {
		list = append(list, attempt{"write " + name, func() error { return opens(name, unix.O_WRONLY) }})
	}
	for _, name := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/latency_stats", "/proc/interrupts"} {
		list = append(list, attempt{"read " + name, func() error { return reads(name) }})
	}
	return append(list,
		attempt{"files of /proc and /sys can be written", func() error {
			return writable([]string{"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/scsi", "/proc/acpi", "/proc/driver", "/proc/pressure", "/sys"}, func(string) bool { return true })
		}},
		attempt{"write to /ro", func() error { return writeBelow("/ro") }},
		attempt{"write to a mount below /ro", func() error { return writeBelow("/ro/below") }},
		attempt{"write to a secret", changeSecret},
		attempt{"leave the file system of a secret", func() error {
			fd, err := unix.Open("/hidden/secret", unix.O_PATH, 0)
			if err != nil {
				return did("it is not there: %v", err) // nothing was tried
			}
			return first(
				func() error { _, err := unix.Openat(fd, "..", unix.O_PATH, 0); return err },
				func() error { _, err := unix.Openat(fd, "../1", unix.O_RDONLY, 0); return err },
				func() error { _, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH); return err },
				func() error { return unix.Unmount("/hidden/secret", unix.MNT_DETACH) })
		}},
		attempt{"the host's files by path", func() error { return secret("") }},
		attempt{"the host's files by /proc/PID/root", rootsOfProcesses},
		attempt{"open_by_handle_at", byHandle},
		attempt{"descriptors are inherited", inherited},
		// The host looks at its device afterwards: the step may change the mode of one of its own.
		attempt{"mode of standard input's device", func() error {
			if err := unix.Fchmod(0, 0o601); err != nil {
				return err
			}
			return fmt.Errorf("changed, of a device that must be the step's")
		}},
	)
}

// reads tells whether a file has content that can be read.
func reads(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	n, err := unix.Read(fd, make([]byte, 64))
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("empty")
	}
	return did("%d bytes", n)
}

// changeSecret changes the file that the step was given as a secret.
func changeSecret() error {
	const name = "/hidden/secret"
	return first(
		func() error { return opens(name, unix.O_WRONLY|unix.O_TRUNC) },
		func() error { return opens(name, unix.O_RDWR) },
		func() error { return os.Truncate(name, 0) },
		func() error { return os.Chmod(name, 0o666) },
		func() error { return os.Remove(name) },
		func() error { return os.Rename(name, "/hidden/other") },
		func() error { return os.Link(name, "/hidden/other") },
		func() error { return unix.Setxattr(name, "user.x", []byte("x"), 0) },
		func() error { return unix.Mount("", name, "", unix.MS_REMOUNT|unix.MS_BIND, "") },
		func() error {
			return unix.MountSetattr(unix.AT_FDCWD, name, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		},
		func() error {
			fd, err := unix.Open(name, unix.O_PATH, 0)
			if err != nil {
				return err
			}
			return opens("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY)
		})
}

func writeBelow(dir string) error {
	return first(
		func() error { return os.WriteFile(dir+"/new", []byte("x"), 0o644) },
		func() error { return opens(dir+"/file", unix.O_WRONLY) },
		func() error { return os.Chmod(dir+"/file", 0o777) },
		func() error { return os.Remove(dir + "/file") },
		func() error { return unix.Setxattr(dir+"/file", "user.x", []byte("x"), 0) },
		func() error {
			fd, err := unix.Open(dir+"/file", unix.O_PATH, 0)
			if err != nil {
				return err
			}
			return opens("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY)
		})
}

func rootsOfProcesses() error {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	err := error(unix.ENOENT)
	for _, p := range append(processes, "/proc/"+env("PID")) {
		if err = secret(p + "/root"); !os.IsNotExist(err) && !os.IsPermission(err) {
			return err
		}
		if err = secret(p + "/cwd/../../../../../../../../.."); !os.IsNotExist(err) && !os.IsPermission(err) {
			return err
		}
	}
	return err
}

// byHandle opens a file of the host without a path, by way of a mount on the same file system.
func byHandle() error {
	kind, text, _ := strings.Cut(env("HANDLE"), ":")
	n, err := strconv.Atoi(kind)
	if err != nil {
		return err
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	mount, err := unix.Open("/ro", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	_, err = unix.OpenByHandleAt(mount, unix.NewFileHandle(int32(n), b), unix.O_RDONLY)
	return err
}

// inherited looks for descriptors that pid 1 had when it began, and that it has not opened itself.
func inherited() error {
	for _, p := range []string{"self", "1"} {
		names, err := os.ReadDir("/proc/" + p + "/fd")
		if err != nil {
			return err
		}
		for _, e := range names {
			to, err := os.Readlink("/proc/" + p + "/fd/" + e.Name())
			own := err != nil || strings.HasPrefix(to, "/proc/") || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "anon_inode:") || to == "/dev/null"
			if !own {
				return did("descriptor %s of %s is %s", e.Name(), p, to)
			}
		}
	}
	return fmt.Errorf("none")
}
