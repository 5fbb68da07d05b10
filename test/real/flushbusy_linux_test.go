package real

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/vfs"
	"holdfast/test/vm"
)

func init() {
	roles["busyflush"] = runBusyFlush
}

// Of the machine of TestMachineFlushBusy: a file system in a file in memory, which shows what was
// written to the disk. saysLost is how many flushes have left their piece out of it.
const (
	busyImage = "/memory/image"
	busyMount = "/memory/mount"
	saysLost  = "lost"

	busyFlushes = 600
)

// diskInode is where an inode lies in the image of a file system.
type diskInode struct {
	image *os.File
	off   int64
}

func findInode(image, path string) (diskInode, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return diskInode{}, err
	}
	out, err := exec.Command("/programs/debugfs", "-R", fmt.Sprintf("imap <%d>", s.Ino), image).CombinedOutput()
	if err != nil {
		return diskInode{}, fmt.Errorf("debugfs: %w: %s", err, out)
	}
	_, place, _ := strings.Cut(string(out), "located at ")
	var block, off int64
	if _, err := fmt.Sscanf(place, "block %d, offset 0x%x", &block, &off); err != nil {
		return diskInode{}, fmt.Errorf("debugfs said %q: %w", out, err)
	}
	f, err := os.Open(image)
	return diskInode{f, block*flushPiece + off}, err
}

// written tells whether the inode says of a block of the file that it was written. It knows inodes
// with at most four extents: blocks that were written, and those that follow.
func (d diskInode) written(block uint32) (bool, error) {
	var extents [60]byte
	if _, err := d.image.ReadAt(extents[:], d.off+40); err != nil {
		return false, err
	}
	le := binary.LittleEndian
	if depth := le.Uint16(extents[6:]); depth != 0 {
		return false, fmt.Errorf("the tree of extents has a depth of %d", depth)
	}
	for i := range int(le.Uint16(extents[2:])) {
		e := extents[12+12*i:]
		const reserved = 32768 // longer ones are of blocks that were not written
		if start, n := le.Uint32(e), uint32(le.Uint16(e[4:])); n <= reserved && start <= block && block-start < n {
			return true, nil
		}
	}
	return false, nil
}

// runBusyFlush flushes one piece after the other while another file is being written, and looks
// after each for it in the inode on the disk.
func runBusyFlush(o order) error {
	f, err := vfs.OpenOS(o.Path, os.O_RDWR, 0, nil)
	if err != nil {
		return err
	}
	if err := f.Grow(busyFlushes * flushPiece); err != nil {
		return err
	}
	unix.Sync()
	inode, err := findInode(busyImage, o.Path)
	if err != nil {
		return err
	}
	var stop atomic.Bool
	stopped := make(chan error)
	go func() { stopped <- writeUntil(&stop, o.Path+".other") }()
	lost := uint64(0)
	for n := range uint32(busyFlushes) {
		if _, err := f.WriteAt(flushedPiece(uint64(n)), int64(n)*flushPiece); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		ok, err := inode.written(n)
		if err != nil {
			return err
		}
		if !ok {
			lost++
		}
	}
	stop.Store(true)
	if err := <-stopped; err != nil {
		return err
	}
	say(saysLost, lost)
	return nil
}

// writeUntil writes a file again and again.
func writeUntil(stop *atomic.Bool, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for n := int64(0); !stop.Load(); n++ {
		if _, err := f.WriteAt(make([]byte, 1<<20), n%24<<20); err != nil {
			return err
		}
	}
	return f.Close()
}

// On ext4 without a journal one flush in 35 was lost while another file was being written: the
// file was touched before its data was written, and the kernel, writing by itself in the meantime,
// took the mark off the inode. Now it is one in some thousand. (A kernel that writes the inode by
// itself loses none.)
func TestMachineFlushBusy(t *testing.T) {
	t.Parallel()
	d := cutDisk{t: t, program: os.Args[0]}
	c := newMachine(t, d.program)
	c.Modules = append(c.Modules, "loop")
	c.Programs = append(c.Programs, "mkfs.ext4", "debugfs")
	file := busyMount + "/file"
	// A file that is new has the inode of its directory written, and with it what lies beside that.
	c.Command = fmt.Sprintf(`set -e
mkdir -p /memory
mount -t tmpfs -o size=200m none /memory
dd if=/dev/zero of=%[1]s bs=1M count=96 2>/dev/null
/programs/mkfs.ext4 -q -F -b 4096 -O ^has_journal %[1]s
disk=$(losetup -f)
losetup $disk %[1]s
mkdir %[2]s
mount -t ext4 $disk %[2]s
touch %[3]s
umount %[2]s
mount -t ext4 $disk %[2]s
echo 1048576 >/proc/sys/vm/dirty_background_bytes
`, busyImage, busyMount, file) + d.script(order{Role: "busyflush", Path: file}) + "wait $!\n"
	var said []string
	must(t, vm.Run(t.Context(), c, func(line string) { said = append(said, line) }))
	lost := -1
	if len(said) != 1 {
		t.Fatalf("the machine said %q", said)
	}
	if _, err := fmt.Sscanf(said[0], saysLost+" %d", &lost); err != nil || lost > 3 {
		t.Errorf("the machine said %q, want at most 3 of %d lost: %v", said, busyFlushes, err)
	}
}
