//go:build unix

package command

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"

	"holdfast/worker/internal/remote"
)

// sockets are those on which a daemon listens. Those that systemd has passed it stay when the daemon ends: who connects then waits
// for the next one.
type sockets struct {
	passed map[string]*net.UnixListener // by path
	other  []string                     // passed, and none that can be served
	used   []string
	made   []string
}

// passedSockets are those of systemd.
func passedSockets() (*sockets, error) {
	s := &sockets{passed: map[string]*net.UnixListener{}}
	list, err := activation.Listeners()
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		if own, ok := l.(*net.UnixListener); ok {
			own.SetUnlinkOnClose(false)
			s.passed[own.Addr().String()] = own
		} else if l != nil {
			s.other = append(s.other, l.Addr().String())
		}
	}
	return s, nil
}

// has tells whether systemd has passed the socket at a path.
func (s *sockets) has(path string) bool { return s.passed[path] != nil }

// listen listens at a path, where only this user and root can connect.
func (s *sockets) listen(path string) (*net.UnixListener, error) {
	if l := s.passed[path]; l != nil {
		s.used = append(s.used, path)
		return l, nil
	}
	l, err := remote.Listen(path)
	if err == nil {
		s.made = append(s.made, path)
	}
	return l, err
}

// warn tells of sockets of systemd on which nothing listens.
func (s *sockets) warn(log *slog.Logger) {
	list := slices.Clone(s.other)
	for path := range s.passed {
		if !slices.Contains(s.used, path) {
			list = append(list, path)
		}
	}
	for _, name := range list {
		log.Warn("systemd has passed a socket that is none of the daemon's: who connects to it waits for ever", "socket", name)
	}
}

// replace is listen where a socket that is there was left by a daemon that was killed: who has the store has its sockets.
func (s *sockets) replace(path string) (*net.UnixListener, error) {
	if !s.has(path) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return s.listen(path)
}

// remove removes a socket, or all, if they were made here: before they are closed, since after that they can be another daemon's. Those
// in the directory of the store cannot before that is closed.
func (s *sockets) remove(paths ...string) (err error) {
	s.made = slices.DeleteFunc(s.made, func(path string) bool {
		if len(paths) > 0 && !slices.Contains(paths, path) {
			return false
		}
		if e := os.Remove(path); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return true
	})
	return err
}
