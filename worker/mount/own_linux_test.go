package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A bind that was idle, or that another had, was given for a path at which there was another directory by then.
func TestOwn(t *testing.T) {
	s := newStand(t, Options{})
	a, b := s.layer("a"), s.layer("b")
	spec := bind(a, "rbind", "ro")
	spec.Own = true
	one := s.get(spec)
	must(t, os.Rename(a, filepath.Join(filepath.Dir(a), "old")))
	must(t, os.Rename(b, a))
	two := s.get(spec)
	if x, y := read(t, one.Path()+"/who"), read(t, two.Path()+"/who"); x != "a" || y != "b" {
		t.Errorf("%q and %q", x, y)
	}
	one.Release()
	two.Release()
	s.settle()
	if st := s.Stats(); st.Mounts+st.Idle != 0 || st.Made != 2 || st.Shared != 0 {
		t.Errorf("%+v", st)
	}
}

// A step of an unprivileged user that saw a directory with a mount below it left a mount that could not be
// unmounted, and Close waited for ever: where a mount has to be attached to be cloned (before Linux 6.15),
// what has come with it goes with it.
func TestUnmountPoint(t *testing.T) {
	s := newStand(t, Options{})
	point := filepath.Join(s.dir, "point")
	for _, inUse := range []bool{true, false} {
		must(t, os.MkdirAll(point, 0o755))
		must(t, unix.Mount("point", point, "tmpfs", 0, ""))
		for _, below := range []string{"/below", "/below/deeper"} {
			must(t, os.Mkdir(point+below, 0o755))
			must(t, unix.Mount("below", point+below, "tmpfs", 0, ""))
		}
		if inUse {
			f, err := os.Create(point + "/below/file")
			must(t, err)
			if err := unmountPoint(point); !errors.Is(err, unix.EBUSY) {
				t.Errorf("in use: %v", err)
			}
			must(t, f.Close())
		}
		must(t, unmountPoint(point))
		if _, err := os.Lstat(point); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	if left, err := listBelow(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// A path with a blank was looked for in mountinfo as it is, and there it is escaped: what had come with a recursive
// bind was not found in a manager's directory with such a name, and it was never unmounted.
func TestUnmountPointEscaped(t *testing.T) {
	s := newStand(t, Options{})
	for _, name := range []string{"a b", "a\tb", "a\nb", `a\040b`, "a#b", "a\xffb"} {
		point := filepath.Join(s.dir, name)
		must(t, os.Mkdir(point, 0o755))
		must(t, unix.Mount("point", point, "tmpfs", 0, ""))
		must(t, os.Mkdir(point+"/be low", 0o755))
		must(t, unix.Mount("below", point+"/be low", "tmpfs", 0, ""))
		if err := unmountPoint(point); err != nil {
			t.Errorf("%q: %v", name, err)
			_ = unix.Unmount(point, unix.MNT_DETACH)
		}
	}
	if all, err := listBelow("/"); err != nil || len(all) == 0 {
		t.Errorf("below the root directory: %q, %v", all, err)
	}
}
