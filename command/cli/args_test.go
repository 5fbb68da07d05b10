package cli_test

import (
	"io"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Of a command whose usage line has flags with values, the first of these was said to be missing, also when it was
// given: "step --base debian" had no command, and "--base is missing" was the answer.
func TestNameArguments(t *testing.T) {
	for _, c := range []struct {
		use   string
		check cobra.PositionalArgs
		args  []string
		says  string
	}{
		{"step --base NAME -- COMMAND...", cobra.MinimumNArgs(1), nil, "COMMAND is missing"},
		{"step --base NAME -- COMMAND...", cobra.MinimumNArgs(1), []string{"a", "b"}, ""},
		{"compact FILE -o OUT", cobra.ExactArgs(1), nil, "FILE is missing"},
		{"compact FILE -o OUT", cobra.ExactArgs(1), []string{"a", "b"}, `unexpected argument "b"`},
		{"get FILE BUCKET... KEY", cobra.MinimumNArgs(3), []string{"a"}, "BUCKET is missing"},
		{"ls [NAME]", cobra.MaximumNArgs(1), []string{"a", "b"}, `unexpected argument "b"`},
	} {
		root := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(&cobra.Command{Use: c.use, Args: c.check, RunE: func(*cobra.Command, []string) error { return nil }})
		cli.NameArguments(root)
		root.SetArgs(append([]string{root.Commands()[0].Name()}, c.args...))
		root.SetOut(io.Discard)
		says := ""
		if err := root.Execute(); err != nil {
			says = err.Error()
		}
		if says != c.says {
			t.Errorf("%s %v: %q, and should be %q", c.use, c.args, says, c.says)
		}
	}
}
