// Package inspect has the commands that tell of a database and its keys, and change nothing: info, check, stats,
// doctor, buckets, keys, get, top, readers, watch and env.
package inspect

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package for the root that a stands for.
func Commands(a *cli.App) []*cobra.Command {
	all := []*cobra.Command{newInfo(a), newCheck(a), newStats(a), newDoctor(a), newBuckets(a), newKeys(a), newGet(a)}
	if a.Stock {
		return all
	}
	return append(all, newTop(a), newReaders(a), newWatch(a), newEnv(a))
}
