package real

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dmTargetMessage is DM_TARGET_MSG, and dmHeader the length of struct dm_ioctl, which
// is followed by a sector and the message.
const (
	dmTargetMessage = 0xc138fd0e
	dmHeader        = 312
)

var mapper = sync.OnceValues(func() (*os.File, error) { return os.OpenFile("/dev/mapper/control", os.O_RDWR, 0) })

// mark sets a mark in what a device of log-writes records. Blanks are written as slashes.
func mark(device, text string) {
	control, err := mapper()
	message := "mark " + strings.ReplaceAll(text, " ", "/") + "\x00"
	arg := make([]byte, dmHeader+8, 1024)
	arg = append(arg, message...)
	arg = append(arg, make([]byte, 1024-len(arg))...)
	binary.NativeEndian.PutUint32(arg, 4) // version 4.0.0
	binary.NativeEndian.PutUint32(arg[12:], uint32(len(arg)))
	binary.NativeEndian.PutUint32(arg[16:], dmHeader) // where the sector is
	copy(arg[48:175], device)
	if err == nil {
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, control.Fd(), dmTargetMessage, uintptr(unsafe.Pointer(&arg[0]))); e != 0 {
			err = e
		}
	}
	if err != nil {
		fmt.Printf("fault: mark %s: %v\n", text, err)
		os.Exit(3)
	}
}
