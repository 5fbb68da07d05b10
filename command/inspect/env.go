package inspect

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const envHelp = `List the environment variables that Holdfast reads when a program opens a database,
with the values that they can have. They are for programs that cannot be given options,
as those that use Holdfast in the place of bbolt.

Shown is also what each is set to here. A program that runs already, or is started by
another user, may have others. A value that a variable cannot have makes opening fail;
this command then ends with exit code 1. Of a name that is nearly one of these, and set,
there is a note: nothing reads it.`

type envEntry struct {
	Name    string   `json:"name"`
	Values  []string `json:"values"`
	Meaning string   `json:"meaning"`
	Value   string   `json:"value"` // here; "" if it is not set
	Valid   bool     `json:"valid"`
}

func newEnv(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "List the environment variables that programs with Holdfast read",
		Long:  envHelp,
		Args:  cobra.NoArgs,
		RunE:  a.Action(runEnv),
	}
}

// noteMisspelt tells of variables that are set here and that nothing reads, but whose names are
// nearly those of others: they would do nothing, and nothing would say so.
func noteMisspelt(c *cli.Call) {
	const prefix = "HOLDFAST_" // by which all names would be similar
	var names []string
	for _, v := range holdfast.Environment() {
		names = append(names, strings.TrimPrefix(v.Name, prefix))
	}
	set := os.Environ()
	slices.Sort(set)
	for _, s := range set {
		name, _, _ := strings.Cut(s, "=")
		if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
			continue
		}
		rest, known := strings.CutPrefix(name, prefix)
		if known && slices.Contains(names, rest) {
			continue
		}
		if near := cli.Similar(name[len(prefix):], names); len(near) > 0 {
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: %s is set, which nothing reads; similar: %s\n", c.Name(), cli.Quoted(name), prefix+near[0])
		}
	}
}

func runEnv(c *cli.Call) error {
	noteMisspelt(c)
	entries := []envEntry{}
	var wrong error
	for _, v := range holdfast.Environment() {
		e := envEntry{Name: v.Name, Values: v.Values, Meaning: v.Meaning, Value: os.Getenv(v.Name)}
		err := v.Check(e.Value)
		if e.Valid = err == nil; !e.Valid && wrong == nil {
			wrong = err
		}
		entries = append(entries, e)
	}
	if c.JSON {
		if err := c.PrintJSON(map[string][]envEntry{"variables": entries}); err != nil {
			return err
		}
		return wrong
	}
	for i, e := range entries {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		set := "not set"
		switch {
		case !e.Valid:
			set = c.Paint(cli.Red, "set to "+e.Value+", which it cannot be")
		case e.Value != "":
			set = "set to " + e.Value
		}
		fmt.Fprintf(c.Out, "%s=%s  (%s)\n    %s\n", c.Paint(cli.Bold, e.Name), strings.Join(e.Values, "|"), set, e.Meaning)
	}
	return wrong
}

// environment is what a variable is set to, in the words in which env shows its values.
func environment(name string) string {
	for _, v := range holdfast.Environment() {
		if v.Name == name {
			return v.Canonical(os.Getenv(name))
		}
	}
	return ""
}
