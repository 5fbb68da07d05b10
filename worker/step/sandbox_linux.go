package step

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/internal/osthread"
)

// sandbox is what a command sees. Its fields are exported for the sake of gob: the init of a
// sandbox can be another process.
type sandbox struct {
	Point    string    // the directory of the step namespace at which the root is mounted
	Mark     string    // source of /dev
	Userns   bool      // in a user namespace: devices cannot be made
	IDs      idmap.Map // of the step outside; none: it has no user namespace of its own
	Root     int       // descriptor of a detached mount
	Mounts   []sandboxMount
	Dir      string
	Loopback bool
}

type sandboxMount struct {
	FD     int // of a detached mount; -1: a tmpfs
	Target string
	RO     bool
	Plain  bool // it shows no ids of the step, which has some
}

// enter makes the root of the calling thread, which is in a mount namespace of its own, that of the sandbox. Once it
// is, all paths are those of the sandbox: a symbolic link in the base leads nowhere else.
func (b *sandbox) enter() error {
	made, err := makeParts(b.Mark, !b.Userns, b.IDs)
	if err != nil {
		return err
	}
	defer made.close()
	devices := []int(nil)
	if b.Userns {
		devices = openDevices()
		defer closeAll(devices)
	}
	// Before the old root goes: in a user namespace /proc can be mounted only where one is visible.
	proc, err := newProc(-1)
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	if err := b.pivot(); err != nil {
		return err
	}
	if err := made.attach(devices); err != nil {
		return err
	}
	if err := makeDir("/proc", 0o555); err != nil {
		return err
	}
	if err := b.attachMounts(here); err != nil {
		return err
	}
	return made.attachProc(proc) // last: no mount of the step may lie over it, or over what hides a part of it
}

// enterHollow is enter for a thread whose namespace has nothing but the root of the hollow, with file systems that
// have been made. The command's /proc comes later.
func (b *sandbox) enterHollow(made parts) error {
	if err := b.cover(); err != nil {
		return err
	}
	plain := b.plain()
	err := as(b.IDs, func() error {
		if err := made.attach(nil); err != nil {
			return err
		}
		if err := makeDir("/proc", 0o555); err != nil || plain {
			return err
		}
		return b.attachMounts(here)
	})
	if err != nil || !plain {
		return err
	}
	return b.attachMounts(b.makeAt)
}

// maker calls a function that makes files at a path.
type maker func(path string, do func() error) error

// here calls it as the calling thread is.
func here(_ string, do func() error) error { return do() }

// plain tells whether any of the mounts shows no ids of the step.
func (b *sandbox) plain() bool {
	return slices.ContainsFunc(b.Mounts, func(m sandboxMount) bool { return m.Plain })
}

// makeAt calls it as root of the step, but as root of the machine where files are seen as they are: they would belong
// to no user of the machine.
func (b *sandbox) makeAt(path string, do func() error) error {
	if b.isPlain(path) {
		if err := do(); !errors.Is(err, unix.EOVERFLOW) { // of the same file system something else can show the step's
			return err
		}
	}
	return as(b.IDs, do)
}

// isPlain tells whether a path, or what there is of it, is on the file system of a mount that shows no ids of the step.
func (b *sandbox) isPlain(name string) bool {
	var at unix.Stat_t
	for unix.Stat(name, &at) != nil {
		if name == "/" {
			return false
		}
		name = path.Dir(name)
	}
	return slices.ContainsFunc(b.Mounts, func(m sandboxMount) bool {
		var st unix.Stat_t
		return m.Plain && unix.Fstat(m.FD, &st) == nil && st.Dev == at.Dev
	})
}

// pivot puts the sandbox's root in the place of that of the namespace.
func (b *sandbox) pivot() error {
	if err := unix.MoveMount(b.Root, "", unix.AT_FDCWD, b.Point, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attaching the root: move_mount: %w", err)
	}
	if err := unix.Fchdir(b.Root); err != nil {
		return fmt.Errorf("the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detaching the old root: %w", err)
	}
	return b.setRoot()
}

// cover puts the sandbox's root over that of the namespace, which has nothing else, and makes it the thread's. To
// pivot would do the same, but the kernel then waits for all processors before it has detached the old root. What
// leaves a root directory in the sandbox gets no farther than the sandbox's: the kernel does not go from a mount to
// what it covers.
func (b *sandbox) cover() error {
	if err := unix.MoveMount(b.Root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attaching the root: move_mount: %w", err)
	}
	if err := unix.Fchdir(b.Root); err != nil {
		return fmt.Errorf("the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("the root: chroot: %w", err)
	}
	return b.setRoot()
}

// openHollow opens a mount namespace that has nothing but an empty root directory, which cannot be written. space is
// one in which point is a directory.
func openHollow(space *os.File, point string) (hollow *os.File, err error) {
	made := make(chan error)
	osthread.Own(func() {
		hollow, err = makeHollow(space, point)
		made <- err
	})
	return hollow, <-made
}

func makeHollow(space *os.File, point string) (*os.File, error) {
	proc, err := os.Open("/proc/thread-self/ns")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("enter the step namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	root, err := newMount("tmpfs", "tmpfs", readOnlyAttributes, "ro,"+emptyOptions)
	if err != nil {
		return nil, fmt.Errorf("an empty file system: %w", err)
	}
	defer unix.Close(root)
	if err := (&sandbox{Root: root, Point: point}).pivot(); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(proc.Fd()), "mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "mnt"), nil
}

// allowSetID has set-user-ID programs and capabilities of files count from now on, in the root alone. The command was
// executed before: outside its user namespace there are no new privileges.
func allowSetID() error {
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("the flags of the root: %w", err)
	}
	return nil
}

// setRoot goes to the root, and sets its flags.
func (b *sandbox) setRoot() error {
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NODEV|unix.MS_NOSUID, ""); err != nil && !b.Userns {
		return fmt.Errorf("the flags of the root: %w", err)
	}
	return nil
}

// attachMounts mounts what the step asks for, and makes its working directory.
func (b *sandbox) attachMounts(making maker) error {
	for _, m := range b.Mounts {
		if err := m.attach(making); err != nil {
			return fmt.Errorf("mount at %s: %w", m.Target, err)
		}
	}
	if b.Dir == "/" {
		return nil
	}
	if err := making(b.Dir, func() error { return os.MkdirAll(b.Dir, 0o755) }); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// makeDir makes a directory for a file system of the sandbox. What the base has there must be a directory: through a
// symbolic link it would be mounted in another place, and one over the other.
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
		return &startError{126, fmt.Errorf("%s of the base is not a directory, or a symbolic link", name)}
	}
	return nil
}

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

// attach mounts one of the mounts of the step.
func (m *sandboxMount) attach(making maker) error {
	dir := true
	if m.FD >= 0 {
		var st unix.Stat_t
		if err := unix.Fstat(m.FD, &st); err != nil {
			return err
		}
		dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	if err := making(m.Target, func() error { return makeTarget(m.Target, dir) }); err != nil {
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
	return making("/", func() error { return unix.Mount("tmpfs", m.Target, "tmpfs", flags, "mode=1777") })
}

// makeTarget makes what is missing of a path to mount at.
func makeTarget(target string, dir bool) error {
	// What is there is not opened: it could be a FIFO, that waits for a writer.
	switch info, err := os.Stat(target); {
	case err == nil && info.IsDir() == dir:
		return nil
	case err == nil && dir:
		return errors.New("a directory cannot be mounted over a file, which the step has there: give a file, or another target")
	case err == nil:
		return errors.New("a file cannot be mounted over a directory, which the step has there: give a directory, or another target")
	}
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
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

// attachProc mounts /proc, with what is hidden in it and what cannot be written.
func (p parts) attachProc(fd int) error {
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting /proc: move_mount: %w", err)
	}
	for _, name := range readOnlyProc {
		if err := bindReadOnly(name); err != nil && err != unix.ENOENT {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return p.hide(hiddenProc)
}

func bindReadOnly(name string) error {
	if err := unix.Mount(name, name, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", name, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
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
// nothing stands between a device and its disk.
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

// confine takes away from the calling thread what programs that it starts are not to have: new privileges by
// set-user-ID programs, and all other capabilities, those included that this process has from the one that has
// started it.
func confine() error {
	if err := inheritNone(); err != nil {
		return err
	}
	return osthread.Confine(allowed())
}

// bound is confine for steps whose programs can get new privileges: those of root in the step at most.
func bound() error {
	if err := inheritNone(); err != nil {
		return err
	}
	return osthread.Bound(allowed())
}

// inheritNone has programs that the calling thread starts inherit no capabilities: what root gets then is only what
// the bounding set allows. The thread keeps its own.
func inheritNone() error {
	own, err := osthread.GetCapabilities()
	if err != nil {
		return err
	}
	own[0].Inheritable, own[1].Inheritable = 0, 0 // and with them the ambient ones
	return own.Set()
}

// ownKeyring gives the calling thread, and what it starts, a session keyring that has no keys. A kernel without keys,
// or a filter that forbids them, has nothing to give to a step.
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
