package command

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
)

// Bounds on what a shell is offered: it asks after a key, and has to be answered at once.
const (
	completeTimeout = 100 * time.Millisecond
	maxCompleted    = 1000
)

// completeBuckets has the shell complete names of buckets for each command that takes
// some, as its usage line tells: "FILE BUCKET..." are files first, and then the path of a
// bucket. Everything else is completed as a file.
func (a *app) completeBuckets(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		a.completeBuckets(child)
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
func (a *app) bucketNames(files int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) < files {
			return nil, cobra.ShellCompDirectiveDefault
		}
		n := naming{bucketFormat: "ascii-encoded"}
		if f := cmd.Flags().Lookup("bucket-format"); f != nil {
			n.bucketFormat = f.Value.String()
		}
		// Of the path in this argument the last name is being written.
		in, before := args[files:], ""
		if i := lastSlash(begun); i >= 0 && !a.stock {
			before, begun = begun[:i+1], begun[i+1:]
			in = append(in[:len(in):len(in)], before[:i])
		}
		path, err := n.buckets(in)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		quick := *a
		quick.timeout = completeTimeout
		names, err := quick.namesIn(args[files-1], path, n.bucketFormat, begun)
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
func (a *app) namesIn(file string, path [][]byte, format, begun string) (names []string, err error) {
	err = a.view(file, false, func(_ *database, tx *holdfast.Tx) error {
		in, err := (&naming{bucketFormat: format}).find(a, file, tx, &path)
		if err != nil {
			return err
		}
		from := []byte(begun)
		written := format == "hex" || !a.stock && strings.Contains(begun, `\`) // not as names are in order
		if written {
			from = nil
		}
		in.bucketsFrom(from, maxLooked, func(name []byte) bool {
			text := pathName(name)
			switch {
			case format == "hex":
				text = formatBytes(name, "hex")
			case a.stock && !printable(name): // a name as it stands cannot be given so
				return len(names) < maxCompleted
			case a.stock:
				text = string(name)
			}
			switch {
			case strings.HasPrefix(text, begun):
				names = append(names, text)
			case !written && printable(name):
				return false // names are in order
			}
			return len(names) < maxCompleted
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

// completeShells has "completion", which cobra makes, fail as all other commands do.
func (a *app) completeShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		return
	}
	var shells []string
	for _, child := range cmd.Commands() {
		shells = append(shells, child.Name())
		child.RunE = a.action((*call).completionScript)
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return usagef("there is no completion for the shell %q; there is for %s", args[0], strings.Join(shells, ", "))
	}
}

// completionScript prints the script for the shell that the command has its name from.
func (c *call) completionScript() error {
	root := c.cmd.Root()
	plain, err := c.cmd.Flags().GetBool("no-descriptions")
	if err != nil {
		return err
	}
	switch c.cmd.Name() {
	case "bash":
		return root.GenBashCompletionV2(c.out, !plain)
	case "zsh":
		if plain {
			return root.GenZshCompletionNoDesc(c.out)
		}
		return root.GenZshCompletion(c.out)
	case "fish":
		return root.GenFishCompletion(c.out, !plain)
	case "powershell":
		if plain {
			return root.GenPowerShellCompletion(c.out)
		}
		return root.GenPowerShellCompletionWithDesc(c.out)
	}
	return usagef("there is no completion for the shell %q", c.cmd.Name())
}
