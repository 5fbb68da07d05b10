package vfs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mountpoint mounts a file system for the test, which only root can.
func mountpoint(t *testing.T, source, kind, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	dir := t.TempDir()
	if err := unix.Mount(source, dir, kind, 0, options); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", kind, err)
		}
	})
	return dir
}

// DropCache dropped nothing, and said nothing, where the range was less than a
// unit of the cache: in a file whose beginning was written in one piece, or with
// pages of the database smaller than the system's.
func TestDropCacheDrops(t *testing.T) {
	dir := loopExt4(t, 64)
	for _, size := range []int{4 << 10, 64 << 10, 4 << 20} {
		for _, n := range []int64{1024, 8192} {
			name := filepath.Join(dir, fmt.Sprint(size, "-", n))
			must(t, os.WriteFile(name, make([]byte, size), 0o600))
			f, err := OpenOS(name, os.O_RDWR, 0, nil)
			must(t, err)
			must(t, f.Sync())
			before, known := cached(descriptor(t, f), 0, n)
			if !known {
				t.Skip("the kernel does not tell what it has cached")
			}
			if before == 0 {
				t.Errorf("%s: nothing is cached", name)
			}
			must(t, f.DropCache(0, n))
			if after, _ := cached(descriptor(t, f), 0, n); after != 0 {
				t.Errorf("%s: %d pages are still cached", name, after)
			}
			must(t, f.Close())
		}
	}
}

// Prefetch reads what is not cached, also where it is more than one call reads ahead, and no
// more than that.
func TestPrefetchReads(t *testing.T) {
	const size, off, n = 40 << 20, 1<<20 + 5*testPage, 30<<20 + 17
	name := filepath.Join(loopExt4(t, 64), "db")
	must(t, os.WriteFile(name, make([]byte, size), 0o600))
	f, err := OpenOS(name, os.O_RDWR, 0, nil)
	must(t, err)
	closeAfter(t, f)
	must(t, f.Sync())
	must(t, f.DropCache(0, size))
	m := mapped(t, f, size)
	fd := descriptor(t, f)
	if before, known := cached(fd, 0, size); !known {
		t.Skip("the kernel does not tell what it has cached")
	} else if before != 0 {
		t.Fatalf("%d pages are cached before", before)
	}
	m.Prefetch(off, n)
	page := int64(os.Getpagesize())
	pages := uint64((n-1)/page + 1)
	if got, _ := cached(fd, off, n); got != pages {
		t.Errorf("%d pages are cached, want %d", got, pages)
	}
	if got, _ := cached(fd, 0, size); got > pages+prefetchPiece/uint64(page) {
		t.Errorf("%d pages are cached, though %d were asked for", got, pages)
	}
}

// descriptor is that of f, for looking at it.
func descriptor(t *testing.T, f File) (fd uintptr) {
	must(t, f.(*OSFile).control(func(is uintptr) error { fd = is; return nil }))
	return fd
}

// loopExt4 mounts an ext4 of so many MiB on a loop device.
func loopExt4(t *testing.T, mebibytes int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	image := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, int64(mebibytes)<<20))
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: %v", err)
	}
	run("mkfs.ext4", "-q", image)
	device := run("losetup", "--find", "--show", image)
	t.Cleanup(func() { run("losetup", "--detach", device) })
	return mountpoint(t, device, "ext4", "")
}

func openIn(t *testing.T, dir string) File {
	t.Helper()
	file, err := OpenOS(filepath.Join(dir, "db"), os.O_RDWR|os.O_CREATE, 0o600, nil)
	must(t, err)
	closeAfter(t, file)
	return file
}

// testGrowFull grows a file on a file system of about limit bytes.
func testGrowFull(t *testing.T, dir string, limit int64) {
	file := openIn(t, dir)
	content := pattern(100_000, 1)
	write(t, file, content, 0)
	err := file.Grow(8 * limit)
	wantError(t, "grow", err, syscall.ENOSPC)
	wantContent(t, file, content)
	if prefix := "grow " + file.Name() + ": "; err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("%v, want it to begin with %q", err, prefix)
	}
	// What had been reserved before the disk was full has been given back.
	must(t, file.Grow(limit/2))
	must(t, file.Truncate(100_000))
	other := filepath.Join(dir, "other")
	must(t, os.WriteFile(other, pattern(int(limit/2), 2), 0o600))
	wantContent(t, file, content)
}

func TestGrowFullTmpfs(t *testing.T) {
	testGrowFull(t, mountpoint(t, "tmpfs", "tmpfs", "size=1m"), 1<<20)
}

func TestGrowFullExt4(t *testing.T) { testGrowFull(t, loopExt4(t, 32), 24<<20) }

// TestGrowReserved: a full disk does not fail writes into what Grow reserved.
func TestGrowReserved(t *testing.T) {
	dir := mountpoint(t, "tmpfs", "tmpfs", "size=1m")
	file := openIn(t, dir)
	must(t, file.Grow(512<<10))
	err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600)
	wantError(t, "fill", err, syscall.ENOSPC)
	content := pattern(512<<10, 1)
	write(t, file, content, 0)
	must(t, file.Sync())
	wantContent(t, file, content)
}

// TestGrowUnsupported: ramfs has no fallocate.
func TestGrowUnsupported(t *testing.T) {
	file := openIn(t, mountpoint(t, "ramfs", "ramfs", ""))
	err := file.(*OSFile).control(func(fd uintptr) error { return unix.Fallocate(int(fd), 0, 0, 1) })
	wantError(t, "fallocate", err, unix.EOPNOTSUPP)
	content := pattern(10, 1)
	write(t, file, content, 0)
	must(t, file.Grow(100_000))
	must(t, file.Grow(50_000))
	wantContent(t, file, append(content, make([]byte, 100_000-10)...))
}

func TestReserve(t *testing.T) {
	const end = int64(5<<30 + 7)
	var pieces []int64
	done := int64(3)
	err := reserve(done, end, func(off, length int64) error {
		if off != done {
			t.Fatalf("piece at %d, want %d", off, done)
		}
		// A signal comes before 3 MiB are through.
		if length > 3<<20 {
			return unix.EINTR
		}
		pieces = append(pieces, length)
		done += length
		return nil
	})
	if err != nil || done != end || slices.Max(pieces) != 2<<20 {
		t.Errorf("reserved up to %d of %d in pieces of %d: %v", done, end, slices.Max(pieces), err)
	}
	calls := 0
	err = reserve(0, end, func(int64, int64) error {
		if calls++; calls == 2 {
			return unix.ENOSPC
		}
		return nil
	})
	if err != unix.ENOSPC || calls != 2 {
		t.Errorf("%v after %d calls, want ENOSPC after 2", err, calls)
	}
}

// writeCalls is how many write system calls the process has made.
func writeCalls(t *testing.T) (calls int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "syscw: %d", &calls); err == nil {
			return calls
		}
	}
	t.Fatal("no syscw in /proc/self/io")
	return 0
}

func TestWriteVecCalls(t *testing.T) {
	file := opened(t, osOpener(t))
	bufs := make([][]byte, 3000)
	for i := range bufs {
		bufs[i] = pattern(100, uint64(i))
	}
	var calls int64
	for range 5 { // Go's runtime writes, too, to wake its poller
		before := writeCalls(t)
		must(t, file.WriteVec(bufs, 0))
		if calls = writeCalls(t) - before; calls == 3 {
			return
		}
	}
	t.Errorf("%d system calls for 3000 buffers, want 3", calls)
}

// TestLockIsFlock: others that use flock, as bbolt does, are kept out.
func TestLockIsFlock(t *testing.T) {
	file := opened(t, osOpener(t))
	other, err := os.Open(file.Name())
	must(t, err)
	closeAfter(t, other)
	must(t, file.Lock(true, 0))
	wantError(t, "flock", unix.Flock(int(other.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	must(t, file.Unlock())
	must(t, unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	if err := file.Lock(false, time.Millisecond); err != ErrTimeout {
		t.Errorf("%v, want ErrTimeout", err)
	}
}

func TestMapFlags(t *testing.T) {
	file := opened(t, osOpener(t))
	must(t, file.Grow(testPage))
	// Only a file of hugetlbfs can be mapped so.
	_, err := file.Map(testPage, MapOptions{Flags: unix.MAP_HUGETLB})
	wantError(t, "map", err, syscall.EINVAL)
	wantError(t, "map", err, ErrMapping)
	mapping, err := file.Map(testPage, MapOptions{Flags: unix.MAP_POPULATE})
	must(t, err)
	must(t, mapping.Close())
}

// smaps is what the kernel tells of the mappings from the address of data on
// up to its end: pinned KiB and the flags of the first.
func smaps(t *testing.T, data []byte) (pinned int, flags []string) {
	t.Helper()
	file, err := os.Open("/proc/self/smaps")
	must(t, err)
	defer func() { _ = file.Close() }()
	first := uint64(uintptr(unsafe.Pointer(&data[0])))
	inside := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var start, end uint64
		var kib int
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &start, &end); n == 2 {
			inside = start >= first && start < first+uint64(len(data))
		} else if n, _ := fmt.Sscanf(lines.Text(), "Locked: %d kB", &kib); inside && n == 1 {
			pinned += kib
		} else if text, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); inside && ok && flags == nil {
			flags = strings.Fields(text)
		}
	}
	if flags == nil {
		t.Fatal("the mapping is not in smaps")
	}
	return pinned, flags
}

func TestMapKernelView(t *testing.T) {
	file := opened(t, osOpener(t))
	must(t, file.Grow(16*testPage))
	mapping := mapped(t, file, 64*testPage)
	_, flags := smaps(t, mapping.Data())
	if !slices.Contains(flags, "sh") || !slices.Contains(flags, "rr") || slices.Contains(flags, "wr") {
		t.Errorf("flags %v, want shared, random and not writable", flags)
	}
	page := int64(os.Getpagesize())
	for _, step := range []struct{ n, pages int64 }{{1, 1}, {page, 1}, {3*page + 1, 4}, {2, 4}, {16 * testPage, 16 * testPage / page}} {
		must(t, mapping.Lock(step.n))
		if pinned, _ := smaps(t, mapping.Data()); int64(pinned)<<10 != step.pages*page {
			t.Errorf("after Lock(%d): %d KiB pinned, want %d pages", step.n, pinned, step.pages)
		}
	}

	// Only what is new is pinned: a page unpinned behind its back stays so.
	// (smaps shares a page out among its mappings, so there must be but one.)
	must(t, mapping.Close())
	mapping = mapped(t, file, 64*testPage)
	must(t, mapping.Lock(page))
	must(t, unix.Munlock(mapping.Data()[:page]))
	must(t, mapping.Lock(2*page))
	if pinned, _ := smaps(t, mapping.Data()); int64(pinned)<<10 != page {
		t.Errorf("%d KiB pinned, want 1 page", pinned)
	}
}
