package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
	"holdfast/command/internal/clitest"
)

// listed is what readers --json prints of a reader.
type listed struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Opened  time.Time `json:"opened"`
	Reading bool      `json:"reading"`
	Tx      uint64    `json:"transaction"`
	AgeMS   int64     `json:"age_ms"`
	Behind  int       `json:"behind"`
	Ended   bool      `json:"ended"`
}

func readersOf(t *testing.T, path, dir string) []listed {
	t.Helper()
	var r struct {
		File    string   `json:"file"`
		Owner   int      `json:"owner_pid"`
		Tx      uint64   `json:"transaction"`
		Readers []listed `json:"readers"`
	}
	check(t, json.Unmarshal([]byte(must(t, "readers", path, "--dir", dir, "--json")), &r))
	if r.File != path || r.Owner != os.Getpid() || r.Tx == 0 || r.Readers == nil {
		t.Fatalf("%+v", r)
	}
	return r.Readers
}

// slowReader is a process that reads big.db through its owner, and waits within its transaction, as nothing takes its output.
func slowReader(t *testing.T, dir string) (p *exec.Cmd, out io.Reader, errOut *bytes.Buffer) {
	t.Helper()
	p, errOut = process(t, "keys", "big.db", "b"), &bytes.Buffer{}
	p.Env = append(p.Env, "HOLDFAST_SHARE="+dir)
	p.Stderr = errOut
	out, err := p.StdoutPipe()
	check(t, err)
	check(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	_, err = io.ReadFull(out, make([]byte, 100))
	check(t, err)
	return p, out, errOut
}

// bigOwner has big.db open and shared; one reader of it does not end by itself.
func bigOwner(t *testing.T) (db *holdfast.DB, dir string) {
	t.Helper()
	dir = filepath.Join(workdir(t), "share")
	t.Setenv("HOLDFAST_SHARE", "")
	t.Setenv("HOLDFAST_STATS", "")
	makeBig(t, "big.db", 50_000)
	return owner(t, "big.db", dir), dir
}

func commit(t *testing.T, db *holdfast.DB) {
	t.Helper()
	check(t, db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put([]byte("new"), nil) }))
}

// TestReadersEnd: a reader in another process is listed with the state that it holds, also while it is stopped; ended it holds
// nothing, fails when it goes on, and says why.
func TestReadersEnd(t *testing.T) {
	db, dir := bigOwner(t)
	wantIn(t, run(t, "readers", "big.db", "--dir", dir), 0, "No other process reads it.\n", "")
	p, out, errOut := slowReader(t, dir)
	check(t, p.Process.Signal(syscall.SIGSTOP))
	commit(t, db)
	commit(t, db)
	pid := fmt.Sprint(p.Process.Pid)
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	check(t, err)
	name := strings.TrimSpace(string(comm))

	all := readersOf(t, "big.db", dir)
	if len(all) != 1 || all[0].PID != p.Process.Pid || all[0].Program != name || !all[0].Reading || all[0].Tx == 0 || all[0].Behind != 2 ||
		all[0].AgeMS < 0 || all[0].Ended || time.Since(all[0].Opened) < 0 || time.Since(all[0].Opened) > time.Hour {
		t.Fatalf("%+v", all)
	}
	text := must(t, "readers", "big.db", "--dir", dir)
	for _, want := range []string{fmt.Sprintf("The process %d (", os.Getpid()), "PID", "BEHIND", pid + "  " + name} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	otherInTop(t, pid, name)

	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", "1"), 1, "", "is no reader of it; readers are process "+pid+" ("+name+")")
	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", fmt.Sprint(os.Getpid())), 1, "", "has it open itself")
	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", "0"), 2, "", "--end is 0")
	wantIn(t, run(t, "__complete", "readers", "big.db", "--dir", dir, "--end", ""), 0, pid+"\t"+name+"\n", "")
	if all := readersOf(t, "big.db", dir); all[0].Ended {
		t.Fatal("another process was named, and it ended")
	}
	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", pid), 0, "ended a reader of process "+pid+" ("+name+"), which read a state of ", "")
	if all := readersOf(t, "big.db", dir); len(all) != 1 || !all[0].Ended || all[0].Reading {
		t.Errorf("%+v", all)
	}
	wantIn(t, run(t, "readers", "big.db", "--dir", dir), 0, "ended", "")
	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", pid), 1, "", "1 reader of process "+pid+" ("+name+") ended already")

	check(t, p.Process.Signal(syscall.SIGCONT))
	_, err = io.Copy(io.Discard, out)
	check(t, err)
	if err := p.Wait(); err == nil || p.ProcessState.ExitCode() != 1 || !strings.Contains(errOut.String(), "big.db: the reader was ended from outside, as by holdfast readers --end; run the command again") {
		t.Errorf("%v: %s", err, errOut)
	}
	wantIn(t, run(t, "readers", "big.db", "--dir", dir), 0, "No other process reads it.\n", "")
	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", pid), 1, "", "process "+pid+" is no reader of it; no other process reads it")
}

// otherInTop sees that top shows the reader of big.db, which is the only one.
func otherInTop(t *testing.T, pid, name string) {
	t.Helper()
	top := []string{"top", "big.db", "--dir", "share", "--count", "1", "--interval", "10ms"}
	var r struct {
		Others int     `json:"other_readers"`
		Oldest *listed `json:"oldest_other_reader"`
	}
	check(t, json.Unmarshal([]byte(must(t, append(top, "--json")...)), &r))
	if r.Others != 1 || r.Oldest == nil || fmt.Sprint(r.Oldest.PID) != pid || r.Oldest.Program != name || r.Oldest.Behind != 2 {
		t.Errorf("%+v, %+v", r, r.Oldest)
	}
	who := "process " + pid + " (" + name + ")"
	wantIn(t, run(t, top...), 0, who+": a state of ", "")
	wantIn(t, run(t, "top", "--dir", "share", "--json"), 0, `"other_readers": 1,`, "")
	tty, end := clitest.Terminal(t)
	root := command.NewRootCommand()
	root.SetOut(tty)
	root.SetErr(tty)
	root.SetArgs(top)
	command.Execute(t.Context(), root)
	if out := end(); !strings.Contains(out, "1 transaction in other processes; ") || !strings.Contains(out, who) || !strings.Contains(out, "2 transactions behind") {
		t.Errorf("%q", out)
	}
}

// TestReadersIdle: the process that is ended between two transactions notices nothing.
func TestReadersIdle(t *testing.T) {
	db, dir := bigOwner(t)
	other, err := holdfast.OpenShared("big.db", &holdfast.Options{Share: dir}) // of this process, which is another reader all the same
	check(t, err)
	defer other.Close()
	if all := readersOf(t, "big.db", dir); len(all) != 1 || all[0].Reading || all[0].Ended || all[0].PID != os.Getpid() {
		t.Fatalf("%+v", all)
	}
	const own = "/proc/self/comm" // any process can give itself any name, and it is text
	name, err := os.ReadFile(own)
	check(t, err)
	check(t, os.WriteFile(own, []byte("\x1b[31mred"), 0))
	defer os.WriteFile(own, name, 0)
	for _, args := range commandsOnShares {
		onlyText(t, args, run(t, strings.Fields(strings.ReplaceAll(args, "sample.db", "big.db"))...))
	}
	wantIn(t, run(t, "readers", "big.db", "--dir", dir), 0, "\"\\x1b[31mred\"", "")
	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", "7"), 1, "", "readers are process "+fmt.Sprint(os.Getpid())+" (\"\\x1b[31mred\")")
	wantIn(t, run(t, "readers", "big.db", "--dir", dir), 0, "idle", "")
	wantIn(t, run(t, "readers", "big.db", "--dir", dir, "--end", fmt.Sprint(os.Getpid()), "--json"), 0, `"reading": false,`, "")
	commit(t, db)
	check(t, other.View(func(tx *holdfast.Tx) error { return nil }))
	if all := readersOf(t, "big.db", dir); len(all) != 1 || all[0].Ended {
		t.Errorf("%+v", all)
	}
}

// foreignOwner is a process that has a database open and shares it in dir until it is killed, or its input ends.
func foreignOwner(t *testing.T, path, dir string) *exec.Cmd {
	t.Helper()
	p := process(t, "import", path, "-", "--create")
	p.Env = append(p.Env, "HOLDFAST_SHARE="+dir)
	in, err := p.StdinPipe()
	check(t, err)
	check(t, p.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if r := run(t, "top", path, "--dir", dir, "--count", "1", "--interval", "10ms"); r.code == 0 {
			return p
		} else if time.Now().After(deadline) {
			t.Fatal(r)
		}
	}
}

// TestTopOfKilled: of two databases that are shared one program is killed: that is known at once, and the other is shown as before.
func TestTopOfKilled(t *testing.T) {
	dir := filepath.Join(workdir(t), "share")
	must(t, "put", "b.db", "b", "k", "v", "--create")
	p := foreignOwner(t, "b.db", dir)
	pid := fmt.Sprint(p.Process.Pid)
	owner(t, "a.db", dir)
	wantIn(t, run(t, "top", "--dir", dir), 0, "/a.db\n", "")
	wantIn(t, run(t, "top", "--dir", dir), 0, "/b.db\n", "")
	for what, file := range map[string]string{pid: "b.db", "b.db": "b.db", fmt.Sprint(os.Getpid()): "a.db"} {
		out := must(t, "top", what, "--dir", dir, "--count", "1", "--interval", "10ms", "--json")
		if !strings.Contains(out, "/"+file+`","pid":`) {
			t.Errorf("%s: %s", what, out)
		}
	}
	wantIn(t, run(t, "readers", "b.db", "--dir", dir), 0, "The process "+pid+" (", "")

	w := &killing{p: p}
	var errOut strings.Builder
	root := command.NewRootCommand()
	root.SetOut(w)
	root.SetErr(&errOut)
	root.SetArgs([]string{"top", "b.db", "--dir", dir, "--interval", "10ms", "--json"})
	if code := command.Execute(t.Context(), root); code != 0 || !strings.Contains(errOut.String(), "b.db: its program ended without closing it") || w.lines == 0 {
		t.Errorf("exit code %d, %d lines, %s", code, w.lines, &errOut)
	}
	if r := run(t, "top", "--dir", dir); !strings.Contains(r.out, "/a.db\n") || strings.Contains(r.out, "/b.db") || r.errOut != "" {
		t.Errorf("%+v", r)
	}
	const ended = "b.db: no program has it open and shares it: the one that did ended without closing it"
	wantIn(t, run(t, "top", "b.db", "--dir", dir), 1, "", ended)
	wantIn(t, run(t, "readers", "b.db", "--dir", dir), 1, "", ended)
	wantIn(t, run(t, "readers", "b.db", "--dir", dir, "--end", "1"), 1, "", ended)
	owner(t, "b.db", dir)
	wantIn(t, run(t, "readers", "b.db", "--dir", dir), 0, "No other process reads it.", "")
}

// killing is a writer: at the first line it kills the process, and waits for its end.
type killing struct {
	p     *exec.Cmd
	lines int
}

func (w *killing) Write(p []byte) (int, error) {
	if w.lines++; w.lines == 1 {
		_ = w.p.Process.Kill()
		_ = w.p.Wait()
	}
	return len(p), nil
}

// TestReadersRefuses: what readers says of a database that is not shared, and how it finds the share.
func TestReadersRefuses(t *testing.T) {
	dir := withSample(t)
	t.Setenv("HOLDFAST_SHARE", "")
	t.Setenv("HOLDFAST_STATS", "")
	share := filepath.Join(dir, "share")
	before := snapshot(t, dir)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"sample.db"}, 1, "sample.db: not shared in " + holdfast.DefaultShareDir() + " by a program that has it open; start that program with HOLDFAST_SHARE=on in its environment, or say with --dir"},
		{[]string{"sample.db", "--dir", "share"}, 1, "sample.db: not shared in share by a program that has it open; start that program with HOLDFAST_SHARE=" + share + " in its environment"},
		{[]string{"sample.db", "--dir", "share", "--end", "1"}, 1, "sample.db: not shared in share"},
		{[]string{"sampel.db", "--dir", "share"}, 1, "sampel.db: no such file; there is sample.db"},
		{[]string{"sample.db", "--end", "me"}, 2, "--end"},
		{nil, 2, "FILE"},
	} {
		wantIn(t, run(t, append([]string{"readers"}, c.args...)...), c.code, "", c.want)
	}
	t.Setenv("HOLDFAST_SHARE", "off,sample.db="+share)
	wantIn(t, run(t, "readers", "sample.db"), 1, "", "not shared in "+share)
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	db, err := holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	wantIn(t, run(t, "readers", "sample.db"), 0, "No other process reads it.", "")
	if err := os.Remove("sample.db"); err == nil { // it is found by its name all the same
		wantIn(t, run(t, "readers", filepath.Join(dir, "sample.db"), "--dir", share), 0, "No other process reads it.", "")
	}
}

// TestReadersNoPermission: what another user is told.
func TestReadersNoPermission(t *testing.T) {
	t.Chdir(publicDir(t))
	share, err := filepath.Abs("share")
	check(t, err)
	check(t, os.Mkdir("closed", 0o700))
	owner(t, "closed/a.db", "share")
	owner(t, "b.db", "share")
	if os.Getuid() != 0 {
		t.Skip("left out: needs root, to be another user")
	}
	as := func(args ...string) result {
		cmd := process(t, append(args, "--dir", "share")...)
		cmd.Env = append(cmd.Env, "HOLDFAST_SHARE=", "HOLDFAST_STATS=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return runProcess(t, cmd)
	}
	const sudo = "; run the command as a user who may, for example with sudo"
	for _, args := range [][]string{{"top"}, {"readers"}, {"readers", "--end", "1"}} {
		wantIn(t, as(append(args, "closed/a.db")...), 1, "", "closed/a.db: no permission to open it"+sudo)
		wantIn(t, as(append(args, "b.db")...), 1, "", "b.db: no permission to open its share in share"+sudo)
	}
	wantIn(t, as("top"), 1, "", "share: no permission to open the shares in it"+sudo)
	// A file that all may read: it is the share that is closed to others.
	check(t, os.Chmod("b.db", 0o644))
	for args, want := range map[string]string{
		"watch b.db":              "b.db: no permission to open its share in " + share + sudo,
		"info b.db --timeout 1ms": ", and no permission to open its share" + sudo + ": the share is for the user and the group of the file, and root",
	} {
		cmd := process(t, strings.Fields(args)...)
		cmd.Env = append(cmd.Env, "HOLDFAST_SHARE="+share)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		wantIn(t, runProcess(t, cmd), 1, "", want)
	}
	// The share is for those who may read the database.
	check(t, owner(t, "c.db", "share").Close())
	check(t, os.Chown("c.db", 0, nobody))
	check(t, os.Chmod("c.db", 0o640))
	owner(t, "c.db", "share")
	wantIn(t, as("readers", "c.db"), 0, "No other process reads it.", "")
	r := as("top")
	wantIn(t, r, 0, "/c.db\n", "share: note: passed over: ")
	if strings.Contains(r.out, "b.db") {
		t.Error(r.out)
	}
}
