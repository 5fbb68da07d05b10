//go:build unix

package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxCommands is how many commands a Server runs at once.
const MaxCommands = 512

// requestTime is how long a caller has for its request.
const requestTime = 5 * time.Second

// A Command is a Request that has come, with the descriptors of its caller. They are closed when Run has returned.
type Command struct {
	Request
	Stdin, Stdout, Stderr *os.File
	PID                   int // of the caller; 0: not known
	UID                   uint32

	// Signals are those that the caller got.
	Signals <-chan syscall.Signal
}

// A Server runs commands for other processes of the same user, and of root.
type Server struct {
	// Run runs a command and returns its exit code. ctx ends when the caller has gone.
	Run    func(ctx context.Context, c *Command) int
	Logger *slog.Logger

	running sync.WaitGroup
	mu      sync.Mutex
	n       int
	closed  bool
	ended   bool // Cancel was called
	cancels map[*Command]context.CancelFunc
}

// Listen listens on a socket that only this user can connect to, and root.
func Listen(path string) (*net.UnixListener, error) {
	at, drop, err := short(path)
	if err != nil {
		return nil, err
	}
	defer drop()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // at is no path any more
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve serves a listener until it is closed, which is no error.
func (s *Server) Serve(l *net.UnixListener) error {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
				time.Sleep(10 * time.Millisecond) // others end, and give back what they have
				continue
			}
			return err
		}
		if err := s.take(); err != nil {
			refuse(conn, err)
			continue
		}
		go func() {
			defer s.give()
			defer conn.Close()
			if err := s.serve(conn); err != nil {
				level := slog.LevelWarn
				if errors.Is(err, errNothing) {
					level = slog.LevelDebug // a caller has looked whether a daemon is there
				}
				s.Logger.Log(context.Background(), level, "a command was refused", "reason", err)
				refuse(conn, err)
			}
		}()
	}
}

func (s *Server) take() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errEnding
	case s.n >= MaxCommands:
		return errBusy
	}
	s.n++
	s.running.Add(1)
	return nil
}

var errNothing = errors.New("its request: there is none")

var errEnding = errors.New("the daemon is about to end")

func (s *Server) give() {
	s.mu.Lock()
	s.n--
	s.mu.Unlock()
	s.running.Done()
}

// Running is how many commands run.
func (s *Server) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// Drain refuses further commands, and returns when none runs.
func (s *Server) Drain() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// Cancel ends the context of each command that runs, and of those whose request is still coming.
func (s *Server) Cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, cancel := range s.cancels {
		cancel()
	}
}

// begin is the context of a command that is about to run; it ends with end.
func (s *Server) begin(c *Command) (ctx context.Context, end context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancels == nil {
		s.cancels = map[*Command]context.CancelFunc{}
	}
	s.cancels[c] = cancel
	if s.ended {
		cancel()
	}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, c)
	}
}

// refuse tells a caller that its command is not run.
func refuse(conn *net.UnixConn, why error) {
	reply(conn, answer{Error: why.Error()})
	_ = conn.Close()
}

func reply(conn *net.UnixConn, a answer) {
	b, err := encode(a)
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(requestTime))
	_, _ = conn.Write(b) // to a caller that may have gone
}

// serve runs one command. An error is one of its request.
func (s *Server) serve(conn *net.UnixConn) error {
	uid, pid, err := allowed(conn)
	if err != nil {
		return err
	}
	c := &Command{UID: uid, PID: pid}
	files, rest, err := receive(conn, &c.Request)
	defer closeAll(files)
	if err != nil {
		return err
	}
	c.Stdin, c.Stdout, c.Stderr = files[0], files[1], files[2]
	ctx, end := s.begin(c)
	defer end()
	signals := make(chan syscall.Signal, 16)
	c.Signals = signals
	go func() {
		defer end()
		hear(conn, rest, signals)
	}()
	defer context.AfterFunc(ctx, func() { release(c) })()
	reply(conn, answer{Code: s.Run(ctx, c)})
	return nil
}

// allowed tells who has connected; an error if neither this user nor root.
func allowed(conn *net.UnixConn) (uid uint32, pid int, err error) {
	uid, pid, err = peer(conn)
	if own := os.Geteuid(); err == nil && uid != 0 && int(uid) != own {
		err = fmt.Errorf("user %d may not use it, but %d and root", uid, own)
	}
	return uid, pid, err
}

// onSocket calls fn with the descriptor of a connection.
func onSocket(conn *net.UnixConn, fn func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = fn(int(fd)) })
	return errors.Join(err, failed)
}

// lastWords is how long a command may write that has to end.
const lastWords = time.Second

// release ends what a command that has to end reads and writes: a pipe can be full whose reader does not read.
func release(c *Command) {
	_ = c.Stdin.SetReadDeadline(time.Now()) // an error is of files where nothing waits
	for _, f := range []*os.File{c.Stdout, c.Stderr} {
		_ = f.SetWriteDeadline(time.Now().Add(lastWords))
	}
}

// hear hands on signals, until the caller has gone.
func hear(conn *net.UnixConn, b []byte, signals chan<- syscall.Signal) {
	for {
		for _, n := range b {
			select {
			case signals <- syscall.Signal(n):
			default: // the command has enough to think about
			}
		}
		buf := make([]byte, 16)
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		b = buf[:n]
	}
}

// receive reads a request with its descriptors. rest is what was read after its line: signals.
func receive(conn *net.UnixConn, r *Request) (files []*os.File, rest []byte, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(requestTime)); err != nil {
		return nil, nil, err
	}
	var text []byte
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(3*4))
	for {
		n, m, flags, _, err := conn.ReadMsgUnix(buf, oob)
		got, rightsErr := descriptors(oob[:m])
		files = append(files, got...)
		switch {
		case errors.Is(err, io.EOF) && len(text) == 0:
			return files, nil, errNothing
		case err != nil:
			return files, nil, fmt.Errorf("its request: %w", err)
		case rightsErr != nil:
			return files, nil, rightsErr
		case n == 0:
			return files, nil, errors.New("its request: it ends too early")
		case flags&unix.MSG_CTRUNC != 0 || len(files) > 3:
			return files, nil, errors.New("its request: too many descriptors")
		case len(text)+n > MaxRequest:
			return files, nil, errors.New("its request: it is too long")
		}
		text = append(text, buf[:n]...)
		if bytes.IndexByte(buf[:n], '\n') >= 0 {
			break
		}
	}
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	if err := json.Unmarshal(line, r); err != nil {
		return files, nil, fmt.Errorf("its request: %w", err)
	}
	if len(files) != 3 {
		return files, nil, fmt.Errorf("its request: %d descriptors, 3 are wanted", len(files))
	}
	return files, rest, conn.SetReadDeadline(time.Time{})
}

// descriptors are those that came with a part of a request.
func descriptors(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // something else than descriptors
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, reopen(os.NewFile(uintptr(fd), [...]string{"/dev/stdin", "/dev/stdout", "/dev/stderr"}[len(files)%3]), fd))
		}
	}
	return files, nil
}
