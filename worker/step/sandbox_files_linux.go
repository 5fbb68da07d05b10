package step

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file has what a sandbox shows of the machine, and hides: parts of /proc, /sys, terminals, and limits
// of resources. Native makes it by system calls, and runc is told to.

// readOnlyProc are the parts of /proc through which root could change the machine.
var readOnlyProc = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/driver", "/proc/mtrr", "/proc/pressure"}

// hiddenProc are the parts of /proc that say something of the machine and its other processes that no
// command needs: memory, keys, timers, devices. With dynamic_debug root switches the kernel's messages.
var hiddenProc = []string{
	"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/latency_stats", "/proc/interrupts",
	"/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/kmsg",
	"/proc/acpi", "/proc/scsi", "/proc/asound", "/proc/dynamic_debug",
}

// hide puts the null of /dev over files, and the empty file system over directories. What the kernel does
// not have is passed over.
func (p parts) hide(names []string) error {
	if err := unix.Fchdir(p.dev); err != nil { // a mount of the step may lie over /dev by now
		return fmt.Errorf("/dev: %w", err)
	}
	if err := unix.Access("null", unix.F_OK); err != nil {
		return fmt.Errorf("/dev/null: %v", err) // that it is not there must not be taken for what is to be hidden
	}
	for _, name := range names {
		err := unix.Mount("null", name, "", unix.MS_BIND, "")
		if err == unix.ENOTDIR {
			err = p.hideDirectory(name)
		}
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return fmt.Errorf("hiding %s: %w", name, err)
		}
	}
	return unix.Chdir("/")
}

func (p parts) hideDirectory(name string) error {
	fd, err := unix.OpenTree(p.empty, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("%s: %v", os.DevNull, err) // that it is not there must not be taken for name
	}
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// resourceLimit is one of each process of a step.
type resourceLimit struct {
	name   string
	number int
	unix.Rlimit
}

// resourceLimits are those that commands begin with, none higher than that of the calling process. Open
// files: as systemd has them, since some programs close all that are possible when they begin. A core file
// of one byte is none; a limit of 0 would have it be given to a program of the host, if core_pattern names
// one.
func resourceLimits() ([]resourceLimit, error) {
	list := []resourceLimit{
		{"RLIMIT_NOFILE", unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 1024, Max: 524288}},
		{"RLIMIT_CORE", unix.RLIMIT_CORE, unix.Rlimit{Cur: 1, Max: 1}},
	}
	for i := range list {
		if err := list[i].withinOwn(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// withinOwn lowers a limit to that of the calling process: without privileges it cannot be raised.
func (l *resourceLimit) withinOwn() error {
	var own unix.Rlimit
	if err := unix.Prlimit(0, l.number, nil, &own); err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	l.Max = min(l.Max, own.Max)
	l.Cur = min(l.Cur, l.Max)
	return nil
}

// limitResources sets the limits of this process.
func limitResources() error {
	list, err := resourceLimits()
	if err != nil {
		return err
	}
	for _, l := range list {
		if err := setLimit(l); err != nil {
			return err
		}
	}
	return nil
}

// limitOther sets limits of another process, and returns those that only that process may set: the limits
// of another user's take CAP_SYS_RESOURCE, which a service need not have.
func limitOther(pid int, list []resourceLimit) (left []resourceLimit, err error) {
	for _, l := range list {
		err := unix.Prlimit(pid, l.number, &l.Rlimit, nil)
		if err == unix.EPERM {
			left = append(left, l)
		} else if err != nil {
			return nil, fmt.Errorf("%s of the command: %w", l.name, err)
		}
	}
	return left, nil
}

// setLimit sets a limit so that the library knows of it: when it executes a program it otherwise sets the limit of open
// files back to what it was.
func setLimit(l resourceLimit) error {
	if err := syscall.Setrlimit(l.number, &syscall.Rlimit{Cur: l.Cur, Max: l.Max}); err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// limitProcesses bounds the processes of a user namespace, where there are no cgroups: of all its steps together.
func limitProcesses() error {
	l := resourceLimit{"RLIMIT_NPROC", unix.RLIMIT_NPROC, unix.Rlimit{Cur: DefaultPids, Max: DefaultPids}}
	if err := l.withinOwn(); err != nil {
		return err
	}
	return setLimit(l)
}
