package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/mount"
)

// Mount mounts what a driver gives in a temporary directory, which it returns, and unmounts at the end of the test,
// or when the function is called that it returns too.
func Mount(t testing.TB, mounts []mount.Mount) (target string, unmount func()) {
	t.Helper()
	return MountServed(t, mounts, nil)
}

// MountServed is Mount with Mounters for some types.
func MountServed(t testing.TB, mounts []mount.Mount, served map[string]mount.Mounter) (target string, unmount func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		if len(mounts) == 1 && mounts[0].Type == "bind" && slices.Contains(mounts[0].Options, "rw") {
			return mounts[0].Source, func() {} // the same files
		}
		t.Skip("needs root: it mounts")
	}
	target = t.TempDir()
	var mounted []string
	var release func() error
	unmount = func() {
		for ; len(mounted) > 0; mounted = mounted[:len(mounted)-1] {
			at := mounted[len(mounted)-1]
			if err := unix.Unmount(at, 0); err != nil {
				t.Errorf("unmount %s: %v", at, err)
				_ = unix.Unmount(at, unix.MNT_DETACH)
			}
		}
	}
	unmountOnly := unmount
	unmount = func() {
		unmountOnly()
		if release != nil {
			if err := release(); err != nil {
				t.Errorf("giving back %+v: %v", mounts, err)
			}
		}
	}
	t.Cleanup(unmount)
	for i, m := range mounts {
		if server := served[m.Type]; server != nil && len(mounts) == 1 {
			path, r, err := server.Mount(context.Background(), m)
			if err != nil {
				t.Fatal(err)
			}
			release = r
			m = mount.Mount{Type: "bind", Source: path, Options: m.Options}
		}
		at := target
		if i < len(mounts)-1 {
			at = t.TempDir() // a lower layer of the last one
		} else {
			m.Options = append(m.Options[:len(m.Options):len(m.Options)], lowers(mounted)...)
		}
		if err := mountOne(m, at); err != nil {
			t.Fatalf("mount %+v on %s: %v", m, at, err)
		}
		mounted = append(mounted, at)
	}
	return target, unmount
}

// lowers is the option of an overlay for lower layers that are mounted.
func lowers(mounted []string) []string {
	if len(mounted) == 0 {
		return nil
	}
	return []string{"lowerdir=" + strings.Join(mounted, ":")}
}

// mountOne mounts one of a list.
func mountOne(m mount.Mount, target string) error {
	err := mountNew(m, target)
	if err == nil || m.Type == "bind" {
		return err
	}
	if old := mountOld(m, target); old != nil {
		return errors.Join(err, old)
	}
	return nil
}

// mountOld mounts with the program mount, for kernels before 6.5, whose overlays take all layers in one option, and
// before 6.12, which mount no file as erofs.
func mountOld(m mount.Mount, target string) error {
	out, err := exec.Command("mount", "-t", m.Type, "-o", strings.Join(m.Options, ","), m.Source, target).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// mountNew mounts with fsopen, which takes options of any length.
func mountNew(m mount.Mount, target string) error {
	if m.Type == "bind" {
		flags := uintptr(unix.MS_BIND | unix.MS_REC)
		if err := unix.Mount(m.Source, target, "", flags, ""); err != nil {
			return err
		}
		if slices.Contains(m.Options, "ro") {
			return unix.Mount("", target, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
		return nil
	}
	fs, err := unix.Fsopen(m.Type, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := configure(fs, m); err != nil {
		return err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fsmount: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// configure sets source and options of a file system that is to be mounted.
func configure(fs int, m mount.Mount) error {
	var errs []error
	set := func(key, value string) {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", key, value, err))
		}
	}
	set("source", m.Source)
	for _, o := range m.Options {
		key, value, valued := strings.Cut(o, "=")
		switch {
		case key == "lowerdir":
			for lower := range strings.SplitSeq(value, ":") {
				set("lowerdir+", lower)
			}
		case valued:
			set(key, value)
		case key == "loop": // the kernel mounts the file itself
		default:
			if err := unix.FsconfigSetFlag(fs, key); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
			}
		}
	}
	if len(errs) == 0 {
		errs = append(errs, unix.FsconfigCreate(fs))
	}
	return errors.Join(errs...)
}
