package repair

import (
	"fmt"
	"time"

	"holdfast/command/cli"
)

// printEstimate prints what there is to do, before it is begun.
func printEstimate(c *cli.Call, r *vacuumReport, worth bool) {
	if !worth {
		fmt.Fprintf(c.Out, "%s: nothing to do: about %s of %s can be given back (less than %s is not worth it)\n",
			r.File, cli.Size(r.GainEstimate), cli.Size(r.SizeBefore), cli.Size(vacuumLeast(r.SizeBefore)))
		return
	}
	fmt.Fprintf(c.Out, "%s: about %s of %s can be given back; about %s will be left\n",
		r.File, cli.Size(r.GainEstimate), cli.Size(r.SizeBefore), cli.Size(r.SizeEstimate))
	_ = c.Out.Flush() // what follows takes time; an error shows again when the command ends
}

// printVacuumed prints what was done, and what remains and why.
func printVacuumed(c *cli.Call, r *vacuumReport) {
	fmt.Fprintf(c.Out, "%s: %s -> %s, %s given back (%s)\n",
		r.File, cli.SizeExactly(r.SizeBefore), cli.SizeExactly(r.SizeAfter), cli.Size(r.GivenBack), cli.Percent(r.GivenBack, r.SizeBefore))
	fmt.Fprintf(c.Out, "%s written in %s, in %s; the longest step took %s\n",
		cli.Size(r.Written), cli.Plural(r.Steps, "step"), millis(r.DurationMS), cli.Briefly(time.Duration(r.LongestUS)*time.Microsecond))
	if r.SizeAfter-r.SizeEstimate < vacuumLeast(r.SizeEstimate) {
		return
	}
	switch more := cli.Size(r.SizeAfter - r.SizeEstimate); {
	case r.Stuck > 0:
		fmt.Fprintf(c.Out, "%s more than estimated remain: %s found no room at the front; `holdfast compact` writes a copy without it\n",
			more, cli.Plural(r.Stuck, "long value"))
	default:
		fmt.Fprintf(c.Out, "%s more than estimated remain; run it again\n", more)
	}
}

// millis writes a time for people.
func millis(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}
