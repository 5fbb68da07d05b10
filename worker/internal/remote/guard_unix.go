//go:build unix

package remote

import (
	"log/slog"
	"net"
)

// Guard is a listener that closes connections of other users than this one and root.
func Guard(l *net.UnixListener, log *slog.Logger) net.Listener { return &guard{l, log} }

type guard struct {
	*net.UnixListener
	log *slog.Logger
}

// Accept implements net.Listener.
func (g *guard) Accept() (net.Conn, error) {
	for {
		conn, err := g.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if _, _, err := allowed(conn); err != nil {
			g.log.Warn("a connection was refused", "socket", g.Addr().String(), "reason", err)
			_ = conn.Close()
			continue
		}
		return conn, nil
	}
}
