package step

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// program is this program as a step's init is started from it: a copy in memory that is sealed. A step can get hold of
// the file that its first process was started from, as /proc/self/exe. The file on the disk is what later steps and the
// administrator run; the copy cannot be written, however it is opened.
type program struct {
	own *os.File // the file on the disk

	mu     sync.Mutex
	sealed *os.File // the copy that all steps share; nil before the first one, and where none can be shared
}

// openProgram opens the running program.
func openProgram() (*program, error) {
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	return &program{own: own}, nil
}

func (p *program) close() {
	if p == nil {
		return
	}
	_ = p.own.Close()
	if p.sealed != nil {
		_ = p.sealed.Close()
	}
}

// copy is a sealed copy, which the caller closes. Before Linux 6.3 the mode of a sealed file can be
// changed: root in a step could keep other steps from being started. There each step gets a copy of its
// own.
func (p *program) copy() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed == nil {
		f, whole, err := sealedCopy(p.own)
		if err != nil || !whole {
			return f, err
		}
		p.sealed = f
	}
	fd, err := unix.FcntlInt(p.sealed.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the program of a step's init: %w", err)
	}
	return os.NewFile(uintptr(fd), p.sealed.Name()), nil
}

const contentSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// sealedCopy copies a program into memory. It is whole if its mode is sealed too, and not only its content.
func sealedCopy(from *os.File) (f *os.File, whole bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the program of a step's init: %w", err)
			if f != nil {
				_ = f.Close()
			}
			f = nil
		}
	}()
	if f, err = newMemory(initName); err != nil {
		return nil, false, err
	}
	info, err := from.Stat()
	if err != nil {
		return f, false, err
	}
	n, err := io.Copy(f, io.NewSectionReader(from, 0, info.Size()))
	if err == nil && n != info.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = f.Chmod(0o555) // of any user, as a step's: the file on the disk need not be
	}
	if err != nil {
		return f, false, err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, contentSeals|unix.F_SEAL_EXEC)
	if err == nil {
		return f, true, nil
	}
	if _, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, contentSeals); err != nil {
		err = fmt.Errorf("sealing it: %w", err)
	}
	return f, false, err
}

// newMemory makes an empty file in memory that can be executed and sealed.
func newMemory(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3, where all can be executed
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err == unix.EACCES {
		err = fmt.Errorf("the setting vm.memfd_noexec forbids programs in memory: %w: %w", err, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
