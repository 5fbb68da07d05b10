package disk_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/disk"
)

// quotaDirs names directories on file systems with project quotas, for a machine where they are mounted
// already; such as a virtual one, whose kernel has them.
const quotaDirs = "HOLDFAST_QUOTA_DIRS"

// onQuotas calls fn for a directory on each file system with project quotas that can be had. The kernel
// need not have them.
func onQuotas(t *testing.T, fn func(t *testing.T, dir string)) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	if dirs := os.Getenv(quotaDirs); dirs != "" {
		for dir := range strings.SplitSeq(dirs, ":") {
			t.Run(filepath.Base(dir), func(t *testing.T) { fn(t, dir) })
		}
		return
	}
	for kind, mkfs := range map[string][]string{
		"ext4": {"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"},
		"xfs":  {"mkfs.xfs", "-q"},
	} {
		t.Run(kind, func(t *testing.T) {
			image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
			if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20)); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", mkfs, err, out)
			}
			if out, err := exec.Command("mount", "-o", "loop,prjquota", image, dir).CombinedOutput(); err != nil {
				t.Skipf("this kernel has no project quotas on %s: %s", kind, out)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
			fn(t, dir)
		})
	}
}

// asHeld takes CAP_SYS_RESOURCE from the test, with which ext4 refuses nothing.
func asHeld(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and not unlocked: the thread ends with the test
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
}

// TestQuota: a step with --disk took 500 MiB of 10 by fallocate before its directory was measured again.
// With a quota the kernel refuses it; what is in other directories does not count, and what is lifted is
// not a limit.
func TestQuota(t *testing.T) {
	onQuotas(t, func(t *testing.T, root string) {
		if err := disk.HasQuotas(root); err != nil { // with CAP_SYS_RESOURCE, as holdfastd has it
			t.Fatal(err)
		}
		asHeld(t)
		dir, err := os.MkdirTemp(root, "store")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		upper, work := filepath.Join(dir, "fs"), filepath.Join(dir, "work")
		if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o700)); err != nil {
			t.Fatal(err)
		}
		const limit = 10 << 20
		q, err := disk.LimitTrees(7, limit, 0, dir, upper, work)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(err error) bool { return errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) }
		allocate := func(path string, size int64) error {
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Fallocate(int(f.Fd()), 0, 0, size)
		}
		if err := allocate(filepath.Join(upper, "big"), 100<<20); !refused(err) {
			t.Errorf("100 MiB of 10: %v", err)
		}
		_ = os.Remove(filepath.Join(upper, "big"))
		sub := filepath.Join(upper, "sub")
		if err := errors.Join(os.Mkdir(sub, 0o755), allocate(filepath.Join(sub, "six"), 6<<20)); err != nil {
			t.Error(err)
		}
		if used, inodes, err := q.Used(); err != nil || used < 6<<20 || used > limit || inodes < 5 || inodes > 6 { // XFS counts what is deleted for a while
			t.Errorf("%d bytes, %d inodes, %v", used, inodes, err)
		}
		if err := allocate(filepath.Join(work, "six"), 6<<20); !refused(err) {
			t.Errorf("6 MiB in the other directory: %v", err)
		}
		if err := allocate(filepath.Join(root, "other"), 20<<20); err != nil {
			t.Errorf("elsewhere: %v", err)
		}
		_ = os.Remove(filepath.Join(root, "other"))
		// Another limit with that number has another project.
		second := filepath.Join(root, "second")
		if err := os.Mkdir(second, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(second) })
		if other, err := disk.LimitTrees(7, limit, 0, second); err != nil {
			t.Error(err)
		} else if err := errors.Join(allocate(filepath.Join(second, "six"), 6<<20), other.Lift()); err != nil {
			t.Error(err)
		}
		// As the reaper does.
		if err := os.Rename(dir, dir+"-trash"); err != nil {
			t.Error(err)
		}
		if err := os.Rename(dir+"-trash", dir); err != nil {
			t.Error(err)
		}
		if err := q.Lift(); err != nil {
			t.Error(err)
		}
		if err := allocate(filepath.Join(upper, "big"), 100<<20); err != nil {
			t.Errorf("lifted: %v", err)
		}
		if left, err := filepath.Glob(filepath.Join(root, "probe-*")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestInodeQuota: empty files were not limited at all: a step within its limit of disk took all inodes of the file
// system.
func TestInodeQuota(t *testing.T) {
	onQuotas(t, func(t *testing.T, root string) {
		asHeld(t)
		for i, inodes := range []int64{0, 20} {
			dir, err := os.MkdirTemp(root, "inodes")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			q, err := disk.LimitTrees(uint64(100+i), 10<<20, inodes, dir)
			if err != nil {
				t.Fatal(err)
			}
			made := 0
			for ; made < 100 && err == nil; made++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprint(made)), nil, 0o600)
			}
			_, used, usedErr := q.Used()
			switch {
			case usedErr != nil:
				t.Error(usedErr)
			case inodes == 0 && (err != nil || used != 101):
				t.Errorf("without a limit: %d, %v", used, err)
			case inodes > 0 && (!errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) || used != inodes):
				t.Errorf("%d of %d: %v", used, inodes, err)
			}
			// A number in use with empty files alone is not given twice.
			elsewhere, err := os.MkdirTemp(root, "elsewhere")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
			other, err := disk.LimitTrees(uint64(100+i), 10<<20, 1, elsewhere)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "one more"), nil, 0o600), other.Lift()); inodes == 0 && err != nil {
				t.Error(err)
			}
			if err := errors.Join(q.Lift(), os.WriteFile(filepath.Join(dir, "lifted"), nil, 0o600)); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestNoQuota: a file system without quotas is told from one with them, and nothing is left on it.
func TestNoQuota(t *testing.T) {
	dir := t.TempDir()
	if err := disk.HasQuotas(dir); err != nil && !errors.Is(err, disk.ErrNoQuota) {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
