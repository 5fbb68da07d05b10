package command_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
)

// locked makes a database at path, which is locked until the test has ended.
func locked(t *testing.T, path string) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, nil)
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
}

// endedWaiting are the commands that catch the signals that end them, and wait for something.
var endedWaiting = []string{
	"vacuum locked.db --timeout 0", "vacuum locked.db --dry-run --timeout 1h", "reseal locked.db --timeout 0",
	"import locked.db in.jsonl --timeout 0", "import locked.db in.jsonl --dry-run --timeout 1h",
	"import locked.db b --csv --input in.jsonl --timeout 0",
	"blob put locked.db st in.jsonl --timeout 0", "blob put locked.db st in.jsonl --create --timeout 1h",
	"blob check locked.db st --repair --timeout 0",
	"import s.db fifo", "import -i fifo s.db", "import s.db b --csv -i fifo", "import new.db fifo --create",
	"blob put s.db st fifo --create", "blob put s.db st in.jsonl fifo --create",
}

// TestWaitingEnds: while these commands waited for a lock, or for a named pipe to be opened for writing, they caught
// the signals that ask them to end, and did nothing about it: only kill -9 ended them. Here the context ends before
// they wait, which is what a signal does to it.
func TestWaitingEnds(t *testing.T) {
	workdir(t)
	locked(t, "locked.db")
	must(t, "put", "s.db", "b", "k", "v", "--create")
	check(t, syscall.Mkfifo("fifo", 0o600))
	check(t, os.WriteFile("in.jsonl", []byte("{}\n"), 0o600))
	ended, end := context.WithCancel(t.Context())
	end()
	for _, args := range endedWaiting {
		root := command.NewRootCommand()
		var out, errOut bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs(strings.Fields(args))
		code := make(chan int, 1)
		go func() { code <- command.Execute(ended, root) }()
		select {
		case code := <-code:
			if code != command.ExitInterrupted || !strings.Contains(errOut.String(), "interrupted") {
				t.Errorf("%s: exit code %d, %s", args, code, &errOut)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", args)
		}
	}
}

// TestSignalEndsWaiting is TestWaitingEnds with signals, to a process that has the file open, for whose lock it waits.
func TestSignalEndsWaiting(t *testing.T) {
	dir := workdir(t)
	locked(t, "locked.db")
	for i, args := range []string{"vacuum locked.db --timeout 0", "blob check locked.db st --repair --timeout 1h"} {
		s := endings[i]
		for try := 1; ; try++ {
			cmd := process(t, strings.Fields(args)...)
			errOut := begun(t, cmd)
			stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			for has := false; !has; {
				links, _ := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/fd/*")
				for _, link := range links {
					to, _ := os.Readlink(link)
					has = has || to == filepath.Join(dir, "locked.db")
				}
			}
			check(t, cmd.Process.Signal(s))
			_ = cmd.Wait()
			stuck.Stop()
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() == s && try < 50 {
				continue // it had the file open to look at it, and did not catch signals yet
			}
			wantIn(t, result{cmd.ProcessState.ExitCode(), "", errOut.String()}, 128+int(s), "", "holdfast: locked.db: interrupted")
			break
		}
	}
}
