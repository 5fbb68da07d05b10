package bench

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{newBench(a)}
}
