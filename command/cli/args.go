package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NameArguments has all commands below cmd say which argument is missing, or is one too many,
// where cobra gives numbers. bbolt leaves it at those.
func NameArguments(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		NameArguments(child)
		if child.Args == nil || child.HasSubCommands() && !strings.Contains(child.Use, " ") { // of groups cobra names what may be meant
			continue
		}
		check := child.Args
		child.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			needed, most := argumentsOf(cmd.Use)
			switch {
			case len(args) < len(needed):
				return Usagef("%s is missing", needed[len(args)])
			case most >= 0 && len(args) > most && !IsUsage(err):
				return Usagef("unexpected argument %q", args[most])
			}
			return err
		}
	}
}

// argumentsOf are the arguments that a usage line has: those that are needed, and how many there can
// be; -1: any number.
func argumentsOf(use string) (needed []string, most int) {
	use, _, _ = strings.Cut(use, " | ")
	words := slices.DeleteFunc(strings.Fields(use)[1:], func(word string) bool { return word == "--" })
	for i := 0; i < len(words); {
		if words[i][0] == '-' { // a flag with its value
			words = slices.Delete(words, i, min(i+2, len(words)))
		} else {
			i++
		}
	}
	for _, word := range words {
		name, repeated := strings.CutSuffix(strings.Trim(word, "[]"), "...")
		if word[0] != '[' {
			needed = append(needed, name)
		}
		if most++; repeated {
			most = -len(words)
		}
	}
	return needed, max(most, -1)
}
