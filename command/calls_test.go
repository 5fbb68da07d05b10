package command_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/command"
)

// aCall is one way to call a command with a file. In args, BAD stands for the file, GOOD for
// a database that is whole, OUT for a file to be made, LEAF for a leaf page of BAD, and REF for a blob in it.
type aCall struct {
	args   string
	writes bool   // to the file
	root   string // the only one that has it; "": both
}

// notInStock is the root of calls that bbolt's shape lacks.
const notInStock = "holdfast"

// calls are ways to call all commands that take a file. What they name is in the file that
// makeTree makes, but for the store, which fillStore adds: its damage has a test of its own.
var calls = []aCall{
	{args: "info BAD"},
	{args: "check BAD"},
	{args: "check BAD --quick", root: notInStock},
	{args: "check BAD --from-page LEAF"},
	{args: "stats BAD"},
	{args: "stats BAD ke"},
	{args: "doctor BAD"},
	{args: "buckets BAD"},
	{args: "buckets BAD nest", root: notInStock},
	{args: "keys BAD keys"},
	{args: "get BAD keys key000100"},
	{args: "export BAD"},
	{args: "export BAD nest"},
	{args: "export BAD keys --csv"},
	{args: "export BAD -o OUT"},
	{args: "diff BAD GOOD"},
	{args: "diff GOOD BAD"},
	{args: "diff BAD BAD"},
	{args: "inspect BAD"},
	{args: "compact -o OUT BAD"},
	{args: "import BAD in.jsonl --dry-run"},
	{args: "vacuum BAD --dry-run", root: notInStock},

	{args: "blob ls BAD store", root: notInStock},
	{args: "blob stat BAD store", root: notInStock},
	{args: "blob cat BAD store REF", root: notInStock},
	{args: "blob get BAD store REF -o OUT", root: notInStock},
	{args: "blob diff BAD store REF REF", root: notInStock},
	{args: "blob check BAD store --data", root: notInStock},
	{args: "blob rm BAD store REF --dry-run", root: notInStock},
	{args: "blob push BAD store --all --to OUT --create", root: notInStock},
	{args: "blob pull OUT store --all --from BAD --create", root: notInStock},

	{args: "page BAD LEAF"},
	{args: "page BAD --all"},
	{args: "page-item BAD LEAF 0"},
	{args: "dump BAD LEAF"},
	{args: "pages BAD"},
	{args: "pages BAD --map", root: notInStock},
	{args: "salvage -o OUT BAD"},
	{args: "salvage -o OUT BAD --all"},
	{args: "surgery revert-meta-page BAD -o OUT"},
	{args: "surgery copy-page BAD -o OUT --from-page LEAF --to-page 3"},
	{args: "surgery clear-page BAD -o OUT --pageId LEAF"},
	{args: "surgery clear-page-elements BAD -o OUT --pageId LEAF --from-index 0 --to-index 1"},
	{args: "surgery freelist abandon BAD -o OUT"},
	{args: "surgery freelist rebuild BAD -o OUT"},
	{args: "surgery meta validate BAD"},
	{args: "surgery meta update BAD -o OUT --fields freelist:18446744073709551615"},

	{args: "put BAD keys key000100 v", writes: true},
	{args: "delete BAD keys key000100", writes: true},
	{args: "delete BAD --bucket keys", writes: true},
	{args: "import BAD in.jsonl --replace", writes: true},
	{args: "import BAD keys --csv --input in.csv --replace", writes: true},
	{args: "blob create BAD new", writes: true, root: notInStock},
	{args: "blob put BAD store in.csv", writes: true, root: notInStock},
	{args: "blob rm BAD store REF", writes: true, root: notInStock},
	{args: "blob gc BAD store", writes: true, root: notInStock},
	{args: "vacuum BAD", writes: true, root: notInStock},
	{args: "reseal BAD", writes: true},
	{args: "settle BAD", writes: true},
}

// noFile are commands that take no database, and why others are not among the calls.
var noFile = map[string]string{
	"bench":      "makes a new file",
	"env":        "looks whether it is one, and reads nothing else",
	"man":        "takes none",
	"version":    "takes none",
	"help":       "takes none",
	"completion": "takes none",
	"top":        "reads figures, and not the database",
	"readers":    "reads the share, and not the database",
	"watch":      "reads only what a program has open",
	"blob serve": "fails without a peer",
	"blob key":   "makes a key, and opens none",
}

// TestCallsComplete: no command is missing from the calls.
func TestCallsComplete(t *testing.T) {
	for name, root := range map[string]*cobra.Command{"holdfast": command.NewRootCommand(), "bbolt": command.NewBboltCommand()} {
		var walk func(cmd *cobra.Command)
		walk = func(cmd *cobra.Command) {
			for _, child := range cmd.Commands() {
				if noFile[child.Name()] == "" {
					walk(child)
				}
			}
			if !cmd.Runnable() || cmd.HasSubCommands() {
				return
			}
			path := strings.TrimPrefix(cmd.CommandPath(), name+" ")
			if noFile[path] == "" && !slices.ContainsFunc(calls, func(c aCall) bool {
				return strings.HasPrefix(c.args, path+" ") && (c.root == "" || c.root == name)
			}) {
				t.Errorf("no call of %s %s", name, path)
			}
		}
		walk(root)
	}
	for name := range noFile {
		if _, _, err := newRoot().Find(strings.Fields(name)); err != nil && name != "help" && name != "completion" {
			t.Errorf("%s is not a command", name)
		}
	}
}

// expand puts files into the arguments of a call.
func (c aCall) expand(leaf string) []string {
	return strings.Fields(strings.NewReplacer("BAD", "bad.db", "GOOD", "good.db", "OUT", "out", "LEAF", leaf, "REF", blobRef).Replace(c.args))
}

// commandOf is the last word of the command that args call.
func commandOf(args []string) string {
	if args[0] == "blob" {
		return args[1]
	}
	return args[0]
}

// in tells whether the root has the call.
func (c aCall) in(root string) bool { return c.root == "" || c.root == root }

// output tells whether the call makes a file.
func (c aCall) output() bool { return strings.Contains(c.args, "OUT") }

// rootNamed makes one of the two roots.
func rootNamed(name string) *cobra.Command {
	if name == "bbolt" {
		return command.NewBboltCommand()
	}
	return command.NewRootCommand()
}

// withoutOutput removes what a call has made.
func withoutOutput(t *testing.T) {
	t.Helper()
	if err := os.Remove("out"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}
