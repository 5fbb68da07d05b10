package real

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// needsMounts skips the test where nothing can be mounted.
func needsMounts(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 || os.Getenv(namespaceVariable) != "mounts" {
		t.Skip("needs root with CAP_SYS_ADMIN: mounts file systems")
	}
}

// mount mounts a file system on a directory of the test. Its cleanup unmounts,
// also when something still uses it.
func mount(t *testing.T, source, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(source, dir, kind, 0, options); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		err := unix.Unmount(dir, 0)
		if err == nil || err == unix.EINVAL { // unmounted already
			return
		}
		if lazy := unix.Unmount(dir, unix.MNT_DETACH); lazy != nil || !t.Failed() {
			t.Errorf("unmount %s: %v", kind, errors.Join(err, lazy))
		}
	})
	return dir
}

func mountTmpfs(t *testing.T, size string) string {
	needsMounts(t)
	return mount(t, "tmpfs", "tmpfs", "size="+size)
}

// disk is a loop device with an ext4 file system, mounted at dir. Its image has
// no name any more, and the device detaches itself with its last user, so both
// are gone when this process is.
type disk struct {
	t    *testing.T
	loop *os.File
	dir  string
}

// newDisk makes a disk of so many MiB, with further options for mkfs.ext4.
func newDisk(t *testing.T, mebibytes int64, mkfs ...string) *disk {
	t.Helper()
	needsMounts(t)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	name := filepath.Join(t.TempDir(), "image")
	image, err := os.Create(name)
	must(t, err)
	defer image.Close()
	must(t, image.Truncate(mebibytes<<20))
	args := slices.Concat([]string{"-q", "-F", "-m", "0"}, mkfs, []string{name})
	if out, err := exec.Command("mkfs.ext4", args...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4 (Debian package e2fsprogs): %v: %s", err, out)
	}
	must(t, os.Remove(name))
	d := &disk{t: t, loop: attach(t, image)}
	t.Cleanup(func() { d.loop.Close() })
	d.dir = mount(t, d.loop.Name(), "ext4", "")
	return d
}

// attach finds a free loop device for the image.
func attach(t *testing.T, image *os.File) *os.File {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(t, err)
	defer control.Close()
	config := &unix.LoopConfig{Fd: uint32(image.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		must(t, err)
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		must(t, err)
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), config); err == nil {
			return loop
		}
		loop.Close()
		if err != unix.EBUSY { // somebody else took it
			t.Fatalf("attach %s: %v", loop.Name(), err)
		}
	}
}

// remount unmounts and mounts: nothing is cached then. No file may be open.
func (d *disk) remount() {
	d.t.Helper()
	must(d.t, unix.Unmount(d.dir, 0))
	must(d.t, unix.Mount(d.loop.Name(), d.dir, "ext4", 0, ""))
}

// failFrom makes the device end at that byte: what lies behind can neither be
// read nor written, with EIO, until heal. It keeps its content.
func (d *disk) failFrom(position uint64) {
	d.t.Helper()
	info, err := unix.IoctlLoopGetStatus64(int(d.loop.Fd()))
	must(d.t, err)
	info.Sizelimit = position
	must(d.t, unix.IoctlLoopSetStatus64(int(d.loop.Fd()), info))
}

// heal takes failFrom back.
func (d *disk) heal() { d.failFrom(0) }

// extent is a piece of a file and where it lies on the device, in bytes.
type extent struct{ logical, physical, length uint64 }

// failDuring calls do while the device fails from a position on. Should do take
// long the device heals: where the file system wants to allocate a block behind
// its end for something of its own, Linux tries again until it can.
func (d *disk) failDuring(position uint64, do func() error) error {
	var once sync.Once
	heal := func() { once.Do(d.heal) }
	d.failFrom(position)
	defer heal()
	defer time.AfterFunc(10*time.Second, heal).Stop()
	return do()
}

// extents asks the file system (FS_IOC_FIEMAP) where the blocks of a file are
// that have a place already. It does not flush.
func extents(f *os.File) ([]extent, error) {
	const most = 512
	type mapped struct {
		extent
		_     [2]uint64
		flags uint32
		_     [3]uint32
	}
	var arg struct {
		start, length          uint64
		flags, n, count, spare uint32
		extents                [most]mapped
	}
	const getFiemap = 0xC020660B
	arg.length, arg.count = ^uint64(0), most
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getFiemap, uintptr(unsafe.Pointer(&arg))); e != 0 {
		return nil, fmt.Errorf("extents of %s: %w", f.Name(), e)
	}
	const placeUnknown = 0x2 // FIEMAP_EXTENT_UNKNOWN
	var list []extent
	for _, e := range arg.extents[:arg.n] {
		if e.flags&placeUnknown == 0 {
			list = append(list, e.extent)
		}
	}
	if len(list) == 0 || arg.n == most {
		return nil, fmt.Errorf("extents of %s: %d, %d with a place; want some, and less than %d", f.Name(), arg.n, len(list), most)
	}
	return list, nil
}

// lowest is where the first byte of a file on the device lies.
func lowest(list []extent) uint64 {
	position := list[0].physical
	for _, e := range list {
		position = min(position, e.physical)
	}
	return position
}

// readDevice reads a file past the page cache (O_DIRECT), which it leaves as it is.
func readDevice(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	const align = 4096
	size := int(info.Size())
	buf, err := unix.Mmap(-1, 0, max(size+align-1, align)/align*align, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Munmap(buf) }()
	for at := 0; at < size; {
		n, err := unix.Pread(int(f.Fd()), buf[at:], int64(at))
		if err != nil || n == 0 {
			return nil, fmt.Errorf("read %s past the cache at %d: %w", path, at, err)
		}
		at += n
	}
	return slices.Clone(buf[:size]), nil
}
