package command_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast/command"
)

// withoutFile are calls of commands that take no file of a database.
var withoutFile = []aCall{
	{args: "version"}, {args: "env", root: notInStock}, {args: "man", root: notInStock}, {args: "man surgery", root: notInStock},
	{args: "top --dir .", root: notInStock}, {args: "completion bash"}, {args: "bench --count 10"}, {args: "--help"}, {args: "--version"}, {args: "get --help"},
}

// everyCall calls fn with all calls of both roots that succeed on good.db, as lines and as JSON.
func everyCall(t *testing.T, fn func(root string, c aCall, args []string)) {
	t.Helper()
	workdir(t)
	b := newBuilder(t)
	inputs(t, b)
	check(t, os.Rename("good.db", "good"))
	change(t, "good", fillStore)
	for _, root := range []string{"holdfast", "bbolt"} {
		for _, c := range append(slices.Clone(calls), withoutFile...) {
			if !c.in(root) {
				continue
			}
			for _, more := range [][]string{nil, {"--json"}} {
				_ = os.Remove("good.db")
				data, err := os.ReadFile("good")
				check(t, err)
				check(t, os.WriteFile("good.db", data, 0o600))
				setBad(t, data)
				withoutOutput(t)
				args := append(c.expand(fmt.Sprint(b.sealed.leaf())), more...)
				if r := execute(rootNamed(root), "", args...); r.code != 0 {
					continue // surgery that has nothing to do here
				}
				setBad(t, data)
				withoutOutput(t)
				fn(root, c, args)
			}
		}
	}
}

// TestClosedPipeEverywhere: that the output has no reader any more is not an error of any command, and
// what a command does beside printing is done.
func TestClosedPipeEverywhere(t *testing.T) {
	n := 0
	everyCall(t, func(root string, c aCall, args []string) {
		n++
		for _, after := range []int{0, 300} {
			setBad(t, mustRead(t, "good"))
			withoutOutput(t)
			cmd := rootNamed(root)
			var errOut bytes.Buffer
			cmd.SetOut(&closedPipe{after})
			cmd.SetErr(&errOut)
			cmd.SetArgs(args)
			code := command.Execute(t.Context(), cmd)
			if code != 0 || errOut.Len() > 0 && !strings.Contains(errOut.String(), "WARNING: ") && args[0] != "bench" {
				t.Errorf("%s %v: exit code %d, %s", root, args, code, &errOut)
			}
			if c.output() && !fileThere("out") {
				t.Errorf("%s %v: there is no output", root, args)
			}
			withoutOutput(t)
			wantFiles(t, ".", "bad.db good good.db in.csv in.jsonl")
		}
	})
	if n < 100 {
		t.Errorf("only %d calls", n)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	return data
}
