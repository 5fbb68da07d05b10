package pages

import (
	"fmt"
	"io"

	"holdfast/command/cli"
	"holdfast/internal/page"
)

// printRun prints a run of pages of which it is known only what they are.
func (p *pagePrinter) printRun(kind string, e page.Extent) error {
	if p.JSON {
		return p.printRunJSON(kind, e)
	}
	p.next()
	_, err := fmt.Fprintf(p.Out, "Page %d  %s\n", e.Start, p.Paint(cli.Bold, kind))
	cli.Rows(p.Out, [2]string{"  Pages", p.pagesText(e.Start, e.N)})
	return err
}

// next begins a page.
func (p *pagePrinter) next() {
	if p.n++; p.n > 1 {
		fmt.Fprintln(p.Out)
	}
}

// pagesText says how many pages there are and where.
func (p *pagePrinter) pagesText(first page.ID, n uint64) string {
	pageSize := uint64(p.file.pageSize)
	return fmt.Sprintf("%s (%s) at byte %s", cli.Count(n), cli.Size(int64(n*pageSize)), cli.Count(uint64(first)*pageSize))
}

// printPageText prints a page for people.
func (p *pagePrinter) printPageText(v *pageView) error {
	p.next()
	kind := v.kind
	if kind == kindUnknown {
		kind = page.TypeName(v.header.Flags)
	}
	fmt.Fprintf(p.Out, "Page %d  %s\n", v.id, p.Paint(cli.Bold, kind))
	first := v.id
	if v.record != nil {
		first = v.record.Start
	}
	lines := [][2]string{{"Pages", p.pagesText(first, v.pages())}}
	if use := v.use(); use != "" {
		lines = append(lines, [2]string{"In use", use})
	}
	if v.fault != nil {
		lines = append(lines, [2]string{"Fault", p.Paint(cli.Red, faultText(v.fault))})
	}
	switch {
	case v.record != nil:
		lines = append(lines, v.recordRows()...)
	case v.kind == kindMeta:
		lines = append(lines, v.meta.rows(p.Call, p.file.best == int(v.id))...)
	case v.kind == kindFreelist:
		lines = append(lines, [2]string{"Free pages", cli.Count(v.count)})
	case v.kind != kindUnknown:
		lines = append(lines, [2]string{"Elements", v.elementsText()})
	}
	if seal := v.seal(); seal != "" {
		lines = append(lines, [2]string{"Seal", p.sealText(seal)})
	}
	for i := range lines {
		lines[i][0] = "  " + lines[i][0]
	}
	cli.Rows(p.Out, lines...)
	return p.printItems(v)
}

// use says why a page is not in use; "" if it is, or if that is not known.
func (v *pageView) use() string {
	switch {
	case v.id >= v.file.highWater:
		return "no: past the high-water mark"
	case v.free.N > 0:
		return "no: free; what is on it is from before"
	}
	return ""
}

// faultText is a fault without the number of the page.
func faultText(err error) string {
	if damage, ok := err.(*page.CorruptError); ok {
		return damage.Reason
	}
	return err.Error()
}

func (v *pageView) elementsText() string {
	used := uint64(page.HeaderSize) + v.fits*page.LeafElementSize
	for i := range v.fits {
		if e, err := v.element(i); err == nil {
			used += uint64(len(e.key) + len(e.value))
		}
	}
	return fmt.Sprintf("%s, %s used (%s)", cli.Count(v.count), cli.Size(int64(used)), cli.Percent(int64(used), int64(len(v.run))))
}

func (p *pagePrinter) sealText(seal string) string {
	switch seal {
	case sealMissing:
		return "missing: bbolt wrote the page"
	case sealNoRoom:
		return "none: the page has no room for it"
	case sealWrong:
		return p.Paint(cli.Red, seal)
	}
	return seal
}

func (v *pageView) recordRows() [][2]string {
	what := "snapshot: all pages that were free when it was made"
	if v.record.log > 0 {
		what = fmt.Sprintf("log %d: what commits changed since", v.record.log)
	}
	sum := "right"
	if v.fault != nil {
		sum = "wrong"
	}
	return [][2]string{
		{"Record", what},
		{"Named by", fmt.Sprintf("meta page %d", v.record.slot)},
		{"Length", fmt.Sprintf("%s bytes", cli.Count(uint64(v.record.Bytes)))},
		{"Checksum", sum},
	}
}

// printItems prints what the page holds, a line each.
func (p *pagePrinter) printItems(v *pageView) error {
	if v.record != nil && v.fault == nil {
		err := v.changes(func(ch recordChange) error {
			word := "taken"
			if ch.put {
				word = "free"
			}
			_, err := fmt.Fprintf(p.Out, "  %-5s  %s\n", word, extentText(ch.Extent))
			return err
		})
		if err != nil && !cli.IsDamage(err) && !cli.IsClosedPipe(err) {
			_, err = fmt.Fprintf(p.Out, "  %s\n", p.Paint(cli.Red, err.Error()))
		}
		return err
	}
	if v.record != nil || v.kind == kindMeta || v.kind == kindUnknown {
		return nil
	}
	digits := len(fmt.Sprint(v.fits))
	for i := range v.fits {
		if err := p.Ctx.Err(); err != nil {
			return err
		}
		if v.kind == kindFreelist {
			run := page.Extent{Start: v.number(i), N: 1}
			if i > 0 && v.number(i-1)+1 == run.Start {
				continue // printed with its run
			}
			for i+run.N < v.fits && v.number(i+run.N) == run.End() {
				run.N++
			}
			if _, err := fmt.Fprintf(p.Out, "  %s\n", extentText(run)); err != nil {
				return err
			}
			continue
		}
		if err := p.printElement(v, i, digits); err != nil {
			return err
		}
	}
	return nil
}

func extentText(e page.Extent) string {
	if e.N == 1 {
		return fmt.Sprint(e.Start)
	}
	return fmt.Sprintf("%d-%d", e.Start, e.End()-1)
}

func (p *pagePrinter) printElement(v *pageView, i uint64, digits int) error {
	fmt.Fprintf(p.Out, "  %*d  ", digits, i)
	e, err := v.element(i)
	if err != nil {
		_, err = fmt.Fprintf(p.Out, "%s\n", p.Paint(cli.Red, err.Error()))
		return err
	}
	if err := cli.WriteKey(p.Out, e.key); err != nil {
		return err
	}
	fmt.Fprint(p.Out, ": ")
	switch {
	case v.kind == kindBranch:
		fmt.Fprintf(p.Out, "page %d", e.child)
	case e.bucket:
		fmt.Fprint(p.Out, e.bucketText())
	case p.cut:
		err = cli.WriteCut(p.Out, e.value)
	default:
		err = cli.WriteBytes(p.Out, e.value, p.format)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.Out, "\n")
	return err
}

// bucketText says what a bucket is.
func (e *element) bucketText() string {
	root, sequence, ok := e.bucketHeader()
	switch {
	case !ok:
		return fmt.Sprintf("bucket of %s, shorter than its header", cli.Plural(len(e.value), "byte"))
	case root == 0:
		return fmt.Sprintf("bucket, inline, sequence %d", sequence)
	}
	return fmt.Sprintf("bucket in page %d, sequence %d", root, sequence)
}
