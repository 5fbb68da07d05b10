package mount

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOverlayIsHeldToLimits: what was written to an overlay was written with CAP_SYS_RESOURCE, which its mounter had:
// ext4 refused a step nothing beyond its quota, and gave it the blocks that are reserved. (Reserved blocks are what
// each kernel has.)
func TestOverlayIsHeldToLimits(t *testing.T) {
	needRoot(t)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	must(t, unix.Capget(&header, &data[0]))
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		t.Skip("left out: root has not CAP_SYS_RESOURCE here")
	}
	image, disk := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "50", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	// The reserve is for the user with the number 1, and for who has the capability.
	if out, err := exec.Command("mount", "-o", "loop,resuid=1", image, disk).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() { must(t, unix.Unmount(disk, 0)) })
	const most = 48 << 20
	allocate := func(path string) error {
		f, err := os.Create(path)
		must(t, err)
		defer f.Close()
		return unix.Fallocate(int(f.Fd()), 0, 0, most)
	}
	must(t, allocate(filepath.Join(disk, "own"))) // this process has it
	must(t, os.Remove(filepath.Join(disk, "own")))
	for _, name := range []string{"all", "oldest"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Without: withoutSets[name], Keep: []string{disk}})
			upper, work := filepath.Join(disk, name, "upper"), filepath.Join(disk, name, "work")
			must(t, errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)))
			h := s.get(overlay([]string{s.layer("lower")}, "upperdir="+upper, "workdir="+work))
			if err := allocate(filepath.Join(h.Path(), "big")); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("it takes what is reserved: %v", err)
			}
			must(t, os.Remove(filepath.Join(h.Path(), "big")))
			s.free(h)
			must(t, allocate(filepath.Join(disk, "own"))) // this process has it as before
			must(t, os.Remove(filepath.Join(disk, "own")))
		})
	}
}
