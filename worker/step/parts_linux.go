package step

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"
)

// This file has the file systems that each sandbox has for itself: /dev, /dev/pts, and one that is empty
// and cannot be written, for /sys and over what is hidden of /proc. They are made detached, so that this
// can be done while the root is mounted. No two steps have one in common, the empty one included: what
// watches or locks its directory would be seen by others. None is made ahead of its step: recovery takes
// the number of a file system that no process shows for that of a mount that is still there.

// parts are descriptors of detached mounts; -1: none.
type parts struct{ dev, pts, empty int }

var noParts = parts{-1, -1, -1}

type madeParts struct {
	parts
	err error // why there are none
}

// Options of them. The group of terminals is tty in Debian's numbers, as programs expect that check it; in
// a user namespace it may not be mapped.
const (
	devOptions   = "mode=0755,size=64m"
	ptsOptions   = "newinstance,ptmxmode=0666,mode=0620"
	ptsGroup     = 5
	emptyOptions = "mode=0555,size=4k,nr_inodes=2"
)

const readOnlyAttributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC

// makeParts makes them, for steps with these ids. mark is the source of /dev; devices tells whether that is
// to have nodes.
func makeParts(mark string, devices bool, ids idmap.Map) (p parts, err error) {
	p = noParts
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.dev, err = newMount("tmpfs", mark, unix.MOUNT_ATTR_NOSUID, devOptions+ownedBy(ids)); err == nil {
		err = fillDev(p.dev, devices, ids)
	}
	if err != nil {
		return p, fmt.Errorf("/dev: %w", err)
	}
	const attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	p.pts, err = newMount("devpts", "devpts", attributes, fmt.Sprintf("%s,gid=%d", ptsOptions, ids.Base+ptsGroup))
	if errors.Is(err, unix.EINVAL) {
		p.pts, err = newMount("devpts", "devpts", attributes, ptsOptions)
	}
	if err != nil {
		return p, fmt.Errorf("/dev/pts: %w", err)
	}
	if p.empty, err = newMount("tmpfs", "tmpfs", readOnlyAttributes, "ro,"+emptyOptions+ownedBy(ids)); err != nil {
		return p, fmt.Errorf("an empty file system: %w", err)
	}
	return p, nil
}

// ownedBy are options of a file system whose root directory belongs to root of a step.
func ownedBy(ids idmap.Map) string { return fmt.Sprintf(",uid=%[1]d,gid=%[1]d", ids.Base) }

// close closes them, once.
func (p *parts) close() {
	closeAll([]int{p.dev, p.pts, p.empty})
	*p = noParts
}

// enter enters the sandbox.
func (r *nativeRun) enter(made parts) error {
	unix.Umask(0)
	err := r.box.enterHollow(made)
	unix.Umask(0o022)
	for _, f := range r.files {
		_ = f.Close() // the mounts are attached, or are not to be
	}
	return err
}

// newMount makes a file system, with options as mount takes them, and a detached mount of it.
func newMount(kind, source string, attributes int, options string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fs)
	for _, o := range strings.Split("source="+source+","+options, ",") {
		if key, value, ok := strings.Cut(o, "="); ok {
			err = unix.FsconfigSetString(fs, key, value)
		} else {
			err = unix.FsconfigSetFlag(fs, key)
		}
		if err != nil {
			return -1, fmt.Errorf("fsconfig %s: %w", o, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("fsconfig: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return -1, fmt.Errorf("fsmount: %w", err)
	}
	return fd, nil
}

// deviceNodes are the nodes of /dev, with their numbers.
var deviceNodes = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// fillDev makes what is in /dev, whatever the umask is. Where ids are mapped the nodes stay those of the
// machine's root: root in the step has no rights to them but those of all.
func fillDev(dir int, devices bool, ids idmap.Map) error {
	for _, d := range deviceNodes {
		if !devices {
			break
		}
		err := unix.Mknodat(dir, d.name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor)))
		if err == nil {
			err = unix.Fchmodat(dir, d.name, 0o666, 0)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	err := unix.Mkdirat(dir, "shm", 0o1777)
	if err == nil {
		err = unix.Fchmodat(dir, "shm", 0o1777, 0)
	}
	if err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	if err := unix.Mkdirat(dir, "pts", 0o755); err != nil {
		return fmt.Errorf("pts: %w", err)
	}
	for _, l := range [][2]string{{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}} {
		if err := unix.Symlinkat(l[0], dir, l[1]); err != nil {
			return fmt.Errorf("%s: %w", l[1], err)
		}
	}
	if !ids.Set() {
		return nil
	}
	for _, name := range []string{"shm", "pts", "fd", "stdin", "stdout", "stderr", "ptmx"} {
		if err := unix.Fchownat(dir, name, int(ids.Base), int(ids.Base), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// attach mounts them where they belong. devices are clones of device nodes, which come into /dev if it has
// none; nil: it has.
func (p parts) attach(devices []int) error {
	for _, m := range []struct {
		fd   int
		at   string
		mode uint32 // of the directory, if it is missing; 0: it is there
	}{{p.dev, "/dev", 0o755}, {p.pts, "/dev/pts", 0}, {p.empty, "/sys", 0o555}} {
		if m.mode != 0 {
			if err := makeDir(m.at, m.mode); err != nil {
				return err
			}
		}
		// A symbolic link at the end is followed, as mount does.
		if err := unix.MoveMount(m.fd, "", unix.AT_FDCWD, m.at, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS); err != nil {
			return fmt.Errorf("%s: move_mount: %w", m.at, err)
		}
	}
	for i, fd := range devices {
		if fd < 0 {
			continue
		}
		if err := attachDevice(fd, "/dev/"+deviceNodes[i].name); err != nil {
			return fmt.Errorf("%s: %w", deviceNodes[i].name, err)
		}
	}
	return nil
}

func attachDevice(fd int, name string) error {
	file, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	_ = unix.Close(file)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
