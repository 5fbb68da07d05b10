//go:build darwin || freebsd

package remote

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer is who has connected.
func peer(conn *net.UnixConn) (uid uint32, pid int, err error) {
	err = onSocket(conn, func(fd int) error {
		cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err == nil {
			uid = cred.Uid
		}
		return err
	})
	return uid, 0, err
}
