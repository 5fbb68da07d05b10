package command_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/command"
)

// TestOutputFullEverywhere: an output that takes nothing is an error of all commands, which says so.
func TestOutputFullEverywhere(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	check(t, err)
	defer full.Close()
	everyCall(t, func(root string, c aCall, args []string) {
		cmd := rootNamed(root)
		var errOut bytes.Buffer
		cmd.SetOut(full)
		cmd.SetErr(&errOut)
		cmd.SetArgs(args)
		code := command.Execute(t.Context(), cmd)
		want := command.ExitFailed
		if commandOf(args) == "diff" {
			want = command.ExitTrouble
		}
		text := "write the output: write /dev/full: no space left on device"
		if strings.Contains(c.args, "--help") || c.args == "--version" { // the version was a wrong command line then
			want = command.ExitFailed // of diff too
		}
		if code != want || !strings.Contains(errOut.String(), text) {
			t.Errorf("%s %v: exit code %d, %s", root, args, code, &errOut)
		}
		withoutOutput(t)
		wantFiles(t, ".", "bad.db good good.db in.csv in.jsonl")
	})
}

// TestOutputFullAfterChange: if the output could not be written after a change was made, the message did not say that
// it was, and the command seemed to have failed.
func TestOutputFullAfterChange(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	check(t, err)
	defer full.Close()
	workdir(t)
	check(t, os.WriteFile("in.csv", []byte("k3,v\n"), 0o600))
	for _, c := range []struct{ args, made string }{
		{"put x.db b k v --create", "x.db"}, {"put x.db b k2 v", "x.db"}, {"put x.db b k2 v --json", "x.db"},
		{"import x.db b --csv --input in.csv", "x.db"}, {"delete x.db b k2", "x.db"}, {"compact x.db -o y.db", "y.db"},
		{"blob put x.db st in.csv --create", "x.db"}, {"reseal x.db", ""}, {"vacuum x.db", ""}, {"get x.db b k", ""}, {"export x.db -o e.jsonl", "e.jsonl"},
		{"import x.db b --csv --input in.csv --dry-run", ""},
	} {
		var errOut bytes.Buffer
		cmd := command.NewRootCommand()
		cmd.SetOut(full)
		cmd.SetErr(&errOut)
		cmd.SetArgs(strings.Fields(c.args))
		code := command.Execute(t.Context(), cmd)
		says := "; " + c.made + " is written all the same"
		if code != command.ExitFailed || strings.Contains(errOut.String(), says) != (c.made != "") || strings.Contains(errOut.String(), "all the same") != (c.made != "") {
			t.Errorf("%s: exit code %d, %s", c.args, code, &errOut)
		}
	}
	if got := must(t, "keys", "x.db", "b"); got != "k\nk3\n" {
		t.Errorf("the keys are %q", got)
	}
}

// smallDisk mounts a disk of two MiB at small; room leaves so many bytes of it, in a file "rest"
// that takes all others.
func smallDisk(t *testing.T) (room func(n int64)) {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	check(t, os.Mkdir("small", 0o755))
	if err := unix.Mount("tmpfs", "small", "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "small"), unix.MNT_DETACH) })
	return func(n int64) {
		t.Helper()
		check(t, os.WriteFile("small/rest", nil, 0o600))
		var stat unix.Statfs_t
		check(t, unix.Statfs("small", &stat))
		check(t, os.WriteFile("small/rest", make([]byte, max(int64(stat.Bfree)*int64(os.Getpagesize())-n, 0)), 0o600))
	}
}

// TestDiskFills: wherever the disk is full while a command makes a file, there is none then under
// its name, or all of it; and what was to be written, and why it was not, is said.
func TestDiskFills(t *testing.T) {
	workdir(t)
	makeBig(t, "big.db", 8000) // 1.2 MiB
	must(t, "export", "big.db", "-o", "big.jsonl")
	leaf := leafOf(t, "big.db")
	room := smallDisk(t)
	before := snapshot(t, "big.db")
	for _, call := range []string{
		"compact -o small/out big.db", "compact -o small/out big.db --no-sync", "export -o small/out big.db", "export -o small/out --csv big.db b",
		"salvage -o small/out big.db", "import small/out big.jsonl --create", "put small/out b k v --create",
		"surgery freelist abandon big.db -o small/out", "surgery clear-page big.db -o small/out --pageId " + leaf,
		"surgery clear-page-elements big.db -o small/out --from-index 0 --to-index 1 --pageId " + leaf,
		"surgery copy-page big.db -o small/out --to-page 3 --from-page " + leaf, "surgery meta update big.db -o small/out --fields pageSize:4096",
	} {
		failed, done := 0, 0
		for _, n := range []int64{0, 4 << 10, 12 << 10, 64 << 10, 300 << 10, 1 << 20, 2 << 20} {
			room(n)
			r := run(t, strings.Fields(call)...)
			files := "out rest"
			if r.code != 0 {
				files = "rest"
				failed++
				wantIn(t, r, 1, "", "holdfast: small/out: no space left on its disk; free some space on that disk and try again\n")
			} else {
				done++
			}
			wantFiles(t, "small", files)
			if r.code == 0 && !strings.HasPrefix(call, "export") && !strings.HasPrefix(call, "surgery") {
				wantIn(t, run(t, "check", "small/out"), 0, ": sound\n", "")
			}
			_ = os.Remove("small/out")
		}
		if failed == 0 || done == 0 {
			t.Errorf("%s: it failed %d times, and was done %d times", call, failed, done)
		}
	}
	if after := snapshot(t, "big.db"); after != before {
		t.Errorf("the source changed: before\n%s\nafter\n%s", before, after)
	}
}

// leafOf is a leaf page of a database.
func leafOf(t *testing.T, path string) string {
	t.Helper()
	for line := range strings.Lines(must(t, "pages", path, "--type", "leaf")) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "leaf" {
			return fields[0]
		}
	}
	t.Fatal("no leaf")
	return ""
}

// TestDiskFullInPlace: commands that write to a database leave it whole on a disk that is full.
func TestDiskFullInPlace(t *testing.T) {
	workdir(t)
	makeBig(t, "big.db", 2000)
	check(t, os.WriteFile("long", bytes.Repeat([]byte("long"), 1<<18), 0o600))
	must(t, "put", "other.db", "b", "k", "--value-file", "long", "--create")
	must(t, "export", "other.db", "-o", "long.jsonl")
	room := smallDisk(t)
	data := mustRead(t, "big.db")
	for _, call := range []string{
		"put small/db b k --value-file long", "import small/db long.jsonl", "delete small/db b 00000001", "delete small/db --bucket b",
		"put small/db b k v", "vacuum small/db", "reseal small/db", "settle small/db",
	} {
		failed := 0
		for _, n := range []int64{0, 8 << 10} {
			_ = os.Remove("small/rest")
			check(t, os.WriteFile("small/db", data, 0o600))
			want := content(t, "small/db")
			room(n)
			r := run(t, strings.Fields(call)...)
			if r.code != 0 {
				failed++
				wantIn(t, r, 1, "", "holdfast: small/db: no space left on its disk; free some space on that disk")
				if got := content(t, "small/db"); got != want {
					t.Errorf("%s, %s: the content is another", call, fmt.Sprint(n))
				}
			}
			wantIn(t, run(t, "check", "small/db"), 0, ": sound\n", "")
			wantFiles(t, "small", "db rest")
		}
		if strings.Contains(call, "long") && failed == 0 {
			t.Errorf("%s: it did not fail", call)
		}
	}
}

// The file of a blob that was written to standard output was shortened: the error was of standard output, "bad
// address".
func TestOutputOfAShortenedFile(t *testing.T) {
	workdir(t)
	check(t, os.WriteFile("in", bytes.Repeat([]byte("0123456789abcdef"), 1<<18), 0o600))
	must(t, "blob", "put", "x.db", "store", "in", "--create", "--into", "rows")
	r, w, err := os.Pipe()
	check(t, err)
	cmd := command.NewRootCommand()
	var errOut bytes.Buffer
	cmd.SetOut(w)
	cmd.SetErr(&errOut)
	cmd.SetArgs(strings.Fields("blob cat x.db store rows/in"))
	code := make(chan int)
	go func() {
		exit := command.Execute(t.Context(), cmd)
		_ = w.Close()
		code <- exit
	}()
	_, err = r.Read(make([]byte, 1)) // it is on its way, and does not end before the rest is read
	check(t, err)
	check(t, os.Truncate("x.db", 8192))
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if got := <-code; got != command.ExitDamaged && got != command.ExitFailed || !strings.Contains(errOut.String(), "x.db: ") || !strings.Contains(errOut.String(), "shortened") {
		t.Errorf("exit code %d, %s", got, &errOut)
	}
	check(t, r.Close())
}
