// Package command has the commands on database files, for programs that offer
// them under a command of their own.
package command

import (
	"github.com/spf13/cobra"

	"holdfast/command"
)

// NewRootCommand makes the command that all others are below. They take the
// arguments of bbolt's.
func NewRootCommand() *cobra.Command {
	return command.NewBboltCommand()
}
