package command_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"holdfast"
)

// endings are the signals that ask a process to end.
var endings = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// begun begins a command, with what it prints to standard error.
func begun(t *testing.T, cmd *exec.Cmd) *bytes.Buffer {
	t.Helper()
	errOut := &bytes.Buffer{}
	cmd.Stderr = errOut
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return errOut
}

// TestEndedBySignal: a process that makes a file and is asked to end leaves nothing, and
// its sources as they were. Its exit code was 1; it is that of a shell for the signal, as of a command that only reads.
func TestEndedBySignal(t *testing.T) {
	workdir(t)
	makeBig(t, "big.db", 150_000)
	for _, args := range []string{
		"compact -o new.db big.db --tx-max-size 1000", "salvage -o new.db big.db",
		"export -o new.db big.db", "surgery freelist abandon -o new.db big.db",
	} {
		t.Run(args, func(t *testing.T) {
			before := snapshot(t, ".")
			for _, s := range endings {
				for try := 1; ; try++ {
					r, interrupted := signalled(t, s, strings.Fields(args)...)
					if !interrupted && try < 50 { // it was done before the signal came
						continue
					}
					wantIn(t, r, 128+int(s), "", "holdfast: new.db: interrupted, nothing was written\n")
					break
				}
				if after := snapshot(t, "."); after != before {
					t.Errorf("%v: files changed: before\n%s\nafter\n%s", s, before, after)
				}
			}
		})
	}
}

// signalled runs the command as a process that gets s once it has begun to make new.db. If
// it is done by then, new.db is removed.
func signalled(t *testing.T, s syscall.Signal, args ...string) (r result, interrupted bool) {
	t.Helper()
	cmd := process(t, args...)
	errOut := begun(t, cmd)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for sent := false; ; runtime.Gosched() {
		select {
		case <-done:
			r = result{cmd.ProcessState.ExitCode(), "", errOut.String()}
			if r.code == 0 {
				check(t, os.Remove("new.db"))
			}
			return r, r.code != 0
		default:
		}
		if there, _ := filepath.Glob(".new.db.*.tmp"); len(there) > 0 && !sent {
			sent = true
			_ = cmd.Process.Signal(s)
		}
	}
}

// TestImportEndedBySignal: the same of an import whose input does not come.
func TestImportEndedBySignal(t *testing.T) {
	for _, args := range []string{"import new.db --create", "import sample.db"} {
		for _, s := range endings {
			t.Run(fmt.Sprint(args, " ", s), func(t *testing.T) {
				withSample(t)
				before := snapshot(t, ".")
				cmd, in := importProcess(t, "", strings.Fields(args)...)
				errOut := begun(t, cmd)
				_, err := io.WriteString(in, halfAnImport)
				check(t, err)
				check(t, cmd.Process.Signal(s))
				_ = cmd.Wait()
				wantIn(t, result{cmd.ProcessState.ExitCode(), "", errOut.String()}, 128+int(s), "", ": interrupted, nothing was ")
				if after := snapshot(t, "."); after != before {
					t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
				}
			})
		}
	}
}

// halfAnImport is more than a pipe without a reader takes: once it is written the import
// is under way.
var halfAnImport = "{\"format\":\"holdfast-export\",\"version\":1}\n" +
	strings.Repeat("{\"bucket\":[\"alpha\"],\"key\":\"new\",\"value\":\"\"}\n", 10_000)

// importProcess is an import with a pipe for its input, begun by what stands in shell.
func importProcess(t *testing.T, shell string, args ...string) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	cmd := process(t, args...)
	if shell != "" {
		self, err := os.Executable()
		check(t, err)
		cmd.Args = append([]string{"sh", "-c", shell + `; exec "$0" "$@"`, self}, args...)
		cmd.Path = "/bin/sh"
	}
	in, err := cmd.StdinPipe()
	check(t, err)
	return cmd, in
}

// TestSignalIgnored: what was begun by nohup, or in the background by a shell, goes on.
func TestSignalIgnored(t *testing.T) {
	withSample(t)
	for i, name := range []string{"HUP", "INT"} {
		file := fmt.Sprintf("%d.db", i)
		cmd, in := importProcess(t, "trap '' "+name, "import", file, "--create")
		errOut := begun(t, cmd)
		_, err := io.WriteString(in, halfAnImport)
		check(t, err)
		check(t, cmd.Process.Signal(map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT}[name]))
		_, err = io.WriteString(in, "{\"end\":true,\"buckets\":0,\"keys\":10000}\n")
		check(t, err)
		check(t, in.Close())
		_ = cmd.Wait()
		wantIn(t, result{cmd.ProcessState.ExitCode(), "", errOut.String()}, 0, "", "")
		must(t, "get", file, "alpha", "new")
	}
}

// TestReadingEndedBySignal: a command that only prints ends by the signal, as programs do
// that do not know it, and leaves all files as they are.
func TestReadingEndedBySignal(t *testing.T) {
	workdir(t)
	makeBig(t, "big.db", 20_000)
	makeBig(t, "locked.db", 10)
	db, err := holdfast.Open("locked.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	before := snapshot(t, ".")
	for _, s := range endings {
		for _, args := range []string{"export big.db", "keys big.db b", "check locked.db --timeout 0"} {
			cmd := process(t, strings.Fields(args)...)
			out, err := cmd.StdoutPipe()
			check(t, err)
			begun(t, cmd)
			if strings.Contains(args, "big.db") { // more than the pipe takes is still to come
				_, err := io.ReadFull(out, make([]byte, 100))
				check(t, err)
			}
			check(t, cmd.Process.Signal(s))
			_ = cmd.Wait()
			if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != s {
				t.Errorf("%s: %v ended it with %v", args, s, cmd.ProcessState)
			}
		}
	}
	if after := snapshot(t, "."); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}
