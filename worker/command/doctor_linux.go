package command

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	"holdfast/worker/mount"
	"holdfast/worker/step"
)

// system looks at kernel, privileges and cgroups.
func (d *checkup) system() {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		d.add("System", "kernel", stateMissing, err.Error(), "")
	} else {
		d.add("System", "kernel", stateOK, "Linux "+unix.ByteSliceToString(u.Release[:]), "")
	}
	d.privileges()
	d.cgroups()
	d.fileSystems()
	d.features()
	d.isolation()
}

// isolation says of each runtime what stands between steps and this machine.
func (d *checkup) isolation() {
	const topic = "Isolation of steps"
	root, err := d.absRoot()
	if err != nil {
		root = "/" // the place of the store is looked at elsewhere
	}
	for _, i := range step.Isolations(d.ctx, root, d.kind()) {
		if i.Err != nil {
			d.add(topic, i.Runtime, stateLacking, "not to be had: "+i.Err.Error(), "")
			continue
		}
		d.add(topic, i.Runtime, stateOK, strings.Join(i.Has, "; "), "")
		for _, l := range i.Lacks {
			d.add(topic, i.Runtime, stateLacking, "it has not: "+l, "")
		}
	}
	d.add(topic, "kernel", stateLacking, "no runtime stops a command that exploits an error of the kernel", "for such commands use a virtual machine")
}

// privileges: mounting takes root, or a user namespace with one, which step makes for itself.
func (d *checkup) privileges() {
	inner := ""
	if userns.RunningInUserNS() {
		inner = ", in a user namespace: no images can be mounted, no devices made"
	}
	if os.Geteuid() == 0 {
		d.add("System", "privileges", stateOK, "root"+inner, "")
		return
	}
	if kind := d.kind(); kind != "copy" && kind != "overlay" {
		d.add("System", "privileges", stateMissing, "an unprivileged user; the driver "+kind+" needs root", "run it as root, for example with sudo, or with --driver copy or overlay")
		return
	}
	if err := tryUserNamespace(); err != nil {
		d.add("System", "privileges", stateMissing, "an unprivileged user, who can import, but have no user namespace to run steps in: "+err.Error(), userNamespaces)
		return
	}
	d.add("System", "privileges", stateOK, "an unprivileged user: steps run in a user namespace, with the runtime native and without --memory, --cpus and --pids; mount needs root", "")
}

// cgroups: without a controller, steps cannot have its limit.
func (d *checkup) cgroups() {
	const next = "mount -t cgroup2 cgroup2 /sys/fs/cgroup"
	var s unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &s); err != nil {
		d.add("System", "cgroups", stateLacking, "none: steps have no limits of memory, processors and processes", next)
		return
	}
	version, has := "version 1", func(name string) bool {
		_, err := os.Stat(filepath.Join("/sys/fs/cgroup", name, "cgroup.procs"))
		return err == nil
	}
	if int64(s.Type) == unix.CGROUP2_SUPER_MAGIC { //nolint:unconvert // its type is another on other processors
		b, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		names := strings.Fields(string(b))
		version, has = "version 2", func(name string) bool { return slices.Contains(names, name) }
	}
	var here, without []string
	for _, c := range []struct{ name, flag string }{{"memory", "--memory"}, {"cpu", "--cpus"}, {"pids", "--pids"}} {
		if has(c.name) {
			here = append(here, c.name)
		} else {
			without = append(without, c.flag)
		}
	}
	switch {
	case len(here) == 0:
		d.add("System", "cgroups", stateLacking, "none: steps have no limits of memory, processors and processes", next)
	case len(without) > 0:
		d.add("System", "cgroups", stateLacking, version+", "+strings.Join(here, ", ")+"; steps with "+strings.Join(without, ", ")+" are refused", "mount the controllers that are missing")
	default:
		d.add("System", "cgroups", stateOK, version+", "+strings.Join(here, ", "), "")
	}
}

// fileSystems: which the kernel has loaded. Others it may load when they are mounted.
func (d *checkup) fileSystems() {
	b, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		d.add("File systems", "all", stateMissing, err.Error(), "mount -t proc proc /proc")
		return
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) > 0 {
			names = append(names, fields[len(fields)-1])
		}
	}
	for _, f := range []struct {
		name    string
		drivers []string
	}{{"overlay", []string{"overlay", "erofs"}}, {"erofs", []string{"erofs"}}, {"btrfs", []string{"btrfs"}}} {
		if slices.Contains(names, f.name) {
			d.add("File systems", f.name, stateOK, "known to the kernel", "")
			continue
		}
		d.add("File systems", f.name, need(false, slices.Contains(f.drivers, d.driver)), "not known to the kernel, or not loaded", "modprobe "+f.name)
	}
}

// features asks a manager of mounts, which tries them.
func (d *checkup) features() {
	const topic = "Kernel features"
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err == nil {
		_ = unix.Close(fd)
		d.add(topic, "openat2", stateOK, "since Linux 5.6", "")
	} else {
		d.add(topic, "openat2", stateMissing, err.Error()+"; it is needed to import and to remove", "use Linux 5.14 or later")
	}
	if os.Geteuid() != 0 {
		return // privileges are what is missing
	}
	dir, err := os.MkdirTemp("", "holdfastd-doctor-")
	if err != nil {
		d.add(topic, "mounting", stateMissing, err.Error(), "")
		return
	}
	m, err := mount.Open(d.ctx, mount.Options{Directory: dir, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		for _, f := range m.Features() {
			if f.Used {
				d.add(topic, string(f.Feature), stateOK, "since Linux "+f.Since, "")
			} else {
				d.add(topic, string(f.Feature), stateLacking, f.Err.Error()+"; instead: "+f.Instead, "")
			}
		}
		err = m.Close(d.ctx)
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		d.add(topic, "mounting", stateMissing, err.Error(), "run it with CAP_SYS_ADMIN")
	}
}
