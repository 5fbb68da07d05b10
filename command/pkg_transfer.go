package command

import "github.com/spf13/cobra"

// transferCommands are the commands of this package.
func (a *app) transferCommands() []*cobra.Command {
	return []*cobra.Command{a.newPut(), a.newDelete(), a.newExport(), a.newImport(), a.newDiff(), a.newCompact()}
}
