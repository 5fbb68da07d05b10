package command_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/command"
)

// TestBusySocketIsNotStale: a process that had no time to take connections had its socket removed: any error of a connection
// was taken for that of a socket without a listener.
func TestBusySocketIsNotStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	socket := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		return fd
	}
	fd := socket()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for unix.Connect(socket(), &unix.SockaddrUnix{Name: path}) == nil {
	}
	if err := command.RemoveStale(path); err == nil {
		t.Error("the socket of a process that is busy was removed")
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	fds = nil
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if err := command.RemoveStale(path); err != nil {
		t.Errorf("a socket without a listener: %v", err)
	}
}
