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
// What several commands have in common is at its beginning, and the commands only name it.
func reference(root *cobra.Command) string {
	var commands []*cobra.Command
	uses := map[string]int{}
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd != root && cmd.Runnable() && len(cmd.Commands()) == 0 {
			commands = append(commands, cmd)
			for _, f := range flagsOf(cmd.LocalNonPersistentFlags()) {
				uses[f.does]++
			}
		}
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() && child.Name() != "completion" {
				add(child)
			}
		}
	}
	add(root)
	var common, short, rest strings.Builder
	for _, f := range flagsOf(root.PersistentFlags()) {
		common.WriteString(f.does)
	}
	common.WriteString("\nFlags of several commands, which only name them:\n\n")
	for _, cmd := range commands {
		usage, does, also, own := strings.TrimPrefix(strings.TrimSuffix(cmd.UseLine(), " [flags]"), "holdfast "), "", "", ""
		if cmd.Parent() != root { // the others are in the page on the tasks
			does = ": " + cmd.Short + "."
		}
		for _, f := range flagsOf(cmd.LocalNonPersistentFlags()) {
			if uses[f.does] == 1 {
				own += f.does
				continue
			}
			also += " --" + f.name
			if !strings.Contains(common.String(), f.does) {
				common.WriteString(f.does)
			}
		}
		if cmd.Parent() == root && cmd.Name() == "bench" {
			also, own, does = "", "", ", with the flags of `bbolt bench`"
		}
		if also != "" {
			also = ", with `" + also[1:] + "`"
		}
		if own == "" {
			fmt.Fprintf(&short, "- `%s`%s%s\n", usage, also, does)
			continue
		}
		fmt.Fprintf(&rest, "\n## %s\n", usage)
		if also+does != "" {
			fmt.Fprintf(&rest, "\n%s\n", strings.TrimLeft(does+strings.Replace(also, ", w", " W", 1)+" and:", ": "))
		}
		rest.WriteString("\n" + own)
	}
	return "# Reference of the holdfast command\n\n" +
		"Arguments and flags as `--help` gives them, by `go generate ./command`. [The command](../command.md) says what each is for.\n\n" +
		"Flags of all commands:\n\n" + common.String() + "\nCommands without flags of their own:\n\n" + short.String() + rest.String()
}

// shownFlag is a flag as the reference has it.
type shownFlag struct {
	name string
	does string // its line: what it is called with, and what it does
}

// flagsOf are the flags of a set but --help.
func flagsOf(set *pflag.FlagSet) (all []shownFlag) {
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		alone := pflag.NewFlagSet("", pflag.ContinueOnError)
		alone.AddFlag(f)
		called, does, _ := strings.Cut(strings.TrimSpace(alone.FlagUsages()), "   ")
		all = append(all, shownFlag{f.Name, fmt.Sprintf("- `%s`: %s\n", called, does)})
	})
	return all
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
