package disk

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// This file limits what directories take by project quotas, which ext4 (option prjquota, feature project) and XFS
// (prjquota) have: what is made in a directory with a project gets the project, and the kernel counts for it, and
// refuses more than its limit at once.

// What linux/fs.h and linux/quota.h say.
const (
	fsGetXattr     = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr     = 0x401c5820 // FS_IOC_FSSETXATTR
	projectInherit = 0x200      // FS_XFLAG_PROJINHERIT

	projects    = 2 // PRJQUOTA
	getQuota    = 0x800007<<8 | projects
	setQuota    = 0x800008<<8 | projects
	blockLimits = 1 // QIF_BLIMITS
	inodeLimits = 4 // QIF_ILIMITS
	quotaBlock  = 1024
)

// fileAttributes is struct fsxattr.
type fileAttributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

// blocks is struct if_dqblk.
type blocks struct {
	hard, soft, used               uint64 // used is in bytes
	hardInodes, softInodes, inodes uint64
	graceOfBlocks, graceOfInodes   uint64
	valid                          uint32
	_                              uint32
}

// Projects that LimitTrees gives out. Those of an administrator are small numbers.
const (
	firstProject = 0x48000000
	someProjects = 0x00ffffff
	otherRange   = 0x01000000 // is tried if a project is in use
	ranges       = 16
)

// Quota is a limit that some directories have together.
type Quota struct {
	dir     string
	project uint32
}

// LimitTrees has directories, in which nothing is yet but one another, take at most so many bytes and inodes together,
// with all that is made in them; 0: no limit. number is one that no other limit has that is in force. ErrNoQuota where
// nothing is limited; HasQuotas says whether what is limited is refused, too.
func LimitTrees(number uint64, bytes, inodes int64, dirs ...string) (*Quota, error) {
	q := &Quota{dir: dirs[0]}
	for try := uint32(0); ; try++ {
		q.project = firstProject + uint32(number%someProjects) + try*otherRange
		b, err := q.blocks()
		if err != nil {
			return nil, err
		}
		if b.used == 0 && b.inodes == 0 {
			break
		}
		if try == ranges {
			return nil, fmt.Errorf("%w: the projects from %d on are in use", ErrNoQuota, firstProject)
		}
	}
	if err := q.limit(bytes, inodes); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := setProject(dir, q.project); err != nil {
			return nil, errors.Join(err, q.Lift())
		}
	}
	return q, nil
}

// Used is how many bytes and inodes the directories take.
func (q *Quota) Used() (bytes, inodes int64, err error) {
	b, err := q.blocks()
	return int64(b.used), int64(b.inodes), err
}

// Lift takes the limit away. The directories keep their project.
func (q *Quota) Lift() error { return q.limit(0, 0) }

func (q *Quota) limit(bytes, inodes int64) error {
	b := blocks{hard: uint64((bytes + quotaBlock - 1) / quotaBlock), hardInodes: uint64(inodes), valid: blockLimits | inodeLimits}
	return q.call(setQuota, &b)
}

// blocks is what the project has; nothing if it is not known.
func (q *Quota) blocks() (b blocks, err error) {
	err = q.call(getQuota, &b)
	if errors.Is(err, unix.ENOENT) { // XFS
		return blocks{}, nil
	}
	return b, err
}

func (q *Quota) call(command uintptr, b *blocks) error {
	fd, err := unix.Open(q.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: q.dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), command, uintptr(q.project), uintptr(unsafe.Pointer(b)), 0, 0)
	switch errno {
	case 0:
		return nil
	case unix.ENOSYS, unix.ESRCH, unix.ENOTSUP, unix.EPERM:
		return fmt.Errorf("%w: quotactl: %w", ErrNoQuota, errno)
	}
	return fmt.Errorf("quota of %s: quotactl: %w", q.dir, errno)
}

// setProject gives a directory a project, which all that is made in it gets.
func setProject(dir string, project uint32) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var a fileAttributes
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsGetXattr, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return fmt.Errorf("%w: project of %s: %w", ErrNoQuota, dir, errno)
	}
	a.project, a.flags = project, a.flags|projectInherit
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsSetXattr, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return fmt.Errorf("%w: project of %s: %w", ErrNoQuota, dir, errno)
	}
	return nil
}

// What HasQuotas tries: to allocate more than it may.
const (
	triedLimit = 1 << 20 // XFS allocates inodes by the dozen
	triedBytes = 8 << 20
)

// HasQuotas tries in a directory whether project quotas are enforced there, and returns ErrNoQuota if not.
func HasQuotas(dir string) (err error) {
	at := filepath.Join(dir, "probe-quota-"+rand.Text())
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
	var number [8]byte
	_, _ = rand.Read(number[:])
	q, err := LimitTrees(binary.NativeEndian.Uint64(number[:]), triedLimit, 0, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Lift()) }()
	f, err := os.Create(filepath.Join(at, "file"))
	if err != nil {
		return err
	}
	defer f.Close()
	// Without the capability with which ext4 refuses nothing: who mounts an overlay has it not, and steps have it not.
	err = osthread.Without(unix.CAP_SYS_RESOURCE, func() error { return unix.Fallocate(int(f.Fd()), 0, 0, triedBytes) })
	switch {
	case err == nil:
		return fmt.Errorf("%w: they are counted and not enforced, for want of the mount option prjquota", ErrNoQuota)
	case errors.Is(err, unix.EDQUOT), errors.Is(err, unix.ENOSPC): // XFS has the second one for projects
		return nil
	default:
		return fmt.Errorf("%w: %w", ErrNoQuota, err)
	}
}
