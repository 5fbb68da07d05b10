package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// idCount is how many ids the step's user namespace has.
const idCount = 1 << 16

// who prints who this process is: users, capabilities, and whether it can get new privileges.
func who() {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains([]string{"Uid", "CapEff", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs", "Seccomp"}, name) {
			fmt.Println(name, strings.Join(strings.Fields(value), " "))
		}
	}
}

// capable gives a file a capability (CAP_KILL), which a program of it has in effect.
func capable(name string) {
	data := make([]byte, 20) // struct vfs_cap_data, version 2
	binary.LittleEndian.PutUint32(data, 0x02000001)
	binary.LittleEndian.PutUint32(data[4:], 1<<unix.CAP_KILL)
	if err := unix.Setxattr(name, "security.capability", data, 0); err != nil {
		panic(err)
	}
}

// userAttempts are made where the step has a user namespace: HOSTILE_CAPS are the capabilities of its root then, and
// /unmapped is a directory that belongs to the host's root there.
func userAttempts() []attempt {
	if env("CAPS") == "" {
		return nil
	}
	return append(idAttempts(), privilegeAttempts()...)
}

// eachDevice does something to one device after the other.
func eachDevice(do func(name string) error) func() error {
	return func() error {
		var list []func() error
		for _, name := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
			list = append(list, func() error { return do(name) })
		}
		return first(list...)
	}
}

// idAttempts are about owners of files, and ids that the step does not have.
func idAttempts() []attempt {
	return []attempt{
		{"files of the host's root in a mount", func() error { return writeBelow("/unmapped") }},
		{"owner of a file of the host's root", func() error { return os.Chown("/unmapped/file", 0, 0) }},
		{"content of a private file of the host's root", func() error { return reads("/unmapped/private") }},
		{"a file in the place of one of the host's root", func() error { return os.Rename("/rw/own", "/unmapped/file") }},
		{"mode of a device", eachDevice(func(name string) error { return unix.Chmod(name, 0o600) })},
		{"owner of a device", eachDevice(func(name string) error { return unix.Chown(name, 0, 0) })},
		{"user outside the map", func() error { return first(outside(unix.SYS_SETRESUID)...) }},
		{"group outside the map", func() error { return first(outside(unix.SYS_SETRESGID)...) }},
		{"groups outside the map", func() error {
			return first(func() error { return unix.Setgroups([]int{idCount}) }, func() error { return unix.Setgroups([]int{hostID()}) })
		}},
		{"file of a user outside the map", func() error {
			if err := os.WriteFile("/outside", nil, 0o644); err != nil {
				return err
			}
			return first(func() error { return os.Chown("/outside", idCount, -1) }, func() error { return os.Chown("/outside", hostID(), -1) },
				func() error { return os.Chown("/outside", -1, hostID()) }, func() error { return os.Chown("/rw", hostID(), -1) })
		}},
		{"the map is written", func() error {
			return first(func() error { return os.WriteFile("/proc/self/uid_map", []byte("0 0 4294967295\n"), 0) },
				func() error { return os.WriteFile("/proc/1/uid_map", []byte("0 0 1\n"), 0) },
				func() error { return os.WriteFile("/proc/self/gid_map", []byte("0 0 1\n"), 0) })
		}},
	}
}

// privilegeAttempts are about capabilities, namespaces and programs that give more of either.
func privilegeAttempts() []attempt {
	return []attempt{
		{"more capabilities than allowed", moreCapabilities},
		{"capabilities are added", func() error { return capsetAll() }},
		{"namespace above", func() error { return namespaceOf("user", unix.NS_GET_PARENT) }},
		{"owner of the mount namespace", func() error { return namespaceOf("mnt", unix.NS_GET_USERNS) }},
		{"owner of the network namespace", func() error { return namespaceOf("net", unix.NS_GET_USERNS) }},
		{"attribute of overlays", func() error {
			return first(func() error { return unix.Setxattr("/tmp", "trusted.overlay.opaque", []byte("y"), 0) },
				func() error { return unix.Setxattr("/tmp", "trusted.x", []byte("y"), 0) })
		}},
		{"set-user-ID program", func() error {
			return privileged(func(name string) error { return os.Chmod(name, 0o755|os.ModeSetuid|os.ModeSetgid) })
		}},
		{"set-user-ID program in a mount", func() error {
			name := "/rw/program"
			if err := copyOf(name); err != nil {
				return err
			}
			if err := os.Chmod(name, 0o755|os.ModeSetuid); err != nil {
				return err
			}
			return runs(name)
		}},
		{"program with capabilities", func() error { return privileged(func(name string) error { return fileCapabilities(name) }) }},
		{inner + "more than an unprivileged user", func() error {
			if os.Geteuid() == 0 || os.Getegid() == 0 {
				return nil
			}
			for _, field := range []string{"CapEff:", "CapPrm:", "CapInh:", "CapAmb:"} {
				if err := status(field, strings.Repeat("0", 16)); err != nil {
					if _, same := err.(succeeded); !same {
						return nil //nolint:nilerr // it has some, which is what is tried
					}
				}
			}
			return fmt.Errorf("no more")
		}},
	}
}

// hostID is the id that the root of the step has on the host.
func hostID() int {
	b, err := os.ReadFile("/proc/self/uid_map")
	if fields := strings.Fields(string(b)); err == nil && len(fields) == 3 {
		if n, err := strconv.Atoi(fields[1]); err == nil {
			return n
		}
	}
	return 1879048192
}

// outside sets ids that are not those of the step.
func outside(number uintptr) (list []func() error) {
	for _, id := range []int{idCount, hostID(), hostID() - 1, 1<<31 - 1} {
		list = append(list, func() error { return call(number, uintptr(id), uintptr(id), uintptr(id)) })
	}
	return list
}

// moreCapabilities looks for some in all sets of this process and of the first.
func moreCapabilities() error {
	allowed, err := strconv.ParseUint(env("CAPS"), 16, 64)
	if err != nil {
		return err
	}
	for _, p := range []string{"self", "1"} {
		b, err := os.ReadFile("/proc/" + p + "/status")
		if err != nil {
			return err
		}
		sets := 0
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if !strings.HasPrefix(name, "Cap") {
				continue
			}
			set, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return err
			}
			sets++
			if set&^allowed != 0 {
				return did("%s of %s is %s", name, p, value)
			}
		}
		if sets != 5 {
			return did("%d sets", sets)
		}
	}
	return fmt.Errorf("none")
}

func capsetAll() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	for c := range uintptr(41) {
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		bit := uint32(1) << (c % 32)
		if data[c/32].Permitted&bit != 0 {
			continue
		}
		data[c/32].Permitted |= bit
		data[c/32].Effective |= bit
		if err := unix.Capset(&header, &data[0]); err == nil {
			return did("capability %d", c)
		}
	}
	return unix.EPERM
}

func namespaceOf(name string, request uint) error {
	fd, err := unix.Open("/proc/self/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.IoctlRetInt(fd, request)
	return err
}

// copyOf makes a copy of this program.
func copyOf(name string) error {
	from, err := os.Open("/hostile")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.Close()
}

// privileged makes a program that gives privileges to every user who runs it, and runs it as one without any.
func privileged(mark func(name string) error) error {
	const name = "/privileged"
	if err := copyOf(name); err != nil {
		return err
	}
	defer os.Remove(name)
	if err := mark(name); err != nil {
		return err
	}
	return runs(name)
}

func runs(name string) error {
	cmd := exec.Command(name, "only", inner+"more than an unprivileged user")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	if strings.HasPrefix(string(out), "SUCCEEDED") {
		return did("it has")
	}
	return fmt.Errorf("%s", strings.TrimSpace(string(out)))
}

// fileCapabilities gives a program all capabilities that root in a step has.
func fileCapabilities(name string) error {
	caps, err := strconv.ParseUint(env("CAPS"), 16, 64)
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, 0x02000001) // version 2, effective
	b = binary.LittleEndian.AppendUint32(b, uint32(caps))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, caps>>32)
	return unix.Setxattr(name, "security.capability", b, 0)
}
