package remote

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer is who has connected.
func peer(conn *net.UnixConn) (uid uint32, pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, 0, err
	}
	if failed != nil {
		return 0, 0, failed
	}
	return cred.Uid, int(cred.Pid), nil
}
