package command

import "github.com/spf13/cobra"

// inspectCommands are the commands of this package.
func (a *app) inspectCommands() []*cobra.Command {
	all := []*cobra.Command{a.newInfo(), a.newCheck(), a.newStats(), a.newDoctor(), a.newBuckets(), a.newKeys(), a.newGet()}
	if a.stock {
		return all
	}
	return append(all, a.newTop(), a.newEnv())
}
