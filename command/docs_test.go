package command_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const docsPath = "../docs/command.md"

// usageFence begins a block with the arguments and flags of the command of the section.
const usageFence = "```text usage\n"

// usageOf is what --help says of a command's arguments and flags, and of those below it.
func usageOf(t *testing.T, name string) string {
	t.Helper()
	cmd, left, err := newRoot().Find([]string{name})
	if err != nil || len(left) > 0 {
		t.Fatalf("%s has a section on %s, which is no command", docsPath, name)
	}
	var all []string
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				add(child)
			}
		}
		if !cmd.Runnable() {
			return
		}
		text := strings.TrimSuffix(cmd.UseLine(), " [flags]") + "\n"
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				flags.AddFlag(f)
			}
		})
		all = append(all, text+flags.FlagUsages())
	}
	add(cmd)
	return strings.Join(all, "\n")
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
	console, usage, section := false, false, ""
	for line := range strings.Lines(string(data)) {
		switch {
		case strings.HasPrefix(line, "## "):
			section = strings.TrimSpace(line[3:])
		case strings.HasPrefix(line, "```"):
			console, usage = line == "```console\n", line == usageFence
		case usage || console && !strings.HasPrefix(line, "$ "):
			continue // what was printed
		}
		b.WriteString(line)
		if usage && line == usageFence {
			b.WriteString(usageOf(t, section))
		}
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
	prose := regexp.MustCompile("(?s)"+usageFence+".*?```\n").ReplaceAllString(text, "") // without what is generated
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if !strings.Contains(text, "\n## "+cmd.Name()+"\n\n"+usageFence) {
			t.Errorf("no section on %s that begins with its usage", cmd.Name())
		}
		flagsDocumented(t, prose, cmd)
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
