//go:build unix

package remote

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Client is a connection to the process that has a socket.
type Client struct{ conn *net.UnixConn }

// Dial connects to a socket. The error is fs.ErrNotExist if there is none, and syscall.ECONNREFUSED if it is stale.
func Dial(path string) (*Client, error) {
	path, drop, err := short(path)
	if err != nil {
		return nil, err
	}
	defer drop()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &Client{conn}, nil
}

// maxPath is how many bytes the path of a socket can have.
const maxPath = 100

// short is a short path of the same socket, until drop is called.
func short(path string) (_ string, drop func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// Close closes the connection, which ends the command.
func (c *Client) Close() error { return c.conn.Close() }

// Run has a command run with three descriptors, and returns its exit code. What comes from signals is told to the command. The
// error is ErrRefused if the command was not run; otherwise it may have been.
func (c *Client) Run(r Request, stdin, stdout, stderr *os.File, signals <-chan os.Signal) (code int, err error) {
	b, err := encode(r)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	rights := unix.UnixRights(int(stdin.Fd()), int(stdout.Fd()), int(stderr.Fd()))
	// The kernel may take less than a whole line, and what is attached goes with the first byte.
	n, _, sendErr := c.conn.WriteMsgUnix(b, rights, nil)
	if sendErr == nil {
		_, sendErr = c.conn.Write(b[n:])
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				if n, ok := s.(syscall.Signal); ok {
					_, _ = c.conn.Write([]byte{byte(n)}) // a process that is gone is told of by the answer
				}
			case <-ended:
				return
			}
		}
	}()
	line, err := bufio.NewReader(c.conn).ReadBytes('\n') // also if not all was sent: who refuses does not read to the end
	if err != nil && sendErr != nil {
		return 0, fmt.Errorf("%w: %w", ErrRefused, sendErr)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return 0, err
	}
	if a.Error != "" {
		return 0, fmt.Errorf("%w: %w", ErrRefused, errors.New(a.Error))
	}
	return a.Code, nil
}
