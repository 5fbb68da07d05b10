package inspect

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	all := []*cobra.Command{newInfo(a), newCheck(a), newStats(a), newDoctor(a), newBuckets(a), newKeys(a), newGet(a)}
	if a.Stock {
		return all
	}
	return append(all, newTop(a), newEnv(a))
}
