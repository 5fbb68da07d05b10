package remote

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer is who has connected.
func peer(conn *net.UnixConn) (uid uint32, pid int, err error) {
	err = onSocket(conn, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			uid, pid = cred.Uid, int(cred.Pid)
		}
		return err
	})
	return uid, pid, err
}
