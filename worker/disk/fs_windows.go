package disk

import (
	"os"

	"golang.org/x/sys/windows"
)

func measure(dir string) (FS, error) {
	name, err := windows.UTF16PtrFromString(dir)
	var free, size uint64
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, &size, nil)
	}
	if err != nil {
		return FS{}, &os.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return FS{Size: clamp(size, 1), Free: clamp(free, 1)}, nil
}
