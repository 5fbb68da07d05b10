package command

import "github.com/spf13/cobra"

// pagesCommands are the commands of this package.
func (a *app) pagesCommands() []*cobra.Command {
	pages := a.newPages
	if a.stock {
		pages = a.newStockPages
	}
	return []*cobra.Command{pages(), a.newPage(), a.newPageItem(), a.newDump(), a.newInspect()}
}
