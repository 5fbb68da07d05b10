package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

A value can be one for all databases of a program, or several separated by commas, each
with a pattern before it: full,mounts.db=periodic,/var/lib/buildkit/*=none. A pattern
without a slash is one of file names; with one it is one of whole paths, and a directory
that it matches stands for all below it. The last that matches counts.

Shown is what each is set to here, and for each DATABASE what that means for it. --pid
takes the environment of a process that runs already, and the databases that it has
open (Linux). What a program sets in its own code, such as NoSync, counts as well and is
not shown.

A value that a variable cannot have makes opening fail; this command then ends with exit
code 1. Of a name that is nearly one of these, and set, there is a note: nothing reads
it.`

type envEntry struct {
	Name    string   `json:"name"`
	Values  []string `json:"values"`
	Meaning string   `json:"meaning"`
	Value   string   `json:"value"` // here; "" if it is not set
	Valid   bool     `json:"valid"`
}

// envDatabase is what the variables say of a database.
type envDatabase struct {
	File     string            `json:"file"`
	Settings map[string]string `json:"settings"` // by variable; those that say something
}

type envReport struct {
	Variables []envEntry    `json:"variables"`
	Databases []envDatabase `json:"databases,omitempty"`
}

func newEnv(a *cli.App) *cobra.Command {
	pid := uint(0)
	cmd := &cobra.Command{
		Use:   "env [DATABASE...]",
		Short: "List the environment variables that programs with Holdfast read",
		Long:  envHelp,
		RunE:  a.Action(func(c *cli.Call) error { return runEnv(c, pid) }),
	}
	cmd.Flags().UintVar(&pid, "pid", 0, "show the environment of this process, and its open databases")
	return cmd
}

// environ is the environment of a process: a list of NAME=VALUE.
type environ []string

// get is the value of a variable; "" if it is not set.
func (e environ) get(name string) string {
	for _, s := range e {
		if n, value, _ := strings.Cut(s, "="); n == name {
			return value
		}
	}
	return ""
}

// noteMisspelt tells of variables that are set and that nothing reads, but whose names are
// nearly those of others: they would do nothing, and nothing would say so.
func noteMisspelt(c *cli.Call, set environ) {
	const prefix = "HOLDFAST_" // by which all names would be similar
	var names []string
	for _, v := range holdfast.Environment() {
		names = append(names, strings.TrimPrefix(v.Name, prefix))
	}
	for _, s := range slices.Sorted(slices.Values(set)) {
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

func runEnv(c *cli.Call, pid uint) error {
	set, get, files := environ(os.Environ()), os.Getenv, c.Args
	if pid != 0 {
		var err error
		if set, err = environOf(pid); err != nil {
			return processError(pid, err)
		}
		get = set.get
		if len(files) == 0 {
			if files, err = databasesOf(pid); err != nil {
				return processError(pid, err)
			}
		}
	}
	noteMisspelt(c, set)
	r, wrong := reportEnv(get, files)
	if c.JSON {
		if err := c.PrintJSON(r); err != nil {
			return err
		}
		return wrong
	}
	if pid == 0 && len(files) == 0 {
		r.printVariables(c)
	} else {
		r.printDatabases(c)
	}
	return wrong
}

// processError is err of reading what the system tells of a process, with what to do.
func processError(pid uint, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no process %d: %w", pid, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("process %d belongs to another user; ask as that one, or as root: %w", pid, err)
	}
	return err
}

// reportEnv is what the variables are set to, by get, and say of files. wrong is the first of what they cannot be set to.
func reportEnv(get func(name string) string, files []string) (r envReport, wrong error) {
	r.Variables = []envEntry{}
	for _, v := range holdfast.Environment() {
		e := envEntry{Name: v.Name, Values: v.Values, Meaning: v.Meaning, Value: get(v.Name)}
		err := v.Check(e.Value)
		if e.Valid = err == nil; !e.Valid && wrong == nil {
			wrong = err
		}
		r.Variables = append(r.Variables, e)
	}
	for _, file := range files {
		d := envDatabase{File: file, Settings: map[string]string{}}
		for _, v := range holdfast.Environment() {
			if value, err := v.For(get(v.Name), file); err == nil && value != "" {
				d.Settings[v.Name] = value
			}
		}
		r.Databases = append(r.Databases, d)
	}
	return r, wrong
}

func (r *envReport) printVariables(c *cli.Call) {
	for i, e := range r.Variables {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		text := "not set"
		switch {
		case !e.Valid:
			text = c.Paint(cli.Red, "set to "+e.Value+", which it cannot be")
		case e.Value != "":
			text = "set to " + e.Value
		}
		fmt.Fprintf(c.Out, "%s=%s  (%s)\n    %s\n", c.Paint(cli.Bold, e.Name), strings.Join(e.Values, "|"), text, e.Meaning)
	}
}

func (r *envReport) printDatabases(c *cli.Call) {
	if len(r.Databases) == 0 {
		fmt.Fprintln(c.Out, "The process has no database open.")
	}
	for i, d := range r.Databases {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		fmt.Fprintln(c.Out, c.Paint(cli.Bold, cli.Quoted(d.File)))
		if len(d.Settings) == 0 {
			fmt.Fprintln(c.Out, "    no variable says anything of it")
		}
		for _, name := range slices.Sorted(maps.Keys(d.Settings)) {
			fmt.Fprintf(c.Out, "    %s=%s\n", name, cli.Quoted(d.Settings[name]))
		}
	}
}

// environment is what a variable is set to here for a database, in the words in which env shows its values.
func environment(name, file string) string {
	for _, v := range holdfast.Environment() {
		if v.Name == name {
			value, _ := v.For(os.Getenv(name), file)
			return value
		}
	}
	return ""
}
