package command

import (
	"errors"
	"io"
	"os"
	"time"

	"holdfast/internal/vfs"
)

// rawFile is a file that is read as it is, whether or not it is a database.
type rawFile struct {
	*os.File
	vfs  vfs.File // the same open file
	size int64    // bytes
}

// Close gives the lock back too.
func (f *rawFile) Close() error { return f.vfs.Close() }

// openRaw opens the file at path for reading, with the lock that readers share if locked is
// set. Its size is as it is then.
func (a *app) openRaw(path string, locked bool) (*rawFile, error) {
	f := &rawFile{}
	var err error
	f.vfs, err = vfs.OpenOS(path, os.O_RDONLY, 0, func(name string, flag int, mode os.FileMode) (file *os.File, err error) {
		f.File, err = os.OpenFile(name, flag, mode)
		return f.File, err
	})
	if err != nil {
		return nil, err
	}
	if locked {
		err = a.awaitLock(path, func(timeout time.Duration) error { return f.vfs.Lock(false, timeout) })
	}
	if err == nil {
		f.size, err = f.vfs.Size()
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart) // the size was found by going to the end
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
