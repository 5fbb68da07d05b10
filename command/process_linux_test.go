package command_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast"
	"holdfast/command"
	"holdfast/command/internal/clitest"
)

// process is the holdfast command as a process of its own, which signals end.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	heedSignals()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// heedSignals has the processes that the test begins heed the signals that ask one to end. What
// happened: TestBenchRunSignal waited for ever if the tests had been begun by nohup, or in the
// background by a shell. These ignore signals, and a process that is begun ignores what the one that
// begins it ignores, but not what that one handles.
func heedSignals() {
	for _, s := range endings {
		if signal.Ignored(s) {
			// To the end of this process: once it is stopped, it is ignored again, and Ignored does not tell.
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

func runProcess(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

const nobody = 65534

// publicDir is a directory that everybody may enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-test-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o755))
	return dir
}

// TestNoPermission runs the commands as a user who may not read the file, or
// may read it only.
func TestNoPermission(t *testing.T) {
	data, err := os.ReadFile(samplePath)
	check(t, err)
	dir := publicDir(t)
	t.Chdir(dir)
	check(t, os.WriteFile("secret.db", data, 0))
	check(t, os.WriteFile("readable.db", data, 0o444))
	check(t, os.Mkdir("closed", 0o755))
	check(t, os.WriteFile("closed/x.db", data, 0o444))
	check(t, os.Chmod("closed", 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "closed"), 0o755) })
	as := func(args ...string) result {
		cmd := process(t, args...)
		if os.Getuid() == 0 { // root may read everything
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return runProcess(t, cmd)
	}
	for _, on := range []string{"info closed/x.db", "put closed/x.db b k v --create"} {
		wantIn(t, as(strings.Fields(on)...), 1, "", "holdfast: closed/x.db: no permission to open it; run the command as a user who may")
	}
	for _, on := range onFile {
		rest := strings.Fields(on.args)
		wantIn(t, as(append([]string{on.name, "secret.db"}, rest...)...), 1, "",
			"holdfast: secret.db: no permission to open it (it belongs to ")
		r := as(append([]string{on.name, "readable.db"}, rest...)...)
		switch {
		case on.writes:
			wantIn(t, r, 1, "", "holdfast: readable.db: no permission to open it (it belongs to ")
		case on.name == "compact":
			if os.Getuid() == 0 { // to whom the directory belongs
				wantIn(t, r, 1, "", "holdfast: copy.db: no permission")
			}
		default:
			wantIn(t, r, 0, "", "")
		}
	}
}

// TestLockedByProcess names the process that holds the lock. The name of the process, which it
// can choose, reached the terminal as it is: it could clear it, or colour what came after.
func TestLockedByProcess(t *testing.T) {
	withSample(t)
	db, err := holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	r := runProcess(t, process(t, "get", "sample.db", "alpha", "key-1", "--timeout", "10ms"))
	wantIn(t, r, 1, "", fmt.Sprintf("sample.db: locked by another process for longer than 10ms, held by process %d (", os.Getpid()))

	const own = "/proc/self/comm"
	name, err := os.ReadFile(own)
	check(t, err)
	check(t, os.WriteFile(own, []byte("\x1b[31mred"), 0))
	defer os.WriteFile(own, name, 0)
	r = runProcess(t, process(t, "get", "sample.db", "alpha", "key-1", "--timeout", "10ms"))
	wantIn(t, r, 1, "", fmt.Sprintf(`held by process %d ("\x1b[31mred"); `, os.Getpid()))
	wantIn(t, r, 1, "", "; stop that program, or wait longer with --timeout (")
}

// TestReadersShare: commands that read do not keep each other out, but they
// keep out those that write.
func TestReadersShare(t *testing.T) {
	withSample(t)
	db, err := holdfast.Open("sample.db", 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	defer db.Close()
	for _, on := range onFile {
		r := run(t, append([]string{on.name, "sample.db", "--timeout", "10ms"}, strings.Fields(on.args)...)...)
		if on.writes {
			wantIn(t, r, 1, "", "locked by another process")
		} else {
			wantIn(t, r, 0, "", "")
		}
	}
}

// TestBrokenPipe: a process whose output has no reader ends quietly.
func TestBrokenPipe(t *testing.T) {
	workdir(t)
	makeBig(t, "big.db", 50_000)
	cmd := process(t, "keys", "big.db", "b")
	out, err := cmd.StdoutPipe()
	check(t, err)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	check(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 100))
	check(t, err)
	check(t, out.Close())
	err = cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if err != nil && status.Signal() != syscall.SIGPIPE || errOut.Len() > 0 {
		t.Errorf("%v: %s", err, &errOut)
	}
}

// TestOutputFull: an output that takes nothing is an error.
func TestOutputFull(t *testing.T) {
	withSample(t)
	must(t, "put", "other.db", "b", "k", "v", "--create")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	check(t, err)
	defer full.Close()
	root := command.NewRootCommand()
	var errOut bytes.Buffer
	root.SetOut(full)
	root.SetErr(&errOut)
	for args, want := range map[string]int{"info sample.db": 1, "export sample.db": 1, "diff sample.db sample.db": command.ExitTrouble, "diff sample.db other.db": command.ExitTrouble} {
		errOut.Reset()
		root.SetArgs(strings.Fields(args))
		if code := command.Execute(t.Context(), root); code != want || !strings.Contains(errOut.String(), "no space left") {
			t.Errorf("%s: exit code %d, %s", args, code, &errOut)
		}
	}
}

// TestDiskFull: a copy that does not fit leaves nothing behind.
func TestDiskFull(t *testing.T) {
	dir := workdir(t)
	makeBig(t, "big.db", 30_000)
	check(t, os.Mkdir("small", 0o755))
	if err := unix.Mount("tmpfs", "small", "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "small"), unix.MNT_DETACH) })
	before := snapshot(t, "big.db")
	wantIn(t, run(t, "compact", "-o", "small/copy.db", "big.db"), 1, "",
		"holdfast: small/copy.db: no space left on its disk; free some space on that disk and try again\n")
	wantFiles(t, "small", "")
	wantIn(t, run(t, "export", "-o", "small/x.jsonl", "big.db"), 1, "",
		"holdfast: small/x.jsonl: no space left on its disk; free some space on that disk and try again\n")
	must(t, "export", "-o", "big.jsonl", "big.db")
	wantIn(t, run(t, "import", "small/new.db", "big.jsonl", "--create"), 1, "",
		"holdfast: small/new.db: no space left on its disk; free some space on that disk and try again\n")
	wantFiles(t, "small", "")
	must(t, "put", "small/old.db", "b", "k", "v", "--create")
	old := content(t, "small/old.db")
	wantIn(t, run(t, "import", "small/old.db", "big.jsonl"), 1, "", "holdfast: small/old.db: no space left on its disk; ")
	wantFiles(t, "small", "old.db")
	if got := content(t, "small/old.db"); got != old {
		t.Errorf("an import that failed left\n%s", got)
	}
	check(t, os.Remove("small/old.db"))
	if after := snapshot(t, "big.db"); after != before {
		t.Errorf("the source changed: before\n%s\nafter\n%s", before, after)
	}
	wantIn(t, run(t, "put", "small/new.db", "b", "k", "v", "--create"), 0, "created the database", "")
}

// TestTerminal: colours are for terminals, and not with NO_COLOR.
func TestTerminal(t *testing.T) {
	withSample(t)
	onTerminal := func(args ...string) string {
		tty, end := clitest.Terminal(t)
		root := command.NewRootCommand()
		root.SetOut(tty)
		root.SetErr(tty)
		root.SetArgs(args)
		command.Execute(t.Context(), root)
		return end()
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if out := onTerminal("check", "sample.db"); !strings.Contains(out, "\x1b[32msound") {
		t.Errorf("no colour: %q", out)
	}
	long := strings.Repeat("long ", 20)
	must(t, "put", "other.db", "b", "k", long, "--create")
	out := onTerminal("diff", "sample.db", "other.db", "b")
	if !strings.Contains(out, "\x1b[32m+\x1b[0m b/: a bucket with 1 key in it") {
		t.Errorf("got %q", out)
	}
	must(t, "put", "third.db", "b", "k", "v", "--create")
	if out := onTerminal("diff", "other.db", "third.db"); strings.Contains(out, long) || !strings.Contains(out, "b/k: long long ") || !strings.Contains(out, "... (100 bytes) -> v") {
		t.Errorf("a long value is not abbreviated: %q", out)
	}
	if out := onTerminal("diff", "other.db", "third.db", "--format", "bytes"); !strings.Contains(out, long+" -> v") {
		t.Errorf("a long value is abbreviated in spite of --format: %q", out)
	}
	if out := onTerminal("info", "gone.db"); !strings.Contains(out, "\x1b[31mholdfast:") {
		t.Errorf("no colour: %q", out)
	}
	t.Setenv("NO_COLOR", "1")
	if out := onTerminal("check", "sample.db"); strings.Contains(out, "\x1b[32m") {
		t.Errorf("colour in spite of NO_COLOR: %q", out)
	}
}
