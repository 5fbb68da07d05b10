package command_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"holdfast/command"
	"holdfast/command/internal/clitest"
)

// putProcess is a put of standard input as a process of its own.
func putProcess(t *testing.T, s syscall.Signal, data []byte, args ...string) result {
	t.Helper()
	cmd := process(t, append([]string{"blob", "put", "x.db", "store"}, args...)...)
	in, err := cmd.StdinPipe()
	check(t, err)
	errOut := begun(t, cmd)
	_, err = in.Write(data) // more than the pipe takes: nearly all of it has been read then
	check(t, err)
	check(t, cmd.Process.Signal(s))
	_ = cmd.Wait()
	return result{cmd.ProcessState.ExitCode(), "", errOut.String()}
}

// TestBlobPutEndedBySignal: a put that is asked to end, or is killed, leaves a store that is whole. With a name
// what was read is kept, and put says how to go on, unless it is killed.
func TestBlobPutEndedBySignal(t *testing.T) {
	workdir(t)
	must(t, "blob", "put", "x.db", "store", "--create")
	data := random(7, 3<<20)
	whole := func() {
		t.Helper()
		wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
	}
	for _, s := range endings {
		wantIn(t, putProcess(t, s, data), 128+int(s), "", "holdfast: x.db: interrupted, nothing was stored\n")
		whole()
		if out := must(t, "blob", "stat", "x.db", "store"); strings.Contains(out, "Unfinished") {
			t.Errorf("%v: %s", s, out)
		}
	}
	for i, s := range endings {
		name := fmt.Sprint("up", i)
		r := putProcess(t, s, data, "--resume", name)
		wantIn(t, r, 128+int(s), "", "holdfast: x.db: interrupted; ")
		wantIn(t, r, 128+int(s), "", " of standard input are stored; go on with: holdfast blob put x.db store - --resume "+name+"\n")
		whole()
		check(t, os.WriteFile("in", data, 0o600))
		r = run(t, "blob", "put", "x.db", "store", "in", "--resume", name)
		wantIn(t, r, 0, digestOf(data)+"  3.0 MiB (3,145,728 bytes), from ", "")
	}
	before := must(t, "blob", "stat", "x.db", "store")
	_ = putProcess(t, syscall.SIGKILL, random(8, 3<<20), "--resume", "killed")
	if after := must(t, "blob", "stat", "x.db", "store"); after != before {
		t.Errorf("killed within its first transaction it left\n%s\nbefore\n%s", after, before)
	}
	whole()
}

// TestBlobReadingEndedBySignal: get leaves no file, and cat ends by the signal.
func TestBlobReadingEndedBySignal(t *testing.T) {
	workdir(t)
	data := random(9, 8<<20)
	check(t, os.WriteFile("in", data, 0o600))
	must(t, "blob", "put", "x.db", "store", "in", "--create")
	before := snapshot(t, ".")
	for _, s := range endings {
		cmd := process(t, "blob", "cat", "x.db", "store", digestOf(data))
		out, err := cmd.StdoutPipe()
		check(t, err)
		begun(t, cmd)
		_, err = io.ReadFull(out, make([]byte, 1000))
		check(t, err)
		check(t, cmd.Process.Signal(s))
		_ = cmd.Wait()
		if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != s {
			t.Errorf("%v ended it with %v", s, cmd.ProcessState)
		}
	}
	for try := 0; ; try++ {
		r, interrupted := signalled(t, endings[0], "blob", "get", "x.db", "store", digestOf(data), "-o", "new.db")
		if interrupted {
			wantIn(t, r, command.ExitInterrupted, "", "holdfast: new.db: interrupted, nothing was written\n")
			break
		}
		if try == 50 {
			t.Error("it is never interrupted")
			break
		}
	}
	if after := snapshot(t, "."); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestBlobDiskFull: a put for which there is no room says so and leaves the store whole, and goes on when there is.
func TestBlobDiskFull(t *testing.T) {
	workdir(t)
	command.SmallPuts(t, 1<<18)
	data := random(10, 1<<20)
	check(t, os.WriteFile("in", data, 0o600))
	room := smallDisk(t)
	must(t, "blob", "put", "small/db", "store", "--create")
	room(500 << 10)
	r := run(t, "blob", "put", "small/db", "store", "in", "--resume", "up")
	wantIn(t, r, 1, "", "holdfast: small/db: no space left on its disk")
	wantIn(t, run(t, "blob", "check", "small/db", "store", "--data"), 0, "OK\n", "")
	wantIn(t, run(t, "blob", "get", "small/db", "store", digestOf(nil), "-o", "small/out"), 0, "", "")
	check(t, os.Remove("small/rest"))
	wantIn(t, run(t, "blob", "put", "small/db", "store", "in", "--resume", "up"), 0, digestOf(data), "")
	room(100 << 10)
	wantIn(t, run(t, "blob", "get", "small/db", "store", digestOf(data), "-o", "small/more"), 1, "", "holdfast: small/more: no space left on its disk; free some space on that disk and try again\n")
	wantFiles(t, "small", "db out rest")
}

// TestBlobProgress: what takes long shows on a terminal that it goes on.
func TestBlobProgress(t *testing.T) {
	workdir(t)
	command.QuickProgress(t)
	check(t, os.WriteFile("in", random(11, 1<<20), 0o600))
	ref := digestOf(mustRead(t, "in"))
	for _, c := range []struct{ call, want string }{
		{"put x.db store in --create", "storing"}, {"get x.db store " + ref + " -o out", "reading"}, {"stat x.db store", "counting"},
		{"check x.db store", "checking"}, {"check x.db store --repair --json", "checking"}, {"rm x.db store " + ref, "freeing"}, {"gc x.db store", "freeing"},
	} {
		tty, end := clitest.Terminal(t)
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(tty)
		root.SetArgs(append([]string{"blob"}, strings.Fields(c.call)...))
		code := command.Execute(t.Context(), root)
		if shown := end(); code != 0 || !strings.Contains(shown, c.want) {
			t.Errorf("%s: exit code %d, %q on the terminal", c.call, code, shown)
		}
	}
}

// TestBlobDamagedPages: whatever byte of a file is another one, no command on blobs panics or goes on for ever, or
// gives content that is not what was put; errors name the file, and what reads changes nothing.
func TestBlobDamagedPages(t *testing.T) {
	workdir(t)
	a, _, _ := makeBlobs(t)
	ref := digestOf(a)
	sealed := mustRead(t, "blobs.db")
	must(t, "export", "blobs.db", "-o", "blobs.jsonl")
	t.Setenv("HOLDFAST_SEALS", "off")
	must(t, "import", "bare.db", "blobs.jsonl", "--create")
	bare := mustRead(t, "bare.db")
	t.Setenv("HOLDFAST_SEALS", "")
	pageSize := os.Getpagesize()
	calls := [][]string{
		{"cat", "bad.db", "store", ref}, {"ls", "bad.db", "store"}, {"stat", "bad.db", "store"}, {"stat", "bad.db", "store", ref},
		{"get", "bad.db", "store", ref, "-o", "out", "--force"}, {"diff", "bad.db", "store", ref, ref[:30]}, {"check", "bad.db", "store", "--data"},
		{"rm", "bad.db", "store", ref, "--dry-run"}, {"check", "bad.db", "store", "--repair"}, {"put", "bad.db", "store", "short"}, {"rm", "bad.db", "store", ref}, {"gc", "bad.db", "store"},
	}
	const reading = 8
	failed := 0
	for kind, data := range map[string][]byte{"sealed": sealed, "bare": bare} {
		for page := 2; page < len(data)/pageSize; page++ {
			for _, at := range []int{8, 40, pageSize / 2} {
				if at != []int{8, 40, pageSize / 2}[page%3] && (kind == "sealed" || page > 4) { // the seal shows each
					continue
				}
				bad := bytes.Clone(data)
				bad[page*pageSize+at] ^= 0x55
				setBad(t, bad)
				before := snapshot(t, "bad.db")
				for i, args := range calls {
					r := run(t, append([]string{"blob"}, args...)...)
					call := fmt.Sprintf("%s, page %d, byte %d: %v", kind, page, at, args)
					switch {
					case r.code != 0:
						failed++
						if !strings.HasPrefix(r.errOut, "holdfast: bad.db: ") {
							t.Errorf("%s: %s", call, r)
						}
					case args[0] == "cat" && r.out != string(a), args[0] == "get" && !bytes.Equal(mustRead(t, "out"), a):
						t.Errorf("%s: other content than was put", call)
					}
					if args[0] == "cat" && !strings.HasPrefix(string(a), r.out) {
						t.Errorf("%s: %d bytes that are not a beginning of what was put", call, len(r.out))
					}
					if i < reading {
						if after := snapshot(t, "bad.db"); after != before {
							t.Errorf("%s: the file changed", call)
						}
					}
				}
			}
		}
	}
	if failed < 25 {
		t.Errorf("only %d calls failed", failed)
	}
}
