// Package pages has the commands that look at the pages of a file as they are, damaged ones too: page, page-item,
// pages, dump and inspect. They change nothing.
package pages

import (
	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Commands are the commands of this package for the root that a stands for.
func Commands(a *cli.App) []*cobra.Command {
	pages := newPages
	if a.Stock {
		pages = newStockPages
	}
	return []*cobra.Command{pages(a), newPage(a), newPageItem(a), newDump(a), newInspect(a)}
}
