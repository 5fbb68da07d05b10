package idmap

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// Namespace makes a user namespace with the map, for users and groups. It exists as long as the file, or something that uses it.
func (m Map) Namespace() (*os.File, error) {
	type made struct {
		file *os.File
		err  error
	}
	done := make(chan made)
	osthread.Own(func() { // only the thread that traces a process can end its stop
		file, err := m.namespace()
		done <- made{file, err}
	})
	one := <-done
	if one.err != nil {
		return nil, fmt.Errorf("a user namespace: %w", one.err)
	}
	return one.file, nil
}

// namespace starts a process in a new user namespace, which stops before its first instruction and is killed there.
func (m Map) namespace() (*os.File, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(m.Base), Size: int(m.Count)}}
	p, err := os.StartProcess("/proc/self/exe", []string{"holdfast-ids"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Ptrace: true, Pdeathsig: syscall.SIGKILL}})
	if err != nil {
		return nil, err
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, _ = p.Wait()
	return file, err
}

// Do runs a function as the root of the map where it makes files: they belong to Base, and it keeps all its capabilities. Files of an
// idmapped mount can be made by ids of the map only, and so by no root of the machine.
func (m Map) Do(do func() error) (err error) {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had [2]unix.CapUserData
	if err := unix.Capget(&header, &had[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("capget: %w", err)
	}
	// The kernel takes capabilities that have to do with files from who is not root where files are made.
	change := func(id int) error {
		if err := errors.Join(setFS(unix.SetfsgidRetGid, id), setFS(unix.SetfsuidRetUid, id)); err != nil {
			return err
		}
		if err := unix.Capset(&header, &had[0]); err != nil {
			return fmt.Errorf("capset: %w", err)
		}
		return nil
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

// setFS sets one of the ids. The system call tells only what the id was before, so it is asked again, with an id that is none.
func setFS(set func(int) (int, error), id int) error {
	if _, err := set(id); err != nil {
		return err
	}
	if now, err := set(-1); err != nil || now != id {
		return fmt.Errorf("the id %d for files is refused: %w", id, unix.EPERM)
	}
	return nil
}
