package cli

import (
	"bytes"
	"context"
	"errors"
	"text/template"

	"github.com/spf13/cobra"
)

// Run executes root as its ExecuteContextC does. An error of printing help or the version is an
// *OutputError, and help for a command that does not exist is a usage error. The command must run only once.
func Run(ctx context.Context, root *cobra.Command) (*cobra.Command, error) {
	var lost error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := root.OutOrStdout()
		var text bytes.Buffer
		root.SetOut(&text)
		help(cmd, args)
		root.SetOut(out)
		if _, err := (Output{out}).Write(text.Bytes()); err != nil && !IsClosedPipe(err) {
			lost = err
		}
	})
	root.InitDefaultHelpCmd()
	for _, child := range root.Commands() {
		if child.Name() == "help" {
			child.Args = helpTopic
		}
	}
	version := root.VersionTemplate()
	root.SetVersionTemplate("{{/* printed below */}}")
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = lost
	}
	if on, none := root.Flags().GetBool("version"); err == nil && none == nil && on {
		err = printVersion(root, version)
	}
	return cmd, err
}

// printVersion prints what cobra does for the flag --version.
func printVersion(root *cobra.Command, text string) error {
	t, err := template.New("version").Parse(text)
	if err != nil {
		return err
	}
	err = t.Execute(Output{root.OutOrStdout()}, root)
	if IsClosedPipe(err) {
		return nil
	}
	return err
}

// helpTopic is an error if the arguments of help name no command.
func helpTopic(cmd *cobra.Command, args []string) error {
	topic, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) > 0 && topic.HasSubCommands() {
		err = UnknownCommand(topic, rest[0])
	}
	return err
}

// IsOutput tells whether err is that the output could not be written.
func IsOutput(err error) bool {
	var failed *OutputError
	return errors.As(err, &failed)
}
