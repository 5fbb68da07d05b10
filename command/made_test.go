package command_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/vfs"
)

// making are the commands that make a database under another name first, from
// sample.db, sample.jsonl and listless.db.
var making = []struct{ name, args string }{
	{"compact", "compact sample.db -o new.db"},
	{"salvage", "salvage sample.db -o new.db"},
	{"import", "import new.db sample.jsonl --create"},
	{"surgery", "surgery freelist rebuild listless.db -o new.db"},
	{"put", "put new.db b k v --create"},
}

// makeInputs makes what the commands of making read.
func makeInputs(t *testing.T) {
	t.Helper()
	withSample(t)
	must(t, "export", "sample.db", "-o", "sample.jsonl")
	must(t, "surgery", "freelist", "abandon", "sample.db", "-o", "listless.db")
}

// TestMadeInAnyEnvironment: what the environment says of open databases does not reach the
// file that a command is making, but for whether there are seals.
func TestMadeInAnyEnvironment(t *testing.T) {
	shares := filepath.Join(t.TempDir(), "shares")
	values := map[string][]string{"DURATION": {"1ns", "1h"}, "DIRECTORY": {"figures"}, "PATH": {shares}}
	for _, c := range making {
		t.Run(c.name, func(t *testing.T) {
			makeInputs(t)
			for _, v := range holdfast.Environment() {
				t.Setenv(v.Name, "")
			}
			messages, err := os.Create("messages")
			check(t, err)
			defer messages.Close()
			defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
			os.Stderr = messages
			build := func() string {
				t.Helper()
				r := run(t, strings.Fields(c.args)...)
				wantIn(t, r, 0, "", "")
				if told, err := os.ReadFile("messages"); err != nil || strings.Contains(string(told), ".tmp") {
					t.Errorf("messages of a file that nobody knows: %v\n%s", err, told)
				}
				data, err := os.ReadFile("new.db")
				check(t, err)
				check(t, os.Remove("new.db"))
				return string(data)
			}
			want := build()
			for _, v := range holdfast.Environment() {
				for _, word := range v.Values {
					set := values[word]
					if set == nil {
						set = []string{word}
					}
					for _, value := range set {
						t.Setenv(v.Name, value)
						got, unsealed := build(), v.Name == "HOLDFAST_SEALS" && value == "off"
						if same := got == want; same == unsealed {
							t.Errorf("%s=%s: the same file: %v", v.Name, value, same)
						}
					}
				}
				t.Setenv(v.Name, "")
			}
			for _, dir := range []string{"figures", shares} {
				if _, err := os.Stat(dir); err == nil {
					t.Errorf("a file that nobody knows was shared in %s", dir)
				}
			}
			t.Setenv("HOLDFAST_SEALS", "loud")
			wantIn(t, run(t, strings.Fields(c.args)...), 1, "", `the environment variable HOLDFAST_SEALS is "loud"; it can be "off" or "on"`)
			if _, err := os.Stat("new.db"); err == nil {
				t.Error("made in an environment that is wrong")
			}
		})
	}
}

// TestReplacesNoneThatIsOpen: --force does not replace a database that a program has open.
func TestReplacesNoneThatIsOpen(t *testing.T) {
	for _, args := range []string{
		"compact sample.db -o new.db --force",
		"salvage sample.db -o new.db --force",
		"surgery freelist rebuild listless.db -o new.db --force",
		"surgery freelist abandon sample.db -o new.db --force",
		"export sample.db -o new.db --force",
	} {
		t.Run(args, func(t *testing.T) {
			makeInputs(t)
			must(t, "put", "new.db", "b", "k", "v", "--create")
			for _, readOnly := range []bool{false, true} {
				db, err := holdfast.Open("new.db", 0o600, &holdfast.Options{ReadOnly: readOnly})
				check(t, err)
				before := snapshot(t, ".")
				r := run(t, strings.Fields(args)...)
				wantIn(t, r, 1, "", "holdfast: new.db: cannot be replaced: locked by another process")
				wantIn(t, r, 1, "", "; stop that program, or give another file\n")
				if after := snapshot(t, "."); after != before {
					t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
				}
				check(t, db.Close())
			}
			wantIn(t, run(t, strings.Fields(args)...), 0, "", "")
		})
	}
}

// TestReplacesNoneThatWasOpened: nor does import replace an empty file of which a program
// is making a database meanwhile.
func TestReplacesNoneThatWasOpened(t *testing.T) {
	makeInputs(t)
	data, err := os.ReadFile("sample.jsonl")
	check(t, err)
	check(t, os.WriteFile("new.db", nil, 0o600))
	other, err := vfs.OpenOS("new.db", os.O_RDWR, 0, nil)
	check(t, err)
	defer other.Close()
	before := snapshot(t, ".")
	root := command.NewRootCommand()
	var out, errOut strings.Builder
	root.SetIn(io.MultiReader(strings.NewReader(string(data)), readerFunc(func([]byte) (int, error) {
		if err := other.Lock(true, 0); err != nil {
			return 0, err
		}
		return 0, io.EOF
	})))
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs([]string{"import", "new.db", "--create"})
	code := command.Execute(t.Context(), root)
	wantIn(t, result{code, out.String(), errOut.String()}, 1, "", "holdfast: new.db: cannot be replaced: locked by another process")
	if after := snapshot(t, "."); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
