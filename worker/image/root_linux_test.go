package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	copydriver "holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/drivertest"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
}

// TestDrivers: what is imported looks the same with every driver, after each layer.
func TestDrivers(t *testing.T) {
	needRoot(t)
	l := newLayout(t)
	layers := append(rich(t), gz(archive(t, file("below/f", "x"), dir("o"), file("o/f", "x"))),
		gz(archive(t, file(".wh..wh..opq", ""), file("bin/new", "x"), file("below/.wh.f", ""), file("implied/below/h", "x"), symlink("o", "bin")))) // all is new
	for n := range layers {
		l.add(l.image(nil, layers[:n+1]...), fmt.Sprint(n))
	}
	drivers := map[string]func(root string) snapshot.Driver{
		"overlay": func(string) snapshot.Driver { return overlay.New() },
		"btrfs": func(root string) snapshot.Driver {
			drivertest.Filesystem(t, "btrfs", root)
			return btrfs.New()
		},
		"erofs": func(root string) snapshot.Driver {
			drivertest.Filesystem(t, "ext4", root)
			return erofs.New()
		},
	}
	want := make([]map[string]string, len(layers))
	whole := store(t, "", nil)
	for n := range want {
		r, err := image.Import(ctx, whole, l.dir, image.Options{Ref: fmt.Sprint(n)})
		must(t, err)
		want[n] = see(t, whole, r.Snapshot)
	}
	for name, driver := range drivers {
		root := t.TempDir()
		namespace := store(t, root, driver(root))
		m, err := mount.Open(ctx, mount.Options{Directory: t.TempDir(), Keep: []string{root}})
		must(t, err)
		t.Cleanup(func() { must(t, m.Close(ctx)) })
		for n := range want {
			r, err := image.Import(ctx, namespace, l.dir, image.Options{Ref: fmt.Sprint(n), Mounts: m})
			if err != nil {
				t.Errorf("%s, %d layers: %v", name, n+1, err)
				break
			}
			drivertest.Equal(t, fmt.Sprintf("%s, %d layers", name, n+1), unlinked(see(t, namespace, r.Snapshot)), unlinked(want[n]))
		}
		if name == "erofs" {
			other := t.TempDir()
			if _, err := image.Import(ctx, store(t, other, erofs.New()), l.dir, image.Options{Ref: "1"}); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("images without a manager of mounts: %v", err)
			}
		}
	}
}

func TestOwners(t *testing.T) {
	needRoot(t)
	namespace := store(t, "", nil)
	owned := func(uid, gid int) func(*tar.Header) { return func(h *tar.Header) { h.Uid, h.Gid = uid, gid } }
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	b := archive(t, dir("d").with(owned(1, 2)), file("d/f", "x").with(owned(3, 70_000)).with(func(h *tar.Header) { h.Mode = 0o6755 }),
		symlink("l", "x").with(owned(5, 6)), file("ping", "x").with(xattr("security.capability", capability)),
		file("other", "").with(xattr("trusted.secret", "x")), device("null", tar.TypeChar, 1, 3), device("sda", tar.TypeBlock, 8, 1))
	r, err := image.ImportArchive(ctx, namespace, bytes.NewReader(b), image.Options{Devices: image.DevicesMake})
	must(t, err)
	if r.LeftOut != (image.LeftOut{Xattrs: 1}) {
		t.Errorf("left out: %+v", r.LeftOut)
	}
	info, err := namespace.Stat(ctx, r.Snapshot)
	must(t, err)
	root := filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs")
	for name, want := range map[string][4]uint32{
		"d": {1, 2, unix.S_IFDIR | 0o755, 0}, "d/f": {3, 70_000, unix.S_IFREG | 0o6755, 0}, "l": {5, 6, unix.S_IFLNK | 0o777, 0},
		"null": {0, 0, unix.S_IFCHR | 0o600, uint32(unix.Mkdev(1, 3))}, "sda": {0, 0, unix.S_IFBLK | 0o600, uint32(unix.Mkdev(8, 1))},
	} {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(root, name), &st))
		if got := [4]uint32{st.Uid, st.Gid, st.Mode, uint32(st.Rdev)}; got != want {
			t.Errorf("%s is %d, and should be %d", name, got, want)
		}
	}
	buf := make([]byte, 100)
	n, err := unix.Lgetxattr(filepath.Join(root, "ping"), "security.capability", buf)
	if err != nil || string(buf[:n]) != capability {
		t.Errorf("capability: %q, %v", buf[:max(n, 0)], err)
	}
	skipped, err := image.ImportArchive(ctx, namespace, bytes.NewReader(archive(t, device("null", tar.TypeChar, 1, 3))), image.Options{Devices: image.DevicesSkip})
	if err != nil || skipped.LeftOut.Devices != 1 {
		t.Errorf("%+v, %v", skipped, err)
	}
}

// TestFullDisk: an import that does not fit leaves nothing, on a disk that is full of it.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	must(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { must(t, unix.Unmount(root, 0)) })
	s, err := snapshot.Open(root, snapshot.Options{Driver: copydriver.New()})
	must(t, err)
	namespace, err := s.Namespace("local")
	must(t, err)
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i*7 + i>>8)
	}
	var list []entry
	for i := range 80 {
		list = append(list, file(fmt.Sprint(i), string(noise)))
	}
	l := simple(t, onto(t), layer{"application/vnd.oci.image.layer.v1.tar", archive(t, list...)})
	for range 2 {
		_, err = image.Import(ctx, namespace, l.dir, image.Options{Name: "x"})
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		clean(t, namespace)
	}
	must(t, s.Close())
}

// TestSameEverywhere: cases in which an overlay showed something else than a whole tree.
func TestSameEverywhere(t *testing.T) {
	needRoot(t)
	kept := xattr("user.kept", "yes")
	below := archive(t, dir("./").with(kept), dir("d").with(kept), file("d/x", "x"), dir("e").with(kept), file("e/x", "x"))
	cases := map[string]layer{
		// The file removed what a whole tree has below, and the directory was merged with it in an overlay.
		"a file, and then a directory": gz(archive(t, file("d", ""), dir("d"))),
		"a link, and then a directory": gz(archive(t, symlink("d", "e"), dir("d"), file("d/y", "y"))),
		// A whole tree kept the attributes that the entry has not.
		"a directory without attributes": gz(archive(t, dir("d"), file("e/y", "y"))),
		"a root without attributes":      gz(archive(t, dir("./"))),
		"other attributes":               gz(archive(t, dir("d").with(xattr("user.other", "1")))),
	}
	for name, l := range cases {
		layout := simple(t, gz(below), l)
		whole, stacked := store(t, "", nil), store(t, t.TempDir(), overlay.New())
		var lists []map[string]string
		for _, namespace := range []*snapshot.Namespace{whole, stacked} {
			r, err := image.Import(ctx, namespace, layout.dir, image.Options{})
			must(t, err)
			lists = append(lists, unlinked(see(t, namespace, r.Snapshot)))
		}
		drivertest.Equal(t, name, lists[1], lists[0])
	}
}

// TestUserMarks: with the mount option userxattr overlayfs heeds only marks that are called user.overlay.; what root
// imported had others, and so opaque directories showed what lower layers have.
func TestUserMarks(t *testing.T) {
	needRoot(t)
	l := simple(t, rich(t)...)
	whole := store(t, "", nil)
	r, err := image.Import(ctx, whole, l.dir, image.Options{})
	must(t, err)
	want := unlinked(see(t, whole, r.Snapshot))
	namespace := store(t, t.TempDir(), overlay.New("userxattr"))
	_, err = image.Import(ctx, namespace, l.dir, image.Options{})
	must(t, err)
	drivertest.Equal(t, "with userxattr", unlinked(see(t, namespace, r.Snapshot)), want)
}
