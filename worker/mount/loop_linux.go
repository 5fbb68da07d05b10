package mount

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// attachLoop attaches a file to a loop device that ends when it is neither open nor
// mounted any more. The caller closes the device after it has mounted it.
func attachLoop(path string, readOnly bool) (*os.File, error) {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	file, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("a loop device for %s: %w", path, err)
	}
	defer control.Close()
	// Another process may take the device first.
	for range 64 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("a loop device for %s: %w", path, err)
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), mode, 0)
		if err != nil {
			return nil, fmt.Errorf("a loop device for %s: %w", path, err)
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd())}
		config.Info.Flags = flags
		copy(config.Info.File_name[:len(config.Info.File_name)-1], path)
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		_ = dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("a loop device for %s: %w", path, err)
		}
	}
	return nil, fmt.Errorf("a loop device for %s: all were taken: %w", path, unix.EBUSY)
}
