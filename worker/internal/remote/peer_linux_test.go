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
