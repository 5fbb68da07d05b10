package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
)

// Bounds on what a shell is offered: it asks after a key, and has to be answered at once.
const (
	CompleteTimeout = 100 * time.Millisecond
	MaxCompleted    = 1000
)

// CompleteBuckets has the shell complete names of buckets for each command that takes
// some, as its usage line tells: "FILE BUCKET..." are files first, and then the path of a
// bucket. Everything else is completed as a file.
func (a *App) CompleteBuckets(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		a.CompleteBuckets(child)
	}
	words := strings.Fields(cmd.Use)
	for i, word := range words {
		if word == "|" { // the words after it are another way to call it
			return
		}
		if i > 0 && strings.Contains(word, "BUCKET") {
			cmd.ValidArgsFunction = a.bucketNames(i - 1)
			return
		}
	}
}

// bucketNames offers the buckets in that of which the path is given after so many files.
func (a *App) bucketNames(files int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) < files {
			return nil, cobra.ShellCompDirectiveDefault
		}
		n := Naming{BucketFormat: "ascii-encoded"}
		if f := cmd.Flags().Lookup("bucket-format"); f != nil {
			n.BucketFormat = f.Value.String()
		}
		// Of the path in this argument the last name is being written.
		in, before := args[files:], ""
		if i := lastSlash(begun); i >= 0 && !a.Stock {
			before, begun = begun[:i+1], begun[i+1:]
			in = append(in[:len(in):len(in)], before[:i])
		}
		path, err := n.Buckets(in)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		quick := *a
		quick.Timeout, quick.Quiet = CompleteTimeout, true
		names, err := quick.namesIn(args[files-1], path, n.BucketFormat, begun)
		if err != nil { // it cannot be told here; running the command tells
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range names {
			names[i] = before + names[i]
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesIn lists the buckets in the one at path whose names begin with begun, as the
// command line takes them in that format.
func (a *App) namesIn(file string, path [][]byte, format, begun string) (names []string, err error) {
	err = a.View(file, false, func(_ *Database, tx *holdfast.Tx) error {
		in, err := (&Naming{BucketFormat: format}).Find(a, file, tx, &path)
		if err != nil {
			return err
		}
		from := []byte(begun)
		written := format == "hex" || !a.Stock && strings.Contains(begun, `\`) // not as names are in order
		if written {
			from = nil
		}
		in.bucketsFrom(from, maxLooked, func(name []byte) bool {
			text := PathName(name)
			switch {
			case format == "hex":
				text = FormatBytes(name, "hex")
			case a.Stock && !Printable(name): // a name as it stands cannot be given so
				return len(names) < MaxCompleted
			case a.Stock:
				text = string(name)
			}
			switch {
			case strings.HasPrefix(text, begun):
				names = append(names, text)
			case !written && Printable(name):
				return false // names are in order
			}
			return len(names) < MaxCompleted
		})
		return tx.Err()
	})
	return names, err
}

// lastSlash is where the last slash of a path is that stands between names; -1: there is none.
func lastSlash(path string) int {
	last := -1
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '\\':
			i++
		case '/':
			last = i
		}
	}
	return last
}

// CompleteShells has "completion", which cobra makes, fail as all other commands do.
func (a *App) CompleteShells(root *cobra.Command) {
	for _, child := range RefuseShells(root) {
		child.RunE = a.Action((*Call).completionScript)
	}
}

// RefuseShells has "completion", which cobra makes, fail for a shell that it does not know. Its result are the commands
// for the others.
func RefuseShells(root *cobra.Command) []*cobra.Command {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		return nil
	}
	var shells []string
	for _, child := range cmd.Commands() {
		shells = append(shells, child.Name())
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return Usagef("there is no completion for the shell %q; there is for %s", args[0], strings.Join(shells, ", "))
	}
	return cmd.Commands()
}

// completionScript prints the script for the shell that the command has its name from.
func (c *Call) completionScript() error {
	root := c.Cmd.Root()
	plain, err := c.Cmd.Flags().GetBool("no-descriptions")
	if err != nil {
		return err
	}
	switch c.Cmd.Name() {
	case "bash":
		return root.GenBashCompletionV2(c.Out, !plain)
	case "zsh":
		if plain {
			return root.GenZshCompletionNoDesc(c.Out)
		}
		return root.GenZshCompletion(c.Out)
	case "fish":
		return root.GenFishCompletion(c.Out, !plain)
	case "powershell":
		if plain {
			return root.GenPowerShellCompletion(c.Out)
		}
		return root.GenPowerShellCompletionWithDesc(c.Out)
	}
	return Usagef("there is no completion for the shell %q", c.Cmd.Name())
}
