package command

import "github.com/spf13/cobra"

// pagesCommands are the commands of this package.
func (a *app) pagesCommands() []*cobra.Command {
	pages := (*app).newPages
	if a.stock {
		pages = (*app).newStockPages
	}
	return []*cobra.Command{pages(a), a.newPage(), a.newPageItem(), a.newDump(), a.newInspect()}
}
