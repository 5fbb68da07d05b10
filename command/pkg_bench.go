package command

import "github.com/spf13/cobra"

// benchCommands are the commands of this package.
func (a *app) benchCommands() []*cobra.Command {
	return []*cobra.Command{a.newBench()}
}
