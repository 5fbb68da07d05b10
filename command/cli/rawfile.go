package cli

import (
	"errors"
	"io"
	"os"
	"time"

	"holdfast/internal/vfs"
)

// RawFile is a file that is read as it is, whether or not it is a database.
type RawFile struct {
	*os.File
	VFS  vfs.File // the same open file
	Size int64    // bytes
}

// Close gives the lock back too.
func (f *RawFile) Close() error { return f.VFS.Close() }

// OpenRaw opens the file at path for reading, with the lock that readers share if locked is
// set. Its size is as it is then.
func (a *App) OpenRaw(path string, locked bool) (*RawFile, error) {
	f := &RawFile{}
	var err error
	f.VFS, err = vfs.OpenOS(path, os.O_RDONLY, 0, func(name string, flag int, mode os.FileMode) (file *os.File, err error) {
		f.File, err = os.OpenFile(name, flag, mode)
		return f.File, err
	})
	if err != nil {
		return nil, err
	}
	if locked {
		err = a.AwaitLock(path, func(timeout time.Duration) error { return f.VFS.Lock(false, timeout) })
	}
	if err == nil {
		f.Size, err = f.VFS.Size()
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart) // the size was found by going to the end
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
