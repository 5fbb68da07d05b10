package idmap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// Namespace makes a user namespace with the map, for users and groups, that belongs to an id outside of it: a process
// of that id has all privileges in it, and can enter it. It exists as long as the file, or something that uses it.
func (m Map) Namespace(owner uint32) (*os.File, error) {
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made)
	osthread.Own(func() { // it becomes the owner, and only the thread that traces a process can end its stop
		file, err := m.namespace(owner)
		done <- made{file, err}
	})
	one := <-done
	if one.err != nil {
		return nil, fmt.Errorf("a user namespace: %w", one.err)
	}
	return one.file, nil
}

// namespace starts a process in a new user namespace, which stops before its first instruction and is killed there.
func (m Map) namespace(owner uint32) (file *os.File, err error) {
	keepDumpable := dumpable()
	had, err := osthread.GetCapabilities()
	if err != nil {
		return nil, err
	}
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(owner), same); errno != 0 { // of this thread alone
		return nil, fmt.Errorf("setresuid: %w", errno)
	}
	if err := errors.Join(had.Set(), keepDumpable()); err != nil {
		return nil, err
	}
	p, err := m.start("/proc/self/exe")
	if errors.Is(err, os.ErrPermission) { // the program is not for all users
		memory, copyErr := programInMemory()
		if copyErr != nil {
			return nil, errors.Join(err, copyErr)
		}
		defer memory.Close()
		p, err = m.start(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()))
	}
	if err != nil {
		return nil, err
	}
	file, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, _ = p.Wait()
	return file, err
}

func (m Map) start(program string) (*os.Process, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(m.Base), Size: int(m.Count)}}
	return os.StartProcess(program, []string{"holdfast-ids"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Ptrace: true, Pdeathsig: syscall.SIGKILL}})
}

// programInMemory is a copy of this program that all users may execute.
func programInMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("holdfast-ids", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	to := os.NewFile(uintptr(fd), "holdfast-ids")
	from, err := os.Open("/proc/self/exe")
	if err == nil {
		_, err = io.Copy(to, from)
		_ = from.Close()
	}
	if err == nil {
		err = to.Chmod(0o555)
	}
	var readOnly *os.File
	if err == nil { // what is open for writing is not executed
		readOnly, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	_ = to.Close()
	return readOnly, err
}

// Probe is why mounts on a directory cannot have the map; nil if they can.
func (m Map) Probe(dir string) error {
	users, err := m.Namespace(0)
	if err != nil {
		return err
	}
	defer users.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree %s: %w", dir, err)
	}
	defer unix.Close(fd)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}); err != nil {
		return fmt.Errorf("ids are not mapped in mounts of %s: %w", dir, err)
	}
	return nil
}

// Do runs a function as the root of the map where it makes files: they belong to Base, and it keeps all its
// capabilities. Files of an idmapped mount can be made by ids of the map only, and so by no root of the machine.
func (m Map) Do(do func() error) (err error) {
	runtime.LockOSThread()
	keepDumpable := dumpable()
	had, err := osthread.GetCapabilities()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	signal, err := deathSignal()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	// With another id the kernel takes those capabilities away that have to do with files.
	change := func(id int) error {
		if err := errors.Join(setFS(unix.SetfsgidRetGid, id), setFS(unix.SetfsuidRetUid, id)); err != nil {
			return err
		}
		return errors.Join(had.Set(), keepDumpable(), setDeathSignal(signal))
	}
	defer func() {
		if back := change(os.Geteuid()); back != nil {
			err = errors.Join(err, back) // the thread stays locked, and ends with its goroutine
			return
		}
		runtime.UnlockOSThread()
	}()
	if err := change(int(m.Base)); err != nil {
		return err
	}
	return do()
}

// setFS sets one of the ids. The system call tells only what the id was before, so it is asked again, with an id that
// is none.
func setFS(set func(int) (int, error), id int) error {
	if _, err := set(id); err != nil {
		return err
	}
	if now, err := set(-1); err != nil || now != id {
		return fmt.Errorf("the id %d for files is refused: %w", id, unix.EPERM)
	}
	return nil
}

// wasDumpable is what the process was before any of its threads had another id.
var wasDumpable = sync.OnceValue(func() int {
	n, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return n
})

// dumpable returns a function that undoes what a change of ids does to the whole process: it can no longer be looked
// into, and leaves no core.
func dumpable() (keep func() error) {
	if wasDumpable() != 1 { // nothing else can be set
		return func() error { return nil }
	}
	return func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }
}

// deathSignal is the signal that the calling thread gets at the end of what has started the process; a change of ids
// makes it none.
func deathSignal() (signal int32, err error) {
	err = unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0, 0, 0)
	return signal, err
}

func setDeathSignal(signal int32) error {
	if signal == 0 {
		return nil
	}
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(signal), 0, 0, 0)
}
