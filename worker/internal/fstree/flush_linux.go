package fstree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Flush returns when what is in a file or directory is on the disk, also what other processes wrote. On ext4 without a journal kernels
// before 2026 do not write the inode unless it is dirty itself, and blocks that were just written read as zeros after a
// power cut: internal/vfs/nojournal_linux.go of the engine has why, and why the data go first. So the inode is given
// the times that it has.
func Flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	fd := int(f.Fd())
	// What this cannot write, f.Sync reports.
	_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	if !touch(fd) { // it is another's
		err = unix.Syncfs(fd)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// touch gives a file the times that it has.
func touch(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && unix.UtimesNanoAt(fd, "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH) == nil
}
