package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/bench/age/report"
	"holdfast/bench/snaplife"
)

// asProgram makes this test binary the program.
const asProgram = "HOLDFAST_BENCH_AGE_SNAPSHOTS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
}

// empty sees that nothing is left in dir, and nothing mounted.
func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(dir)) {
		t.Errorf("still mounted in %s: %v, %s", dir, err, mounts)
	}
}

// TestRun: a tiny life of two snapshotters gives tables, targets, JSON that bench-age reads and a page, and leaves nothing.
func TestRun(t *testing.T) {
	needsRoot(t)
	dir, out := t.TempDir(), t.TempDir()
	asJSON, html := filepath.Join(out, "snaps.json"), filepath.Join(out, "snaps.html")
	var stdout, stderr bytes.Buffer
	args := []string{"-dir", dir, "-json", asJSON, "-html", html, "-peers", "containerd overlay,holdfast", "-check",
		"-days", "3", "-stretches", "1", "-cycles", "1", "-rounds", "1", "-opens", "1", "-steps", "2"}
	if err := run(context.Background(), args, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	empty(t, dir)
	for _, want := range []string{"\n| containerd overlay | ", "\n| holdfast | ", "| holdfast: cycle: ", "| snapshotter | day 1 | day 3 | day 3 / day 1 |", " snapshots; on day 3 "} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in:\n%s", want, stdout.String())
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("what is no terminal got %q", stderr.String())
	}
	r, err := report.Read(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Lives) != 2 || r.Config.Days != 3 || r.Machine == "" || !strings.HasPrefix(r.Command, name+" -cycles=1 ") || strings.Contains(r.Command, dir) {
		t.Errorf("%+v", r)
	}
	if page, err := os.ReadFile(html); err != nil || !bytes.Contains(page, []byte("The life of snapshots")) {
		t.Errorf("%v, %s", err, page)
	}
}

// TestWrong: what cannot be is said before anything is done.
func TestWrong(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		want string
		args []string
		root bool // an ordinary user is told something else
	}{
		{`no peer "zfs"; there are "holdfast"`, []string{"-peers", "holdfast,zfs"}, false},
		{"no argument \"native\"; name snapshotters with -peers", []string{"native"}, false},
		{"-days is -2", []string{"-days", "-2"}, false},
		{"-steps is -1", []string{"-steps", "-1"}, false},
		{"do not fit into 3 days", []string{"-days", "3", "-stretches", "3"}, false},
		{"not defined: -peer", []string{"-peer", "holdfast"}, false},
		{"no such file or directory", []string{"-json", filepath.Join(dir, "none", "age.json")}, true},
		{"no such file or directory", []string{"-html", filepath.Join(dir, "none", "age.html")}, true},
		{"no such file or directory", []string{"-dir", filepath.Join(dir, "none")}, true},
	} {
		if c.root && os.Geteuid() != 0 {
			continue
		}
		var out, stderr bytes.Buffer
		err := run(context.Background(), append([]string{"-dir", dir}, c.args...), &out, &stderr)
		if err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%q: %v, %s", c.args, err, out.String())
		}
	}
	empty(t, dir)
}

// TestFlags: what is given replaces what a run has.
func TestFlags(t *testing.T) {
	o, err := parse([]string{"-full", "-days", "500", "-steps", "10"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	want := snaplife.Full
	want.Days, want.Steps = 500, 10
	if o.config != want || len(o.peers) != len(snaplife.All()) || o.command != name+" -days=500 -full=true -steps=10" {
		t.Errorf("%+v", o)
	}
	if o, err := parse(nil, &bytes.Buffer{}); err != nil || o.config != snaplife.Quick {
		t.Errorf("%+v, %v", o, err)
	}
}

// itself is this program, with arguments.
func itself(args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd, said := exec.Command("/proc/self/exe", args...), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = said
	return cmd, said
}

// TestOrdinaryUser: an ordinary user is told who may.
func TestOrdinaryUser(t *testing.T) {
	cmd, said := itself()
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(said.String(), "run it as root") {
		t.Errorf("%v, %q", err, said.String())
	}
}

// TestInterrupt: nothing is left, and nothing mounted, when the program is interrupted at its work.
func TestInterrupt(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	cmd, said := itself("-dir", dir, "-days", "100000", "-peers", "holdfast,containerd overlay")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	for i := 0; ; i++ {
		if found, err := filepath.Glob(filepath.Join(dir, "*", "mounted*", "etc")); err != nil || i > 10_000 {
			t.Fatalf("nothing is mounted: %v, %s", err, said.String())
		} else if len(found) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 || said.String() != name+": interrupted; its files are removed\n" {
		t.Errorf("the program ended with %v, and said %q", err, said.String())
	}
	empty(t, dir)
}
