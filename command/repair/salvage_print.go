package repair

import (
	"fmt"
	"strings"

	"holdfast/command/cli"
	"holdfast/command/internal/salvaged"
	"holdfast/internal/salvage"
)

func printSalvage(c *cli.Call, src string, f salvageFlags, report *salvage.Report) error {
	r := salvaged.New(src, f.Path, report)
	if err := c.Report(r, func() { printSalvageText(c, r) }); err != nil {
		return err
	}
	if r.OK {
		return nil
	}
	return &salvageLoss{src, f.Path, c.Name()}
}

func printSalvageText(c *cli.Call, r *salvaged.Report) {
	state := "no meta page could be used"
	if r.Meta != nil {
		state = fmt.Sprintf("transaction %d, from meta page %d", *r.Tx, *r.Meta)
		if r.Older {
			state += ": an older state, as the root of the newest cannot be used"
		}
	}
	free := "not known"
	if r.Free != "" {
		free = "known from " + r.Free
	}
	cli.Rows(c.Out,
		[2]string{"State", state},
		[2]string{"Free pages", free},
		[2]string{"Pages", fmt.Sprintf("%s of %s, %s read", cli.Count(r.Pages), cli.SizeExactly(r.PageSize), cli.Count(r.PagesRead))})
	c.PrintList(len(r.Doubts), func(i int) string { return c.Paint(cli.Yellow, "in doubt:") + " " + r.Doubts[i] })
	c.PrintList(len(r.Notes), func(i int) string { return "note: " + r.Notes[i] })
	c.PrintList(len(r.Damage), func(i int) string {
		return fmt.Sprintf("%s %s", c.Paint(cli.Red, fmt.Sprintf("page %d:", r.Damage[i].Page)), r.Damage[i].Reason)
	})
	c.PrintList(len(r.Ranges), func(i int) string { return c.Paint(cli.Red, "lost:") + " " + r.Ranges[i].String() })
	c.PrintList(len(r.Elements), func(i int) string {
		return c.Paint(cli.Red, "lost:") + " " + r.Elements[i].String()
	})
	c.PrintList(len(r.Places), func(i int) string {
		p := r.Places[i]
		return fmt.Sprintf("%s/%s: %s of page %d: %s", r.FoundIn, p.Name, cli.PluralOf(p.Count, "key or bucket", "keys and buckets"), p.Page, p.Why)
	})
	printSaved(c, r)
}

func printSaved(c *cli.Call, r *salvaged.Report) {
	parts := []string{cli.Plural(r.Buckets, "bucket") + " and " + cli.Plural(r.Keys, "key")}
	if r.Found > 0 {
		parts = append(parts, cli.Count(r.Found)+" of them found in pages that nothing sound names")
	}
	if r.Unplaced > 0 {
		parts = append(parts, cli.Count(r.Unplaced)+" more in "+r.FoundIn)
	}
	if r.Conflicts > 0 {
		parts = append(parts, cli.PluralOf(r.Conflicts, "key was", "keys were")+" there already with another value and left out")
	}
	if r.Orphans > 0 {
		parts = append(parts, cli.Plural(r.Orphans, "page")+" that nothing names left out (--all saves them)")
	}
	fmt.Fprintf(c.Out, "saved into %s: %s\n", r.Output, strings.Join(parts, "; "))
	if r.OK {
		fmt.Fprintln(c.Out, c.Paint(cli.Green, "Nothing is lost: the copy holds all that the file does."))
	}
}
