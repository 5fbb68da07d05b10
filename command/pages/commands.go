package pages

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	pages := newPages
	if a.Stock {
		pages = newStockPages
	}
	return []*cobra.Command{pages(a), newPage(a), newPageItem(a), newDump(a), newInspect(a)}
}
