package vfs

import (
	"cmp"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A read-only section cannot be longer than its file.
const mapBeyondEnd = false

// datasync needs the right to write. For a file that is opened for reading the file is opened once more, if it may be.
func (f *OSFile) datasync() error {
	err := cause(f.file.Sync())
	if err != windows.ERROR_ACCESS_DENIED {
		return err
	}
	return f.control(func(fd uintptr) error {
		const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
		writable, _, failed := reOpenFile.Call(fd, windows.GENERIC_WRITE, share, 0)
		if windows.Handle(writable) == windows.InvalidHandle {
			return cmp.Or(failed, err)
		}
		defer func() { _ = windows.CloseHandle(windows.Handle(writable)) }()
		return windows.FlushFileBuffers(windows.Handle(writable))
	})
}

var reOpenFile = windows.NewLazySystemDLL("kernel32.dll").NewProc("ReOpenFile")

// identify reads the number that the file system has given the file, and the time at which it was made.
func identify(fd uintptr) ([]uint64, error) {
	var info windows.ByHandleFileInformation
	err := windows.GetFileInformationByHandle(windows.Handle(fd), &info)
	made := uint64(info.CreationTime.HighDateTime)<<32 | uint64(info.CreationTime.LowDateTime)
	return []uint64{uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow), made}, err
}

// extend makes the file size bytes long. NTFS allocates the clusters of a
// file that is not sparse when its end moves, so there is no more to reserve.
func (f *OSFile) extend(_, size int64) error { return f.file.Truncate(size) }

// mapFile maps the first length bytes of the file, which must be there.
func mapFile(fd uintptr, length int, _ MapOptions) ([]byte, error) {
	high, low := uint32(uint64(length)>>32), uint32(length)
	section, err := windows.CreateFileMapping(windows.Handle(fd), nil, windows.PAGE_READONLY, high, low, nil)
	if err != nil {
		return nil, err
	}
	// The view keeps the section alive.
	defer func() { _ = windows.CloseHandle(section) }()
	address, err := windows.MapViewOfFile(section, windows.FILE_MAP_READ, 0, 0, uintptr(length))
	if err != nil {
		return nil, err
	}
	// The address is that of a view of length bytes outside the Go heap, which
	// stays where it is until unmap. It is reinterpreted and not converted,
	// because a conversion promises an address derived from a Go pointer.
	start := *(**byte)(unsafe.Pointer(&address))
	return unsafe.Slice(start, length), nil
}

// unmap takes the whole slice that mapFile returned.
func unmap(data []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
}

func (f *OSFile) prefetch([]byte, int64, int64) {}

func (f *OSFile) prefetchFile(int64, int64) {}

func pin(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	return windows.VirtualLock(uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)))
}

// lockRange is the byte that is locked, the one after the last possible
// offset: bbolt locks the same one, and no read or write is in its way.
func lockRange() *windows.Overlapped {
	return &windows.Overlapped{Offset: 0xffffffff, OffsetHigh: 0xffffffff}
}

// tryLock returns false when another handle holds the lock.
func tryLock(fd uintptr, exclusive bool) (bool, error) {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(fd), flags, 0, 1, 0, lockRange())
	if err == windows.ERROR_LOCK_VIOLATION {
		return false, nil
	}
	return err == nil, err
}

func unlock(fd uintptr) error {
	err := windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0, lockRange())
	if err == windows.ERROR_NOT_LOCKED {
		return nil
	}
	return err
}
