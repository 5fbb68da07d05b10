package real

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// lieOptions are for mkfs.ext4: without a journal, which could lie behind the
// position from which the device fails, and would stop the file system.
var lieOptions = []string{"-O", "^has_journal", "-b", "4096", "-N", "512"}

// TestHoleIsReal shows with plain calls what TestFlushThatLies is about: a
// flush fails once, the next one succeeds, the page cache shows the new bytes
// and the device has the old ones. And that dropping a range keeps cached
// units that reach out of it.
func TestHoleIsReal(t *testing.T) {
	d := newDisk(t, 32, lieOptions...)
	path := filepath.Join(d.dir, "plain")
	const size, head = 64 << 10, 8 << 10
	must(t, os.WriteFile(path, bytes.Repeat([]byte{'o'}, size), 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	must(t, f.Sync())
	where, err := extents(f)
	must(t, err)

	_, err = f.WriteAt([]byte{'n'}, 0)
	must(t, err)
	err = d.failDuring(lowest(where), func() error { return unix.Fdatasync(int(f.Fd())) })
	if !errors.Is(err, unix.EIO) {
		t.Fatalf("the flush gave %v, want EIO", err)
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		t.Fatalf("the second flush gave %v, want success", err)
	}
	first := func() byte {
		b := make([]byte, 1)
		_, err := f.ReadAt(b, 0)
		must(t, err)
		return b[0]
	}
	onDevice, err := readDevice(path)
	must(t, err)
	if first() != 'n' || onDevice[0] != 'o' {
		t.Fatalf("the cache has %c, the device %c; want n and o", first(), onDevice[0])
	}
	must(t, unix.Fadvise(int(f.Fd()), 0, head, unix.FADV_DONTNEED))
	t.Logf("after dropping %d bytes of a file written in one piece: %c", head, first())
	must(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	if first() != 'o' {
		t.Error("the cache was dropped and still shows what the device does not have")
	}
}
