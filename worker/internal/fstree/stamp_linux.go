package fstree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// OpenSource opens what is at path, also if that is a symbolic link to it, for StampOf, DigestSource and
// Place: what they are told of is then one thing, whatever becomes of the path.
func OpenSource(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// StampOf gives the stamp of the tree or file that OpenSource has opened. Errors are ErrSpecial and those
// of DigestSource.
func StampOf(ctx context.Context, source *os.File) (Stamp, error) {
	s := Stamp{}
	t := treeDigest{digest: newDigest(ctx, DigestOptions{}), dir: -1, links: map[inode]uint64{}, stamp: &s, systems: map[uint64]bool{}}
	t.text("holdfast stamp 1")
	err := t.source(source, nil)
	s.Sum = t.sum()
	return s, err
}

// DigestSource is Digest for a directory or a regular file that OpenSource has opened. It is ErrSpecial of
// anything else, also in the directory. With anyOwner owners do not count.
func DigestSource(ctx context.Context, source *os.File, anyOwner bool) (sum Sum, err error) {
	t := treeDigest{digest: newDigest(ctx, DigestOptions{}), dir: -1, links: map[inode]uint64{}, noSpecial: true, anyOwner: anyOwner}
	t.text("holdfast source 1")
	err = t.source(source, t.regular)
	return t.sum(), err
}

// source walks through the tree that is open, or has the file read.
func (t *treeDigest) source(source *os.File, file func(fd int, name string) error) (err error) {
	fd := int(source.Fd())
	defer func() {
		if t.dir >= 0 {
			_ = unix.Close(t.dir)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(source.Name(), t.path()), err)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	again := fmt.Sprintf("/proc/self/fd/%d", fd)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if t.dir, err = unix.Open(again, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		return t.walk()
	case unix.S_IFREG:
		if t.stamp != nil {
			if err := t.foreign(fd, st.Dev); err != nil {
				return err
			}
			return t.mark("", &st)
		}
		one, err := unix.Open(again, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return file(one, "")
	}
	return ErrSpecial
}

// fineMargin is for how long times of change can stay the same though a file is changed again: they are
// those of the last tick of the system's clock. coarseMargin is that of file systems that have whole
// seconds. Each entry can be on another file system.
const (
	fineMargin   = 50 * time.Millisecond
	coarseMargin = 2 * time.Second
)

// mark hashes what changes when an entry does.
func (t *treeDigest) mark(name string, st *unix.Stat_t) error {
	changed := st.Ctim.Nano()
	t.number(digestEntry)
	t.text(name)
	for _, n := range []uint64{st.Dev, st.Ino, uint64(st.Mode), uint64(st.Uid), uint64(st.Gid), st.Rdev, uint64(st.Size), uint64(st.Mtim.Nano()), uint64(changed)} {
		t.number(n)
	}
	t.stamp.Entries++
	t.stamp.Changed = max(t.stamp.Changed, changed)
	margin := fineMargin
	if st.Ctim.Nsec == 0 {
		margin = coarseMargin
	}
	t.stamp.Settled = max(t.stamp.Settled, changed+margin.Nanoseconds())
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR, unix.S_IFREG, unix.S_IFLNK:
		return t.ctx.Err()
	}
	return ErrSpecial
}

// exactSystems are file systems on which a change of a file always changes its time of change, by the clock
// of this machine. Images that are made elsewhere and only read (erofs, squashfs) are not among them: who
// makes one says what times it has, and another one at the same path has the same device and inodes.
var exactSystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true, unix.RAMFS_MAGIC: true,
	unix.OVERLAYFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	0x2fc12fc1: true, // ZFS
}

// kernelSystems are file systems whose files are made as they are read.
var kernelSystems = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true,
	unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true, unix.BPF_FS_MAGIC: true, unix.NSFS_MAGIC: true,
}

// foreign notes whether a file is on another file system than these. On one of the kernel's it is ErrSpecial.
func (t *treeDigest) foreign(fd int, dev uint64) error {
	if t.systems[dev] {
		return nil
	}
	t.systems[dev] = true
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	if err == nil && kernelSystems[int64(st.Type)] { //nolint:unconvert // its type is another on other processors
		return fmt.Errorf("a file system of the kernel: %w", ErrSpecial)
	}
	if err != nil || !exactSystems[int64(st.Type)] { //nolint:unconvert // its type is another on other processors
		t.stamp.Foreign = true
	}
	return nil
}
