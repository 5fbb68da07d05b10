package command

import "github.com/spf13/cobra"

// repairCommands are the commands of this package.
func (a *app) repairCommands() []*cobra.Command {
	all := []*cobra.Command{a.newSalvage(), a.newSurgery(), a.newSettle(), a.newReseal()}
	if a.stock {
		return all
	}
	return append(all, a.newVacuum())
}
