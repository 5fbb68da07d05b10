package command

import (
	"fmt"
	"time"
)

// printEstimate prints what there is to do, before it is begun.
func (c *call) printEstimate(r *vacuumReport, worth bool) {
	if !worth {
		fmt.Fprintf(c.out, "%s: nothing to do: about %s of %s can be given back (less than %s is not worth it)\n",
			r.File, size(r.GainEstimate), size(r.SizeBefore), size(vacuumLeast(r.SizeBefore)))
		return
	}
	fmt.Fprintf(c.out, "%s: about %s of %s can be given back; about %s will be left\n",
		r.File, size(r.GainEstimate), size(r.SizeBefore), size(r.SizeEstimate))
	_ = c.out.Flush() // what follows takes time; an error shows again when the command ends
}

// printVacuumed prints what was done, and what remains and why.
func (c *call) printVacuumed(r *vacuumReport) {
	fmt.Fprintf(c.out, "%s: %s -> %s, %s given back (%s)\n",
		r.File, sizeExactly(r.SizeBefore), sizeExactly(r.SizeAfter), size(r.GivenBack), percent(r.GivenBack, r.SizeBefore))
	fmt.Fprintf(c.out, "%s written in %s, in %s; the longest step took %s\n",
		size(r.Written), plural(r.Steps, "step"), millis(r.DurationMS), briefly(time.Duration(r.LongestUS)*time.Microsecond))
	if r.SizeAfter-r.SizeEstimate < vacuumLeast(r.SizeEstimate) {
		return
	}
	switch more := size(r.SizeAfter - r.SizeEstimate); {
	case r.Stuck > 0:
		fmt.Fprintf(c.out, "%s more than estimated remain: %s found no room at the front; `holdfast compact` writes a copy without it\n",
			more, plural(r.Stuck, "long value"))
	default:
		fmt.Fprintf(c.out, "%s more than estimated remain; run it again\n", more)
	}
}

// millis writes a time for people.
func millis(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}
