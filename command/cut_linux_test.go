package command_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/command"
)

// TestSourceCut: a source that was made shorter while "blob put" or "import --csv" read it was stored as it was then,
// with exit code 0 and not a word. Here that happens while the command waits for the database, with the source open.
func TestSourceCut(t *testing.T) {
	for _, args := range [][]string{
		{"blob", "put", "x.db", "st", "source", "--create", "--timeout", "0"},
		{"import", "x.db", "source", "--timeout", "0"},
		{"import", "x.db", "b", "--csv", "--input", "source", "--timeout", "0"},
	} {
		dir := workdir(t)
		must(t, "put", "x.db", "b", "k", "v", "--create")
		rows := bytes.Repeat([]byte("key,value\n"), 200_000)
		if args[0] == "import" && args[2] == "source" {
			rows = []byte(halfAnImport + halfAnImport)
		}
		check(t, os.WriteFile("source", rows, 0o600))
		db, err := holdfast.Open("x.db", 0o600, &holdfast.Options{ReadOnly: true}) // which the command can look at, and not write
		check(t, err)
		root := command.NewRootCommand()
		var out, errOut bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs(args)
		code := make(chan int, 1)
		ctx, end := context.WithCancel(t.Context())
		go func() {
			code <- command.Execute(ctx, root)
			end()
		}()
		// The size that the source had is known once the command waits for the database. (Cut between its opening and
		// that, it is as long as it seems.)
		for _, wait := range []struct {
			file  string
			times int
		}{{"source", 1}, {"x.db", 2}} {
			for open(filepath.Join(dir, wait.file)) < wait.times && ctx.Err() == nil {
			}
		}
		check(t, os.Truncate("source", 300_000))
		check(t, db.Close())
		wantIn(t, result{<-code, out.String(), errOut.String()}, 1, "", "holdfast: source: ")
		if !bytes.Contains(errOut.Bytes(), []byte("the file was made shorter while it was read: from ")) {
			t.Errorf("%v: %s", args, &errOut)
		}
	}
}

// open tells how often this process has the file open.
func open(path string) (times int) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if to, _ := os.Readlink(link); to == path {
			times++
		}
	}
	return times
}
