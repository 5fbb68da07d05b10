package remote

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envDial has this program dial a socket, as another user.
const envDial = "HOLDFAST_TEST_DIAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(envDial); path != "" {
		c, err := Dial(path)
		if err == nil {
			_, err = c.Run(Request{}, os.Stdin, os.Stdout, os.Stderr, nil)
		}
		if err != nil {
			_, _ = os.Stdout.WriteString(err.Error())
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Another user than that of the daemon is refused, also if the modes of the socket let it in.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to be two users")
	}
	path, _ := serve(t, func(context.Context, *Command) int { t.Error("it runs"); return 0 })
	program := filepath.Join(t.TempDir(), "program")
	self, err := os.ReadFile("/proc/self/exe")
	if err = errors.Join(err, os.WriteFile(program, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, program} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
		for dir := filepath.Dir(p); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.Command(program)
	cmd.Env = []string{envDial + "=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "user 65534 may not use it") {
		t.Errorf("%s, %v", out, err)
	}
}

// A command that wrote to a full pipe, or read from one in which nothing came, went on when its caller had gone, as long as another
// process had the other end: four steps so, and no other ran any more, and SIGTERM did not end the daemon.
func TestWaitingForPipes(t *testing.T) {
	for name, wait := range map[string]func(*Command) error{
		"write": func(c *Command) error {
			for {
				if _, err := c.Stdout.Write(make([]byte, 1<<16)); err != nil {
					return err
				}
			}
		},
		"read": func(c *Command) error {
			_, err := c.Stdin.Read(make([]byte, 1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan bool), make(chan error, 1)
			path, s := serve(t, func(_ context.Context, c *Command) int {
				close(began)
				ended <- wait(c)
				return 0
			})
			nothing, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			out, full, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll([]*os.File{nothing, in, out, full})
			c := dial(t, path)
			gone := make(chan error, 1)
			go func() {
				_, err := c.Run(Request{}, nothing, full, temp(t, ""), nil)
				gone <- err
			}()
			<-began
			_ = c.Close()
			<-gone
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Error("it goes on")
			}
			closeAll([]*os.File{nothing, in, out, full})
			s.Drain()
		})
	}
}
