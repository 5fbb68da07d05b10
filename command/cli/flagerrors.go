package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// PlainErrors has root and all commands below it say in plain words what is wrong with a flag, and which
// flag or command may have been meant.
func PlainErrors(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &UsageError{plainFlag(cmd, err)} })
	root.DisableSuggestions = true // it has its own, as the commands below it
}

// PlainUnknown is err, of running root; if it is that root, or a command below it, has no such command, with those
// that may have been meant.
func PlainUnknown(root *cobra.Command, err error) error {
	var name, path string
	if n, _ := fmt.Sscanf(err.Error(), "unknown command %q for %q", &name, &path); n < 2 {
		return err
	}
	cmd, _, findErr := root.Find(strings.Fields(strings.TrimPrefix(path, root.CommandPath())))
	if findErr != nil {
		return err
	}
	return UnknownCommand(cmd, name)
}

// UnknownCommand is the error of a command that cmd does not have.
func UnknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, child := range cmd.Commands() {
		if slices.Contains(child.SuggestFor, name) { // another tool's word, which need not look like ours
			return Usagef("unknown command %q for %q; similar: %s", name, cmd.CommandPath(), child.Name())
		}
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return Usagef("unknown command %q for %q%s", name, cmd.CommandPath(), similarTo(name, names, ""))
}

// similarTo says which names are like one that is wrong.
func similarTo(wrong string, names []string, before string) string {
	near := Similar(wrong, names)
	if len(near) == 0 {
		return ""
	}
	return "; similar: " + before + strings.Join(near, ", "+before)
}

// plainFlag is an error of parsing the flags of cmd, in plain words.
func plainFlag(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s %s: %w", invalid.GetFlag().Name, invalid.GetValue(), plainValue(invalid.GetFlag(), invalid.Unwrap()))
	case errors.As(err, &missing):
		f := missing.GetFlag()
		kind, _ := pflag.UnquoteUsage(f)
		return fmt.Errorf("--%s needs a value (%s)", f.Name, kind)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag -%s", unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		return fmt.Errorf("unknown flag --%s%s", unknown.GetSpecifiedName(), similarTo(unknown.GetSpecifiedName(), names, "--"))
	}
	return err
}

// plainValue is why a flag cannot have a value.
func plainValue(f *pflag.Flag, err error) error {
	if err == nil || !errors.Is(err, strconv.ErrSyntax) && !errors.Is(err, strconv.ErrRange) {
		return err
	}
	kind := f.Value.Type()
	whole := strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint")
	switch {
	case kind == "bool":
		return errors.New("neither true nor false")
	case whole && errors.Is(err, strconv.ErrRange):
		return errors.New("too large a number")
	case strings.HasPrefix(kind, "uint"):
		return errors.New("not a whole number of 0 or more")
	case whole:
		return errors.New("not a whole number")
	}
	return errors.New("not a number")
}

// WantsJSON tells whether the command line of root has --json, also one that is wrong before it.
func WantsJSON(root *cobra.Command) bool {
	if f := root.PersistentFlags().Lookup("json"); f == nil {
		return false
	} else if f.Changed {
		return f.Value.String() == "true"
	}
	args := os.Args[1:]
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}
