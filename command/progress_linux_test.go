package command_test

import (
	"bytes"
	"strings"
	"testing"

	"holdfast/command"
	"holdfast/command/internal/clitest"
)

// TestProgressOfCommands: what takes long shows on a terminal that it goes on, on standard error only,
// and says nothing where there is no terminal.
func TestProgressOfCommands(t *testing.T) {
	workdir(t)
	command.QuickProgress(t)
	makeBig(t, "big.db", 1000)
	must(t, "export", "big.db", "-o", "big.jsonl")
	for call, want := range map[string]string{
		"export big.db -o out --force": "exporting", "import new.db big.jsonl --create": "importing", "import big.db big.jsonl --dry-run": "importing",
		"diff big.db big.db -q": "comparing", "diff big.db big.db --json": "comparing", "salvage -o out big.db --force": "salvaging", "check big.db": "checking", "compact -o out big.db --force": "copying",
		"surgery freelist abandon big.db -o out --force": "copying", "stats big.db": "counting",
	} {
		tty, end := clitest.Terminal(t)
		var out bytes.Buffer
		root := command.NewRootCommand()
		root.SetOut(&out)
		root.SetErr(tty)
		root.SetArgs(strings.Fields(call))
		code := command.Execute(t.Context(), root)
		if shown := end(); code != 0 || !strings.Contains(shown, want) {
			t.Errorf("%s: exit code %d, %q on the terminal", call, code, shown)
		}
		if want != "" && strings.Contains(out.String(), want) {
			t.Errorf("%s: progress on standard output: %q", call, &out)
		}
		if strings.Contains(call, "--create") {
			call = "check new.db"
		}
		must(t, strings.Fields(call)...) // which sees that there is nothing on standard error
	}
}
