package command

import (
	"fmt"
)

// printDoctor prints r in plain words.
func (c *call) printDoctor(r *doctorReport) {
	fmt.Fprintln(c.out, c.paint(bold, r.File))
	unused := r.SizeBytes - r.HighWater*r.PageSize
	lines := [][2]string{
		{"  Size", sizeExactly(r.SizeBytes)},
		{"  In use", fmt.Sprintf("%s in %s of %s; %s of that is filled (%s)",
			size(r.LiveBytes), plural(r.LivePages, "page"), size(r.PageSize), size(r.UsedBytes), percent(r.UsedBytes, r.LiveBytes))},
		{"  Free", fmt.Sprintf("%s in %s, %s of the file", size(r.FreeBytes), plural(r.FreePages, "page"), percent(r.FreeBytes, r.SizeBytes))},
	}
	if unused > 0 {
		lines = append(lines, [2]string{"  Never used", fmt.Sprintf("%s at the end, reserved for growth", size(unused))})
	}
	lines = append(lines,
		[2]string{"  Holds", fmt.Sprintf("%s in %s", plural(r.Keys, "key"), plural(r.Buckets, "bucket"))},
		[2]string{"  Free list", r.freeListText()},
		[2]string{"  Checked", "all pages in use, and what is recorded of free ones: no fault; " + r.Seals.String()})
	if r.BboltBehind {
		lines = append(lines, [2]string{"  Not closed", c.paint(yellow, "the last program to write it did not close it")})
		lines = append(lines, [2]string{"", "bbolt finds " + c.bboltText(&stateReport{BboltBehind: true}, r.File)})
	}
	if r.Unflushed {
		lines = append(lines, [2]string{"  Not flushed", notFlushed})
	}
	for _, note := range r.Notes {
		lines = append(lines, [2]string{"  Note", c.paint(yellow, note)})
	}
	rows(c.out, lines...)
	c.printCommit(r)
	fmt.Fprintf(c.out, "\n%s\n  would leave about %s and give back about %s (%s of the file)\n", c.paint(bold, "Compaction"),
		size(r.CompactedBytes), size(r.GivenBackBytes), percent(r.GivenBackBytes, r.SizeBytes))
	c.printAdvice(r)
}

// freeListText says how an opening for writing gets to know which pages
// are free.
func (r *doctorReport) freeListText() string {
	scan := fmt.Sprintf("opening it for writing reads %s", plural(r.Commit.OpenScanPages, "page"))
	stored := fmt.Sprintf("stored, in %s", plural(r.FreelistPages, "page"))
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
func (c *call) printCommit(r *doctorReport) {
	where := "in a database without keys"
	if len(r.Commit.Bucket) > 0 {
		where = fmt.Sprintf("in bucket %s, which has the most", r.Commit.path)
	}
	m := &r.Commit
	fmt.Fprintf(c.out, "\n%s, %s\n", c.paint(bold, "A commit of one key writes"), where)
	rows(c.out,
		[2]string{"  bbolt, default", fmt.Sprintf("%s in two flushes: %s of data, the whole freelist (%s), then the meta page",
			size(m.Bbolt), plural(m.PathPages, "page"), size(m.FreelistBytes))},
		[2]string{"  bbolt, NoFreelistSync", fmt.Sprintf("%s in two flushes: no freelist; but each open for writing reads %s",
			size(m.BboltNoFreelist), plural(m.OpenScanPages, "page"))},
		[2]string{"  Holdfast", fmt.Sprintf("%s in one flush: what it changed in the free list is recorded in the meta page; a freelist for bbolt is written on close (%s)",
			size(m.Holdfast), size(m.HoldfastCloseOnce))})
}

func (c *call) printAdvice(r *doctorReport) {
	fmt.Fprintln(c.out)
	share := percent(r.GivenBackBytes, r.SizeBytes)
	heavy := r.Commit.FreelistBytes >= freelistHeavy*r.Commit.BboltNoFreelist
	if len(r.Notes) > 0 { // all of them are of the last flush
		fmt.Fprintf(c.out, "%s the note above. If there was no crash, do not go on before you know what damaged the file.\n", c.paint(yellow, "First:"))
	}
	switch {
	case heavy && r.WorthIt:
		fmt.Fprintf(c.out, "%s %s of what bbolt writes in such a commit is the list of free pages, and %s of the file is empty.\n",
			c.paint(yellow, "Bloated."), percent(r.Commit.FreelistBytes, r.Commit.Bbolt), share)
	case r.WorthIt && r.halfFilled():
		fmt.Fprintf(c.out, "%s compaction would give back %s.\n", c.paint(yellow, "Half-filled pages:"), share)
	case r.WorthIt:
		fmt.Fprintf(c.out, "%s %s of the file is not needed.\n", c.paint(yellow, "Bloated."), share)
	case heavy:
		fmt.Fprintf(c.out, "%s %s of what bbolt writes in such a commit is the list of free pages.\n",
			c.paint(yellow, "Costly."), percent(r.Commit.FreelistBytes, r.Commit.Bbolt))
	case r.largeShare():
		fmt.Fprintf(c.out, "%s Compaction would give back %s of the file, but that is only %s: too little to matter.\n",
			c.paint(green, "Small."), share, size(r.GivenBackBytes))
	case len(r.Notes) > 0:
		fmt.Fprintf(c.out, "%s Nothing else needs to be done.\n", c.paint(green, "Healthy."))
	default:
		fmt.Fprintf(c.out, "%s Nothing needs to be done.\n", c.paint(green, "Healthy."))
	}
	if r.WorthIt {
		c.printNext(r)
	}
	if heavy {
		fmt.Fprintln(c.out, "With Holdfast in place of bbolt the size of the freelist does not matter to commits.")
	}
	if r.program != nil {
		for _, note := range r.program.always {
			fmt.Fprintln(c.out, note)
		}
		if r.WorthIt {
			for _, note := range r.program.notes {
				fmt.Fprintln(c.out, note)
			}
		}
	}
}

// printNext prints the command lines to run, and what each way needs.
func (c *call) printNext(r *doctorReport) {
	stop := "stop the program that uses the file, then run"
	switch p := r.program; {
	case p != nil && p.stop != "":
		stop = fmt.Sprintf("it is a database of %s; run", p.name)
	case p != nil:
		stop = fmt.Sprintf("it is a database of %s; stop %[1]s if it uses this file, then run", p.name)
	}
	fmt.Fprintf(c.out, "Next: %s\n", stop)
	for _, line := range r.Next {
		fmt.Fprintf(c.out, "  %s\n", line)
	}
	fmt.Fprintln(c.out, "which works in place and needs next to no room on the disk. If you want a copy instead")
	for _, line := range r.NextCopy {
		fmt.Fprintf(c.out, "  %s\n", line)
	}
	switch need := size(r.copyRoom()); {
	case r.DiskFree == nil:
		fmt.Fprintf(c.out, "which needs up to %s of room on the disk.\n", need)
	case r.fits():
		fmt.Fprintf(c.out, "which needs up to %s of room on the disk; %s are free.\n", need, size(*r.DiskFree))
	default:
		fmt.Fprintf(c.out, "which needs up to %s of room on the disk, %s: only %s are free.\n", need, c.paint(yellow, "and does not fit"), size(*r.DiskFree))
	}
}
