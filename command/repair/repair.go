// Package repair has the commands that mend a file: salvage, surgery, settle, reseal and vacuum.
package repair

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package for the root that a stands for.
func Commands(a *cli.App) []*cobra.Command {
	all := []*cobra.Command{newSalvage(a), newSurgery(a), newSettle(a), newReseal(a)}
	if a.Stock {
		return all
	}
	return append(all, newVacuum(a))
}
