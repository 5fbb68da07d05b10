package pages

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const stockPagesHelp = `Print a table of the pages of the file: number, type, how many elements there are
(of the freelist, how many free pages) and how many overflow pages. Free pages have a
line each; the overflow pages of others have none. Pages in which Holdfast records
free pages, and a freelist that only the older meta page names, are free for bbolt, and
here too.`

// newStockPages is pages in bbolt's shape.
func newStockPages(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "pages FILE",
		Short: "Print a table of the pages",
		Long:  stockPagesHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(runStockPages),
	}
}

func runStockPages(c *cli.Call) error {
	if c.JSON {
		return runPages(c, pagesFlags{rows: defaultRows})
	}
	return c.View(c.Args[0], true, func(d *cli.Database, tx *holdfast.Tx) error {
		slots, err := d.Metas()
		if err != nil {
			return err
		}
		freelist := slots.Meta[d.FileState().Slot].Freelist
		fmt.Fprint(c.Out, "ID       TYPE       ITEMS  OVRFLW\n======== ========== ====== ======\n")
		var damage damages
		err = tx.ForEachPage(func(r holdfast.PageRun) error {
			damage.add(r)
			if r.Kind == holdfast.PageRecord || r.Kind == holdfast.PageFreelist && r.ID != freelist {
				r.Kind = holdfast.PageFree
			}
			return stockRow(c, r)
		})
		if err != nil && !cli.IsDamage(err) {
			return err
		}
		return damage.err(err)
	})
}

// stockRow prints the pages of a run.
func stockRow(c *cli.Call, r holdfast.PageRun) error {
	row := func(id uint64, kind, items, overflow string) error {
		if err := c.Ctx.Err(); err != nil {
			return err
		}
		_, err := fmt.Fprintf(c.Out, "%-8d %-10s %-6s %-6s\n", id, kind, items, overflow)
		return err
	}
	first := uint64(r.ID)
	if r.Kind == holdfast.PageFree {
		for id := first; id < first+r.Pages; id++ {
			if err := row(id, string(holdfast.PageFree), "", ""); err != nil {
				return err
			}
		}
		return nil
	}
	overflow := ""
	if r.Pages > 1 {
		overflow = fmt.Sprint(r.Pages - 1)
	}
	items := ""
	if hasElements(r.Kind) || r.Kind == holdfast.PageMeta {
		items = fmt.Sprint(r.Elements)
	}
	return row(first, string(r.Kind), items, overflow)
}
