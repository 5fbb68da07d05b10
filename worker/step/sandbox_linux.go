package step

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sandbox is what a command sees. Its fields are exported for the sake of gob: the init of a
// sandbox can be another process.
type sandbox struct {
	Point    string // a directory of the nursery, over which the root comes to lie
	Mark     string // source of /dev
	Userns   bool   // in a user namespace: devices cannot be made
	Root     int    // descriptor of a detached mount
	Mounts   []sandboxMount
	Dir      string
	Proc     bool // mount /proc here, and not from outside
	Loopback bool
}

type sandboxMount struct {
	FD     int // of a detached mount; -1: a tmpfs
	Target string
	RO     bool
}

// enter makes the root of the calling thread, which is in a mount namespace of its own, that of the sandbox. From the
// second step on all paths are those of the sandbox: a symbolic link in the base leads nowhere else.
func (b *sandbox) enter() error {
	if err := unix.MoveMount(b.Root, "", unix.AT_FDCWD, b.Point, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attaching the root: move_mount: %w", err)
	}
	if err := unix.Fchdir(b.Root); err != nil {
		return fmt.Errorf("the root: %w", err)
	}
	devices := []int(nil)
	if b.Userns {
		devices = openDevices()
		defer closeAll(devices)
	}
	var proc = -1
	if b.Proc {
		var err error
		// Before the old root goes: in a user namespace /proc can be mounted only where one is visible.
		if proc, err = newProc(-1); err != nil {
			return err
		}
		defer unix.Close(proc)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detaching the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NODEV|unix.MS_NOSUID, ""); err != nil && !b.Userns {
		return fmt.Errorf("the flags of the root: %w", err)
	}
	if err := b.makeDev(devices); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	if err := makeTerminals(); err != nil {
		return err
	}
	if err := makeSys(); err != nil {
		return err
	}
	if err := makeDir("/proc", 0o555); err != nil {
		return err
	}
	if proc >= 0 {
		if err := attachProc(proc); err != nil {
			return err
		}
	}
	for _, m := range b.Mounts {
		if err := m.attach(); err != nil {
			return fmt.Errorf("mount at %s: %w", m.Target, err)
		}
	}
	if b.Dir == "/" {
		return nil
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// makeDir makes a directory for a file system of the sandbox. What the base has there must be a directory: through a symbolic link it
// would be mounted in another place, and one over the other.
func makeDir(name string, mode uint32) error {
	err := unix.Mkdir(name, mode)
	if err == nil {
		return nil
	}
	if err != unix.EEXIST {
		return fmt.Errorf("making %s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return fmt.Errorf("%s of the base: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &startError{126, fmt.Errorf("%s of the base is no directory, or a symbolic link", name)}
	}
	return nil
}

// devices are the nodes of /dev, with their numbers.
var deviceNodes = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// openDevices clones the nodes of the host as detached mounts, where others cannot be made; -1 for what is not there.
func openDevices() []int {
	fds := make([]int, len(deviceNodes))
	for i, d := range deviceNodes {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/"+d.name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			fd = -1
		}
		fds[i] = fd
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// makeDev mounts a small /dev. The umask is 0.
func (b *sandbox) makeDev(nodes []int) error {
	if err := makeDir("/dev", 0o755); err != nil {
		return err
	}
	if err := unix.Mount(b.Mark, "/dev", "tmpfs", unix.MS_NOSUID, "mode=0755,size=64m"); err != nil {
		return err
	}
	for i, d := range deviceNodes {
		name := "/dev/" + d.name
		if nodes == nil {
			if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			continue
		}
		if nodes[i] < 0 {
			continue
		}
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
		if err != nil {
			return err
		}
		_ = unix.Close(fd)
		if err := unix.MoveMount(nodes[i], "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	if err := unix.Mkdir("/dev/shm", 0o1777); err != nil {
		return err
	}
	for _, l := range [][2]string{{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"}, {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}} {
		if err := unix.Symlink(l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}

// attach mounts one of the mounts of the step.
func (m *sandboxMount) attach() error {
	dir := true
	if m.FD >= 0 {
		var st unix.Stat_t
		if err := unix.Fstat(m.FD, &st); err != nil {
			return err
		}
		dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	if err := makeTarget(m.Target, dir); err != nil {
		return err
	}
	if m.FD >= 0 {
		// A symbolic link at the end is followed, as those before it are.
		if err := unix.MoveMount(m.FD, "", unix.AT_FDCWD, m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS); err != nil {
			return fmt.Errorf("move_mount: %w", err)
		}
		return nil
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if m.RO {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("tmpfs", m.Target, "tmpfs", flags, "mode=1777")
}

// makeTarget makes what is missing of a path to mount at.
func makeTarget(target string, dir bool) error {
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
		return err
	}
	// What is there is not opened: it could be a FIFO, that waits for somebody to write to it.
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// newProc makes a detached /proc that shows a pid namespace: that of the descriptor, or with -1 that of the
// calling process.
func newProc(pidns int) (fd int, err error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mounting /proc: fsopen: %w", err)
	}
	defer unix.Close(fs)
	if pidns >= 0 {
		if err := unix.FsconfigSetFd(fs, "pidns", pidns); err != nil {
			return -1, fmt.Errorf("mounting /proc: the option pidns: %w", err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("mounting /proc: fsconfig: %w", err)
	}
	fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mounting /proc: fsmount: %w", err)
	}
	return fd, nil
}

func attachProc(fd int) error {
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting /proc: move_mount: %w", err)
	}
	for _, p := range readOnlyProc {
		if err := bindReadOnly(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return hide(hiddenProc)
}

func bindReadOnly(p string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, p, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	if err == unix.ENOSYS || err == unix.EPERM { // EPERM: a filter of system calls
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, p, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return err
		}
		return unix.Mount("", p, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	if err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, p, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// find is the path of a program in the root of the calling thread.
func find(name, dir string, search []string) (string, error) {
	if filepath.Base(name) != name {
		if !path.IsAbs(name) {
			name = path.Join(dir, name)
		}
		return name, executable(name)
	}
	for _, d := range search {
		if !path.IsAbs(d) {
			d = path.Join(dir, d)
		}
		if p := path.Join(d, name); executable(p) == nil {
			return p, nil
		}
	}
	return "", &startError{127, fmt.Errorf("%s: not found in PATH", name)}
}

func executable(name string) error {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return &startError{127, fmt.Errorf("%s: %w", name, err)}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return &startError{126, fmt.Errorf("%s: no program that can be executed", name)}
	}
	return nil
}

// capabilities are what root in a step may do at most. Not among them: to make devices, since
// nothing stands between a device and the disk behind it.
var capabilities = []struct {
	name   string
	number uintptr
}{
	{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"CAP_FOWNER", unix.CAP_FOWNER},
	{"CAP_FSETID", unix.CAP_FSETID}, {"CAP_KILL", unix.CAP_KILL}, {"CAP_SETGID", unix.CAP_SETGID},
	{"CAP_SETUID", unix.CAP_SETUID}, {"CAP_SETPCAP", unix.CAP_SETPCAP}, {"CAP_SETFCAP", unix.CAP_SETFCAP},
	{"CAP_NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE}, {"CAP_SYS_CHROOT", unix.CAP_SYS_CHROOT},
	{"CAP_AUDIT_WRITE", unix.CAP_AUDIT_WRITE},
}

// confine takes away from the calling thread what programs that it starts are not to have: new privileges by set-user-ID
// programs, and all other capabilities, those included that this process has from the one that has started it.
func confine() error {
	if err := inheritNone(); err != nil {
		return err
	}
	keep := map[uintptr]bool{}
	for _, c := range capabilities {
		keep[c.number] = true
	}
	for c := uintptr(0); c <= 63; c++ {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break // the kernel has no more
		} else if err != nil {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	return nil
}

// inheritNone has programs that the calling thread starts inherit no capabilities: what root gets then is only what
// the bounding set allows. The thread keeps its own.
func inheritNone() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0 // and with them the ambient ones
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// ownKeyring gives the calling thread, and what it starts, a session keyring that has no keys. A kernel without keys, or a
// filter that forbids them, has nothing to give to a step.
func ownKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err != nil && err != unix.ENOSYS && err != unix.EPERM {
		return fmt.Errorf("a session keyring: %w", err)
	}
	return nil
}

// loopbackUp turns on the loopback device of the namespace of the calling thread.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// hostname is what steps see as the name of the machine.
const hostname = "holdfast"
