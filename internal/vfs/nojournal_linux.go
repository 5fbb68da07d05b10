package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// noJournal tells whether a file lies on ext4 without a journal, by what sysfs says of the
// device. Where sysfs does not tell, it says no.
//
// There fsync and fdatasync lose what was just written, in kernels before the change "ext4: fix
// fsync(2) for nojournal mode" of February 2026 (1308255bbf84): a write into reserved blocks
// marks their extent as written in the inode, but only in the buffer of the inode table, and
// no flush of the file writes that buffer. After a power cut the blocks read as zeros.
func noJournal(fd uintptr) bool {
	var fs unix.Statfs_t
	var file unix.Stat_t
	if unix.Fstatfs(int(fd), &fs) != nil || fs.Type != unix.EXT4_SUPER_MAGIC || unix.Fstat(int(fd), &file) != nil {
		return false
	}
	dev := uint64(file.Dev) //nolint:unconvert // on mips it is a uint32
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return false
	}
	task, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "journal_task"))
	return err == nil && strings.TrimSpace(string(task)) == "<none>"
}

// flushInode flushes a file and its inode where fdatasync alone does not: the new time makes
// the inode itself dirty, so that fdatasync writes the buffer that it lies in, after the data.
func flushInode(fd uintptr) error {
	return ignoringEINTR(func() error {
		if err := touch(fd); err != nil {
			return err
		}
		return unix.Fdatasync(int(fd))
	})
}

// touch sets the time of the file's last change. A file that is open for reading need not be
// the process's own; nothing of it was written here.
func touch(fd uintptr) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	err := unix.UtimesNanoAt(int(fd), "", times, unix.AT_EMPTY_PATH)
	if err == unix.EINVAL { // before Linux 5.8
		err = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), times, 0)
	}
	if err == nil {
		return nil
	}
	flags, failed := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if failed == nil && flags&unix.O_ACCMODE == unix.O_RDONLY {
		return nil
	}
	return os.NewSyscallError("utimensat", err)
}
