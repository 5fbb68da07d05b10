// Package transfer has the commands that move keys and values: put, delete, import, export, diff and compact.
package transfer

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package for the root that a stands for.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{newPut(a), newDelete(a), newExport(a), newImport(a), newDiff(a), newCompact(a)}
}
