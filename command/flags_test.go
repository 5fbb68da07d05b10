package command_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEveryFlagHasATest: each command, and each flag of it, stands in a call in some test.
// (What the test sees is another question.)
func TestEveryFlagHasATest(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	check(t, err)
	var calls strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		check(t, err)
		calls.Write(data)
	}
	text := calls.String()
	// Words of a call, in one string or as strings of their own.
	words := func(s string) bool {
		return regexp.MustCompile(`["\s` + "`" + `]` + regexp.QuoteMeta(s) + `["\s=,` + "`" + `]`).MatchString(text)
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() && child.Name() != "completion" {
				walk(child)
			}
		}
		if !cmd.Runnable() {
			return
		}
		if !words(cmd.Name()) {
			t.Errorf("no test calls %s", cmd.CommandPath())
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !words("--"+f.Name) && (f.Shorthand == "" || !words("-"+f.Shorthand)) {
				t.Errorf("no test calls %s --%s", cmd.CommandPath(), f.Name)
			}
		})
	}
	walk(newRoot())
}
