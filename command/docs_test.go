package command_test

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const docsPath = "../docs/command.md"

// TestDocs runs the commands that docs/command.md shows in its console blocks,
// one after the other on the sample database, and compares what they print.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	check(t, err)
	before, err := os.Getwd()
	check(t, err)
	withSample(t)
	var b strings.Builder
	console := false
	for line := range strings.Lines(string(data)) {
		switch {
		case strings.HasPrefix(line, "```"):
			console = line == "```console\n"
		case console && !strings.HasPrefix(line, "$ "):
			continue // what was printed
		}
		b.WriteString(line)
		if args, ok := strings.CutPrefix(strings.TrimSpace(line), "$ holdfast "); ok && console {
			r := run(t, strings.Fields(args)...)
			b.WriteString(r.out + r.errOut)
		}
	}
	// Numbers are compared elsewhere, and here they may change with the engine.
	if !*update && zero(b.String()) == zero(string(data)) {
		return
	}
	if !*update {
		t.Fatalf("docs/command.md shows what the commands do not print; they print\n%s", b.String())
	}
	check(t, os.Chdir(before))
	check(t, os.WriteFile(docsPath, []byte(b.String()), 0o644))
}

// TestDocsComplete: each command and each flag is in docs/command.md.
func TestDocsComplete(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	check(t, err)
	text := string(data)
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if !strings.Contains(text, "\n## "+cmd.Name()+"\n") {
			t.Errorf("no section on %s", cmd.Name())
		}
		flagsDocumented(t, text, cmd)
	}
}

// flagsDocumented sees that the flags of a command, and of all below it, are in text.
func flagsDocumented(t *testing.T, text string, cmd *cobra.Command) {
	t.Helper()
	for _, flag := range flagNames(cmd) {
		if !strings.Contains(text, "`--"+flag) && !strings.Contains(text, " --"+flag+" ") {
			t.Errorf("%s: nothing on --%s", cmd.CommandPath(), flag)
		}
	}
	for _, sub := range cmd.Commands() {
		if !strings.Contains(text, "`"+strings.TrimPrefix(sub.CommandPath(), "holdfast surgery ")+"`") {
			t.Errorf("nothing on %s", sub.CommandPath())
		}
		flagsDocumented(t, text, sub)
	}
}
