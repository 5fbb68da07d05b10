package command_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	docsPath      = "../docs/command.md"
	referencePath = "../docs/command/reference.md"
)

//go:generate go test -run ^TestReference$ -update .

// reference is the page with the arguments and flags of root and of all commands below it, as --help prints them.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Reference of the holdfast command\n\n" +
		"Made of what `--help` says, by `go generate ./command`. [The command](../command.md) has a section for each task.\n\n" +
		"Every command also has these flags:\n\n```text\n" + root.PersistentFlags().FlagUsages() + "```\n")
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd != root && cmd.Runnable() && len(cmd.Commands()) == 0 {
			writeUsage(&b, cmd)
		}
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() && child.Name() != "completion" {
				add(child)
			}
		}
	}
	add(root)
	return b.String()
}

// writeUsage writes the section on cmd.
func writeUsage(b *strings.Builder, cmd *cobra.Command) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			flags.AddFlag(f)
		}
	})
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n%s```\n", cmd.CommandPath(), cmd.Short+".", strings.TrimSuffix(cmd.UseLine(), " [flags]"), flags.FlagUsages())
}

// TestReference compares the reference with the commands; with -update it writes it.
func TestReference(t *testing.T) {
	want := reference(newRoot())
	if *update {
		check(t, os.WriteFile(referencePath, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(referencePath)
	check(t, err)
	if string(got) != want {
		t.Errorf("%s is not what the commands have: run go generate ./command", referencePath)
	}
}

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

// TestDocsComplete: each command is in docs/command.md, by its name in code or in a line of a console.
func TestDocsComplete(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	check(t, err)
	var documented func(cmd *cobra.Command)
	documented = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "holdfast "), "surgery ")
		if !strings.Contains(string(data), "`"+name+"`") && !strings.Contains(string(data), "`holdfast "+name+"`") {
			t.Errorf("%s: nothing on %s", docsPath, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			documented(sub)
		}
	}
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() != "help" && cmd.Name() != "completion" {
			documented(cmd)
		}
	}
}
