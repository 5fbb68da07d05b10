//go:build darwin || freebsd

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
	var cred *unix.Xucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED) }); err != nil {
		return 0, 0, err
	}
	if failed != nil {
		return 0, 0, failed
	}
	return cred.Uid, 0, nil
}
