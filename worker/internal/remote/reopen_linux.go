package remote

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// reopen is a descriptor of a pipe or a terminal for this process alone, in the place of one that was handed over: reading and
// writing it can be ended, which sets no flag that the caller and others see. Of another file, or if that is not possible, it is the
// file itself.
func reopen(f *os.File, fd int) *os.File {
	var is unix.Stat_t
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || unix.Fstat(fd, &is) != nil || flags&unix.O_PATH != 0 {
		return f
	}
	if is.Mode&unix.S_IFMT != unix.S_IFIFO {
		_, noTerminal := unix.IoctlGetTermios(fd, unix.TCGETS)
		_, noMaster := unix.IoctlGetInt(fd, unix.TIOCGPTN) // to open that again makes another terminal
		if noTerminal != nil || noMaster == nil {
			return f
		}
	}
	own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags&(unix.O_ACCMODE|unix.O_APPEND|unix.O_DIRECT)|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return f // a pipe without a reader cannot be opened for writing
	}
	_ = f.Close()
	return os.NewFile(uintptr(own), f.Name())
}
