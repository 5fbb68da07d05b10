package inspect

import (
	"fmt"

	"holdfast/command/cli"
)

// printDoctor prints r in plain words.
func printDoctor(c *cli.Call, r *doctorReport) {
	fmt.Fprintln(c.Out, c.Paint(cli.Bold, r.File))
	unused := r.SizeBytes - r.HighWater*r.PageSize
	lines := [][2]string{
		{"  Size", cli.SizeExactly(r.SizeBytes)},
		{"  In use", fmt.Sprintf("%s in %s of %s; %s of that is filled (%s)",
			cli.Size(r.LiveBytes), cli.Plural(r.LivePages, "page"), cli.Size(r.PageSize), cli.Size(r.UsedBytes), cli.Percent(r.UsedBytes, r.LiveBytes))},
		{"  Free", fmt.Sprintf("%s in %s, %s of the file", cli.Size(r.FreeBytes), cli.Plural(r.FreePages, "page"), cli.Percent(r.FreeBytes, r.SizeBytes))},
	}
	if unused > 0 {
		lines = append(lines, [2]string{"  Never used", fmt.Sprintf("%s at the end, reserved for growth", cli.Size(unused))})
	}
	lines = append(lines,
		[2]string{"  Holds", fmt.Sprintf("%s in %s", cli.Plural(r.Keys, "key"), cli.Plural(r.Buckets, "bucket"))},
		[2]string{"  Free list", r.freeListText()},
		[2]string{"  Checked", r.checkedText() + ": no fault; " + r.Seals.String()})
	if r.InUseBy != nil {
		lines = append(lines, [2]string{"  Open", fmt.Sprintf("in %s, through which it was read", cli.Process(*r.InUseBy))})
	}
	if r.BboltBehind {
		lines = append(lines, [2]string{"  Not closed", c.Paint(cli.Yellow, "the last program to write it did not close it")})
		lines = append(lines, [2]string{"", "bbolt finds " + bboltText(c.App, &cli.StateReport{BboltBehind: true}, r.File)})
	}
	if r.Unflushed {
		lines = append(lines, [2]string{"  Not flushed", cli.NotFlushed})
	}
	for _, note := range r.Notes {
		lines = append(lines, [2]string{"  Note", c.Paint(cli.Yellow, note)})
	}
	cli.Rows(c.Out, lines...)
	printCommit(c, r)
	fmt.Fprintf(c.Out, "\n%s\n  would leave about %s and give back about %s (%s of the file)\n", c.Paint(cli.Bold, "Compaction"),
		cli.Size(r.CompactedBytes), cli.Size(r.GivenBackBytes), cli.Percent(r.GivenBackBytes, r.SizeBytes))
	printAdvice(c, r)
}

// checkedText says what was checked: which pages are free is known to the process that has the file open alone.
func (r *doctorReport) checkedText() string {
	if r.InUseBy != nil {
		return "all pages in use"
	}
	return "all pages in use, and what is recorded of free ones"
}

// freeListText says how an opening for writing gets to know which pages
// are free.
func (r *doctorReport) freeListText() string {
	scan := fmt.Sprintf("opening it for writing reads %s", cli.Plural(r.Commit.OpenScanPages, "page"))
	stored := fmt.Sprintf("stored, in %s", cli.Plural(r.FreelistPages, "page"))
	switch {
	case r.FreeRecorded && r.FreelistStored:
		return "recorded: opening the file needs no scan, also after a crash; for bbolt also " + stored
	case r.FreeRecorded:
		return "recorded: opening the file needs no scan, also after a crash; with bbolt " + scan
	case r.FreelistStored:
		return stored + ", as bbolt does: opening the file needs no scan; Holdfast's first commit records it"
	}
	return "not stored (NoFreelistSync): " + scan + ", until Holdfast has recorded it in a commit"
}

// printCommit prints what a commit costs under which engine and settings.
func printCommit(c *cli.Call, r *doctorReport) {
	where := "in a database without keys"
	if len(r.Commit.Bucket) > 0 {
		where = fmt.Sprintf("in bucket %s, which has the most", r.Commit.path)
	}
	m := &r.Commit
	fmt.Fprintf(c.Out, "\n%s, %s\n", c.Paint(cli.Bold, "A commit of one key writes"), where)
	cli.Rows(c.Out,
		[2]string{"  bbolt, default", fmt.Sprintf("%s in two flushes: %s of data, the whole freelist (%s), then the meta page",
			cli.Size(m.Bbolt), cli.Plural(m.PathPages, "page"), cli.Size(m.FreelistBytes))},
		[2]string{"  bbolt, NoFreelistSync", fmt.Sprintf("%s in two flushes: no freelist; but each open for writing reads %s",
			cli.Size(m.BboltNoFreelist), cli.Plural(m.OpenScanPages, "page"))},
		[2]string{"  Holdfast", fmt.Sprintf("%s in one flush: what it changed in the free list is recorded in the meta page; a freelist for bbolt is written on close (%s)",
			cli.Size(m.Holdfast), cli.Size(m.HoldfastCloseOnce))})
}

func printAdvice(c *cli.Call, r *doctorReport) {
	fmt.Fprintln(c.Out)
	share := cli.Percent(r.GivenBackBytes, r.SizeBytes)
	heavy := r.Commit.FreelistBytes >= freelistHeavy*r.Commit.BboltNoFreelist
	if len(r.Notes) > 0 { // all of them are of the last flush
		fmt.Fprintf(c.Out, "%s the note above. If there was no crash, do not go on before you know what damaged the file.\n", c.Paint(cli.Yellow, "First:"))
	}
	switch {
	case heavy && r.WorthIt:
		fmt.Fprintf(c.Out, "%s %s of what bbolt writes in such a commit is the list of free pages, and %s of the file is empty.\n",
			c.Paint(cli.Yellow, "Bloated."), cli.Percent(r.Commit.FreelistBytes, r.Commit.Bbolt), share)
	case r.WorthIt && r.halfFilled():
		fmt.Fprintf(c.Out, "%s compaction would give back %s.\n", c.Paint(cli.Yellow, "Half-filled pages:"), share)
	case r.WorthIt:
		fmt.Fprintf(c.Out, "%s %s of the file is not needed.\n", c.Paint(cli.Yellow, "Bloated."), share)
	case heavy:
		fmt.Fprintf(c.Out, "%s %s of what bbolt writes in such a commit is the list of free pages.\n",
			c.Paint(cli.Yellow, "Costly."), cli.Percent(r.Commit.FreelistBytes, r.Commit.Bbolt))
	case r.largeShare():
		fmt.Fprintf(c.Out, "%s Compaction would give back %s of the file, but that is only %s: too little to matter.\n",
			c.Paint(cli.Green, "Small."), share, cli.Size(r.GivenBackBytes))
	case len(r.Notes) > 0:
		fmt.Fprintf(c.Out, "%s Nothing else needs to be done.\n", c.Paint(cli.Green, "Healthy."))
	default:
		fmt.Fprintf(c.Out, "%s Nothing needs to be done.\n", c.Paint(cli.Green, "Healthy."))
	}
	if r.WorthIt {
		printNext(c, r)
	}
	if heavy {
		fmt.Fprintln(c.Out, "With Holdfast in place of bbolt the size of the freelist does not matter to commits.")
	}
	if r.program != nil {
		for _, note := range r.program.always {
			fmt.Fprintln(c.Out, note)
		}
		if r.WorthIt {
			for _, note := range r.program.notes {
				fmt.Fprintln(c.Out, note)
			}
		}
	}
}

// printNext prints the command lines to run, and what each way needs.
func printNext(c *cli.Call, r *doctorReport) {
	stop := "stop the program that uses the file, then run"
	switch p := r.program; {
	case p != nil && p.stop != "":
		stop = fmt.Sprintf("it is a database of %s; run", p.name)
	case p != nil:
		stop = fmt.Sprintf("it is a database of %s; stop %[1]s if it uses this file, then run", p.name)
	}
	fmt.Fprintf(c.Out, "Next: %s\n", stop)
	for _, line := range r.Next {
		fmt.Fprintf(c.Out, "  %s\n", line)
	}
	fmt.Fprintln(c.Out, "which works in place and needs next to no room on the disk. If you want a copy instead")
	for _, line := range r.NextCopy {
		fmt.Fprintf(c.Out, "  %s\n", line)
	}
	switch need := cli.Size(r.copyRoom()); {
	case r.DiskFree == nil:
		fmt.Fprintf(c.Out, "which needs up to %s of room on the disk.\n", need)
	case r.fits():
		fmt.Fprintf(c.Out, "which needs up to %s of room on the disk; %s are free.\n", need, cli.Size(*r.DiskFree))
	default:
		fmt.Fprintf(c.Out, "which needs up to %s of room on the disk, %s: only %s are free.\n", need, c.Paint(cli.Yellow, "and does not fit"), cli.Size(*r.DiskFree))
	}
}
