// Package bench has the command bench, which times writing and reading as bbolt's command does.
package bench

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package for the root that a stands for.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{newBench(a)}
}
