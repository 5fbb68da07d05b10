package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/bench/age"
	"holdfast/bench/age/stores"
	"holdfast/bench/age/traces"
	"holdfast/bench/program"
)

// asProgram makes this test binary the program.
const asProgram = "HOLDFAST_BENCH_AGE_TEST"

func TestMain(m *testing.M) {
	age.RunChild(stores.All(), traces.All)
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

var tiny = []string{"-days", "3", "-stretches", "1", "-cycles", "1", "-commits", "3", "-rounds", "2", "-gets", "10", "-opens", "1"}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRun: a tiny life of two stores gives tables, targets, JSON and a page, and leaves no stores.
func TestRun(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	asJSON, html := filepath.Join(out, "age.json"), filepath.Join(out, "age.html")
	var stdout, stderr bytes.Buffer
	args := append([]string{"-dir", dir, "-json", asJSON, "-html", html, "-peers", "stock,holdfast", "-check"}, tiny...)
	if err := run(context.Background(), args, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	empty(t, dir)
	for _, want := range []string{"\n| stock | ", "\n| holdfast | ", "| holdfast: durable commit, median | ", " cores, "} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in:\n%s", want, stdout.String())
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("what is no terminal got %q", stderr.String())
	}
	data, err := os.ReadFile(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	var r age.Result
	if err := json.Unmarshal(data, &r); err != nil || len(r.Lives) != 2 || r.Config.Days != 3 || r.Config.Retention != age.Quick.Retention {
		t.Errorf("%v, %+v", err, r)
	}
	if r.Machine == "" || r.Date == "" || !strings.HasPrefix(r.Command, "bench-age -commits=3 ") || strings.Contains(r.Command, dir) || len(r.Traces) == 0 {
		t.Errorf("%+v", r)
	}
	page, err := os.ReadFile(html)
	if err != nil || !bytes.Contains(page, []byte("</html>")) || bytes.Count(page, []byte("<h1>")) != 1 {
		t.Errorf("%v, %s", err, page)
	}
	// The page of another run has this result, too.
	if err := run(context.Background(), append([]string{"-dir", dir, "-html", html, "-snapshots", asJSON, "-peers", "holdfast"}, tiny...), &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(html); err != nil || bytes.Count(page, []byte("<h1>")) != 2 {
		t.Errorf("%v, %s", err, page)
	}
}

// TestWrong: what cannot be is said before anything is done.
func TestWrong(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		want string
		args []string
	}{
		{`no peer "dbm"; there are "holdfast"`, []string{"-peers", "holdfast,dbm"}},
		{"no argument \"stock\"; name stores with -peers", []string{"stock"}},
		{"-days is 0", []string{"-days", "0"}},
		{"-commits is -1", []string{"-commits", "-1"}},
		{"do not fit into 3 days", []string{"-days", "3", "-stretches", "3"}},
		{"no such file or directory", []string{"-json", filepath.Join(dir, "none", "age.json")}},
		{"no such file or directory", []string{"-html", filepath.Join(dir, "none", "age.html")}},
		{"no such file or directory", []string{"-dir", filepath.Join(dir, "none")}},
		{"not defined: -peer", []string{"-peer", "stock"}},
		{"no such file or directory", []string{"-snapshots", filepath.Join(dir, "none")}},
	} {
		var out, stderr bytes.Buffer
		err := run(context.Background(), append([]string{"-dir", dir}, c.args...), &out, &stderr)
		if err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%q: %v, %s", c.args, err, out.String())
		}
	}
	empty(t, dir)
	var none bytes.Buffer
	if err := run(context.Background(), []string{"-dir", dir, "-n", "-days", "50"}, &none, &none); err != nil || none.Len() > 0 {
		t.Errorf("%v, %q", err, none.String())
	}
	empty(t, dir)
	var said bytes.Buffer
	if code := program.ExitCode("bench-age", errors.New("no"), &said); code != 1 || said.String() != "bench-age: no\n" {
		t.Errorf("%d, %q", code, said.String())
	}
}

// TestInterrupt: nothing is left when the program is interrupted while a process of it works on a store.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-dir", dir, "-days", "100000", "-peers", "holdfast")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	for i := 0; ; i++ {
		if found, err := filepath.Glob(filepath.Join(dir, "*", "peer0", "db")); err != nil || i > 3000 {
			t.Fatalf("no store is made: %v, %s", err, said.String())
		} else if len(found) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 || said.String() != "bench-age: interrupted; its files are removed\n" {
		t.Errorf("the program ended with %v, and said %q", err, said.String())
	}
	empty(t, dir)
}

// TestFlags: what is given replaces what a run has.
func TestFlags(t *testing.T) {
	o, err := parse([]string{"-full", "-days", "500", "-stretches", "10"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	want := age.Full
	want.Days, want.Stretches = 500, 10
	if o.config != want || len(o.peers) != len(stores.All()) {
		t.Errorf("%+v", o)
	}
}
