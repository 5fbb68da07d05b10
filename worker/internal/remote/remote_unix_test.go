//go:build unix

package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serve serves commands on a socket, whose path it returns.
func serve(t *testing.T, run func(context.Context, *Command) int) (string, *Server) {
	t.Helper()
	return serveLogged(t, run, slog.DiscardHandler)
}

func serveLogged(t *testing.T, run func(context.Context, *Command) int, log slog.Handler) (string, *Server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Run: run, Logger: slog.New(log)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), <-done); err != nil {
			t.Error(err)
		}
		s.Drain()
	})
	return path, s
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// temp is a file with a text.
func temp(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A command gets what its caller has, and its exit code comes back. Bytes of arguments that are no text once became others.
func TestRun(t *testing.T) {
	var got Request
	path, _ := serve(t, func(_ context.Context, c *Command) int {
		got = c.Request
		in, err := io.ReadAll(c.Stdin)
		if err != nil {
			t.Error(err)
		}
		_, _ = c.Stdout.Write(bytes.ToUpper(in))
		_, _ = c.Stderr.WriteString("said")
		if c.UID != uint32(os.Geteuid()) || runtime.GOOS == "linux" && c.PID != os.Getpid() {
			t.Errorf("the caller is user %d, process %d", c.UID, c.PID)
		}
		return 42
	})
	in, out, errs := temp(t, "text"), temp(t, ""), temp(t, "")
	long := strings.Repeat("x", 300_000) // in more pieces than one
	code, err := dial(t, path).Run(Request{Version: "1", Args: []string{"a\xff\x00\n", long}, Dir: "/d\xfe"}, in, out, errs, nil)
	if err != nil || code != 42 {
		t.Fatal(code, err)
	}
	if len(got.Args) != 2 || got.Args[0] != "a\xff\x00\n" || got.Args[1] != long || got.Dir != "/d\xfe" || got.Version != "1" {
		t.Errorf("the request is %.200v", got)
	}
	if content(t, out) != "TEXT" || content(t, errs) != "said" {
		t.Errorf("%q, %q", content(t, out), content(t, errs))
	}
}

// Signals reach a command, and its context ends when the caller goes away.
func TestSignalsAndTheEnd(t *testing.T) {
	signaled, ended := make(chan syscall.Signal), make(chan bool)
	path, s := serve(t, func(ctx context.Context, c *Command) int {
		signaled <- <-c.Signals
		<-ctx.Done()
		close(ended)
		return 0
	})
	c := dial(t, path)
	signals := make(chan os.Signal)
	done := make(chan error)
	go func() {
		_, err := c.Run(Request{}, temp(t, ""), temp(t, ""), temp(t, ""), signals)
		done <- err
	}()
	signals <- syscall.SIGTERM
	if got := <-signaled; got != syscall.SIGTERM {
		t.Errorf("signal %v", got)
	}
	if s.Running() != 1 {
		t.Errorf("%d run", s.Running())
	}
	_ = c.Close()
	<-ended
	if err := <-done; err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("the caller that has gone got %v", err)
	}
	s.Drain()
	if _, err := dial(t, path).Run(Request{}, temp(t, ""), temp(t, ""), temp(t, ""), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("a command after Drain: %v", err)
	}
}

// A socket whose path is too long for the kernel is found.
func TestLongPath(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it takes /proc/self/fd")
	}
	path, _ := serve(t, func(context.Context, *Command) int { return 7 })
	dir := filepath.Join(filepath.Dir(path), strings.Repeat("d", 150))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, filepath.Join(dir, "socket")); err != nil {
		t.Fatal(err)
	}
	if code, err := dial(t, filepath.Join(dir, "socket")).Run(Request{}, temp(t, ""), temp(t, ""), temp(t, ""), nil); code != 7 || err != nil {
		t.Error(code, err)
	}
}

// Hostile requests are refused, leave no descriptor open, and harm no other command.
func TestHostileRequests(t *testing.T) {
	path, _ := serve(t, func(context.Context, *Command) int { return 3 })
	in := temp(t, "")
	rights := func(n int) []byte {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(in.Fd())
		}
		return unix.UnixRights(fds...)
	}
	before := descriptorsOpen(t)
	for name, send := range map[string]func(*net.UnixConn){
		"nothing":          func(*net.UnixConn) {},
		"no line":          func(c *net.UnixConn) { _, _ = c.Write([]byte("{}")) },
		"no descriptors":   func(c *net.UnixConn) { _, _ = c.Write([]byte("{}\n")) },
		"two descriptors":  func(c *net.UnixConn) { _, _, _ = c.WriteMsgUnix([]byte("{}\n"), rights(2), nil) },
		"many descriptors": func(c *net.UnixConn) { _, _, _ = c.WriteMsgUnix([]byte("{}\n"), rights(200), nil) },
		"descriptors again": func(c *net.UnixConn) {
			_, _, _ = c.WriteMsgUnix([]byte("{"), rights(3), nil)
			_, _, _ = c.WriteMsgUnix([]byte("}\n"), rights(3), nil)
		},
		"not JSON":             func(c *net.UnixConn) { _, _, _ = c.WriteMsgUnix([]byte("\x00\xff\n"), rights(3), nil) },
		"arguments no strings": func(c *net.UnixConn) { _, _, _ = c.WriteMsgUnix([]byte(`{"args":[1]}`+"\n"), rights(3), nil) },
		"too long": func(c *net.UnixConn) {
			_, _, _ = c.WriteMsgUnix([]byte(`{"dir":"`), rights(3), nil)
			_, _ = c.Write(bytes.Repeat([]byte("x"), 2*MaxRequest)) // the server closes in the middle
		},
	} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		send(conn)
		_ = conn.CloseWrite()
		b, _ := io.ReadAll(conn)
		if !strings.Contains(string(b), `"error"`) && name != "too long" { // which may be cut off before it reads
			t.Errorf("%s: %q", name, b)
		}
		_ = conn.Close()
	}
	c := dial(t, path)
	if code, err := c.Run(Request{}, in, in, in, nil); code != 3 || err != nil {
		t.Errorf("afterwards: %d, %v", code, err)
	}
	_ = c.Close()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		after := descriptorsOpen(t)
		if after <= before {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d descriptors are open, %d before", after, before)
		}
	}
}

// descriptorsOpen is how many descriptors this process has.
func descriptorsOpen(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A caller that only looks whether a daemon is there is not worth a line in the log; one that goes in the middle is.
func TestLogOfRefused(t *testing.T) {
	var log bytes.Buffer
	path, s := serveLogged(t, func(context.Context, *Command) int { return 0 }, slog.NewTextHandler(&log, nil))
	for _, send := range []string{"", "{"} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write([]byte(send))
		_ = conn.CloseWrite()
		if _, failed := io.ReadAll(conn); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		_ = conn.Close()
	}
	s.Drain() // what is logged is
	if out := log.String(); strings.Count(out, "\n") != 1 || !strings.Contains(out, "EOF") {
		t.Errorf("the log has %q", out)
	}
}

// Any number of callers are served, and one more than that is told so.
func TestMaxCommands(t *testing.T) {
	began, release := make(chan bool, MaxCommands), make(chan bool)
	path, _ := serve(t, func(context.Context, *Command) int {
		began <- true
		<-release
		return 0
	})
	in := temp(t, "")
	done := make(chan error, MaxCommands)
	for range MaxCommands {
		c := dial(t, path)
		go func() {
			_, err := c.Run(Request{}, in, in, in, nil)
			done <- err
		}()
	}
	for range MaxCommands {
		<-began
	}
	if _, err := dial(t, path).Run(Request{}, in, in, in, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), errBusy.Error()) {
		t.Errorf("one more: %v", err)
	}
	close(release)
	for range MaxCommands {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestCancelBeforeRequest: a command whose request came while a daemon was told to end what runs went on, and the daemon with it.
func TestCancelBeforeRequest(t *testing.T) {
	path, s := serve(t, func(ctx context.Context, _ *Command) int {
		if ctx.Err() == nil {
			return 1
		}
		return 0
	})
	c := dial(t, path)
	for s.Running() == 0 { // it is accepted
		time.Sleep(time.Millisecond)
	}
	s.Cancel()
	f := temp(t, "")
	if code, err := c.Run(Request{}, f, f, f, nil); err != nil || code != 0 {
		t.Errorf("%d, %v", code, err)
	}
}
