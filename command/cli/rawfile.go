package cli

import (
	"errors"
	"io"
	"os"
	"time"

	"holdfast"
	"holdfast/internal/vfs"
)

// RawFile is a file that is read as it is, whether or not it is a database.
type RawFile struct {
	*os.File
	VFS  vfs.File // the same open file
	Size int64    // bytes

	through *Database    // through the process that has it open; nil: it is read with the lock
	held    *holdfast.Tx // keeps its pages
}

// Close gives the lock back too. If the file was read through the process that has it open, the error says whether
// what was read is to be trusted.
func (f *RawFile) Close() error {
	err := f.VFS.Close()
	if f.through != nil {
		err = errors.Join(err, f.held.Rollback(), f.through.Close())
	}
	return err
}

// hold has the process that has the database open keep the pages of its newest state.
func (f *RawFile) hold(a *App, path string) error {
	d := &Database{FilePath: path}
	err := a.openShared(d, &holdfast.Options{OnDamage: holdfast.DamageIsError})
	if err != nil {
		return err
	}
	held, err := d.Begin(false)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	f.through, f.held = d, held
	return nil
}

// OpenRaw opens the file at path for reading, with the lock that readers share if locked is
// set. Its size is as it is then.
func (a *App) OpenRaw(path string, locked bool) (*RawFile, error) {
	return a.openRaw(path, func(f *RawFile) error {
		if !locked {
			return nil
		}
		return a.AwaitLock(path, func(timeout time.Duration) error { return f.VFS.Lock(false, timeout) })
	})
}

// OpenInUse is OpenRaw of a file that is only looked at, page by page. Where a process has it open and shares it there is no
// lock, but the pages of its newest state stay as they are until Close.
func (a *App) OpenInUse(path string) (*RawFile, error) {
	return a.openRaw(path, func(f *RawFile) error {
		notShared := f.hold(a, path)
		if notShared == nil {
			return nil
		}
		err := a.AwaitLock(path, func(timeout time.Duration) error {
			err := f.VFS.Lock(false, timeout)
			if errors.Is(err, holdfast.ErrTimeout) { // who has it locked may share it by now
				if notShared = f.hold(a, path); notShared == nil {
					return nil
				}
			}
			return err
		})
		return a.inUse(path, err, notShared)
	})
}

func (a *App) openRaw(path string, secure func(*RawFile) error) (*RawFile, error) {
	f := &RawFile{}
	var err error
	f.VFS, err = vfs.OpenOS(path, os.O_RDONLY, 0, func(name string, flag int, mode os.FileMode) (file *os.File, err error) {
		f.File, err = os.OpenFile(name, flag, mode)
		return f.File, err
	})
	if err != nil {
		return nil, err
	}
	if err = secure(f); err == nil {
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
