package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// noJournal tells whether a file lies on ext4 without a journal, by what sysfs says of the
// device. Where sysfs has no word of it, it says no; where it cannot be asked, as when the
// process has no descriptor left, yes.
//
// There fsync and fdatasync lose what was just written, in kernels before the change "ext4: fix
// fsync(2) for nojournal mode" of February 2026 (1308255bbf84): a write into reserved blocks
// marks their extent as written in the inode, but only in the buffer of the inode table, and
// no flush of the file writes that buffer. After a power cut the blocks read as zeros.
func noJournal(fd uintptr) bool {
	var of unix.Statfs_t
	var file unix.Stat_t
	if unix.Fstatfs(int(fd), &of) != nil || of.Type != unix.EXT4_SUPER_MAGIC || unix.Fstat(int(fd), &file) != nil {
		return false
	}
	dev := uint64(file.Dev) //nolint:unconvert // on mips it is a uint32
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return false
	}
	task, err := readShort(filepath.Join("/sys/fs/ext4", filepath.Base(device), "journal_task"))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
	}
	return strings.TrimSpace(task) == "<none>"
}

// readShort reads the beginning of a file of sysfs: os.ReadFile takes ten system calls for that, with each opening of a database.
func readShort(path string) (text string, err error) {
	var fd, n int
	err = ignoringEINTR(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	b := make([]byte, 128)
	err = ignoringEINTR(func() (err error) {
		n, err = unix.Read(fd, b)
		return err
	})
	return string(b[:max(n, 0)]), err
}

// flushInode flushes a file and its inode where fdatasync alone does not: a new time makes
// the inode itself dirty, so that fdatasync writes the buffer that it lies in.
//
// The data goes first, so that the buffer has its extents by then, and little time passes
// between the new time and fdatasync: the kernel's own writing, in the background, takes the
// mark off the inode without writing the buffer. While another file was being written all the
// time that lost 119 of 4,089 flushes with the data after the new time, and 2 of 4,095 so.
func flushInode(fd uintptr) error { return flushDirty(fd, touch) }

// flushUnwritten flushes a file of which this process has written nothing. The inode gets the
// times that it has: only that of its last change is new. If nothing of the file is dirty, not
// even that: what may be lost then is what a writer left that was killed, and the system wrote
// less than half a minute ago.
func flushUnwritten(fd uintptr) error {
	if clean(fd) {
		return ignoringEINTR(func() error { return unix.Fdatasync(int(fd)) })
	}
	return flushDirty(fd, touchNothing)
}

// flushDirty writes the data of a file, makes its inode dirty, and flushes both.
func flushDirty(fd uintptr, dirty func(fd uintptr) error) error {
	return ignoringEINTR(func() error {
		const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		if err := unix.SyncFileRange(int(fd), 0, 0, all); err != nil {
			return err
		}
		if dirty(fd) != nil { // it is another's file
			return flushAll(fd)
		}
		return unix.Fdatasync(int(fd))
	})
}

// flushAll flushes the file system of a file, which needs no permission, and then the file. It
// also reports what could not be written of others, which nobody has been told of yet.
func flushAll(fd uintptr) error {
	if err := unix.Syncfs(int(fd)); err != nil {
		return err
	}
	return unix.Fdatasync(int(fd))
}

// clean tells whether the system has nothing of a file in memory that is not on the device, but
// perhaps its inode. Kernels before 6.5 do not tell.
func clean(fd uintptr) bool {
	var stat unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{}, &stat, 0)
	return err == nil && stat.Dirty == 0 && stat.Writeback == 0
}

// touch gives a file the time of now, as who may write it is allowed to. (To leave out the time
// of the last access is allowed to its owner only.)
func touch(fd uintptr) error {
	_, _, err := unix.Syscall6(unix.SYS_UTIMENSAT, fd, 0, 0, 0, 0, 0)
	if err != 0 {
		return err
	}
	return nil
}

// touchNothing gives a file the times that it has, as its owner is allowed to.
func touchNothing(fd uintptr) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(fd), &stat); err != nil {
		return err
	}
	return unix.UtimesNanoAt(int(fd), "", []unix.Timespec{stat.Atim, stat.Mtim}, unix.AT_EMPTY_PATH)
}
