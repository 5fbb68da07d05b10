package pages

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
)

const pageHelp = `Print what stands in pages: the fields of a meta page, with what Holdfast has put
after them; the elements of a branch or a leaf; the numbers on a freelist page; what
is in a record of free pages of Holdfast's. With each page come its overflow pages.

It reads the file as it is and needs no database that can be opened: a damaged page is
shown as far as it can be read, with what is wrong. Where neither meta page is whole
the page size is the one at which most pages are where they say that they are;
--page-size gives it where that fails.

Of a free page, what is printed is left from what it was before. Long values are cut
off, unless --%s or --json is given.`

// stockSeparator stands between pages in bbolt's output.
const stockSeparator = "===============================================\n"

type pageFlags struct {
	all      bool
	format   string
	pageSize int
}

func newPage(a *cli.App) *cobra.Command {
	var f pageFlags
	cmd := &cobra.Command{
		Use:   "page FILE PAGE... | FILE --all",
		Short: "Print what stands in pages, damaged ones too",
		Long:  fmt.Sprintf(pageHelp, valueFlag(a)),
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runPage(c, f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "print all pages up to the high-water mark")
	flags.StringVar(&f.format, valueFlag(a), "auto", "format of values in leaf pages: "+strings.Join(cli.OutputFormats, "|"))
	cli.AddPageSize(cmd, &f.pageSize)
	return cmd
}

// valueFlag is the flag of page that says how values are printed.
func valueFlag(a *cli.App) string {
	if a.Stock {
		return "format-value"
	}
	return "value-format" // as in all other commands
}

func runPage(c *cli.Call, f pageFlags) error {
	ids, err := parsePages(c.Args[1:])
	switch {
	case err != nil:
		return err
	case len(ids) == 0 && !f.all:
		return cli.ErrPageIDRequired
	case len(ids) > 0 && f.all:
		return cli.ErrInvalidPageArgs
	}
	if err := cli.CheckFormat(valueFlag(c.App), f.format, cli.OutputFormats); err != nil {
		return err
	}
	return withPages(c, c.Args[0], f.pageSize, func(file *pageFile) error {
		if f.all && file.pages == 0 {
			return file.noPage(0)
		}
		p := &pagePrinter{Call: c, file: file, format: f.format, cut: !c.Cmd.Flags().Changed(valueFlag(c.App))}
		switch {
		case c.Stock && !c.JSON && f.all:
			return p.stockAll()
		case c.Stock && !c.JSON:
			return p.stockPages(ids)
		}
		return p.print(ids, f.all)
	})
}

// parsePages reads page numbers. As with bbolt, empty ones are none.
func parsePages(args []string) (ids []page.ID, err error) {
	for _, arg := range args {
		if arg == "" {
			continue
		}
		id, err := parsePage(arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func parsePage(arg string) (page.ID, error) {
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return 0, cli.Usagef("%q is not a page number", arg)
	}
	return page.ID(n), nil
}

// pagePrinter prints pages one by one, so that a file of any size does.
type pagePrinter struct {
	*cli.Call
	file   *pageFile
	format string // of values
	cut    bool   // long values
	n      int    // pages printed
	damage damages
}

// stockPages prints pages as bbolt does. What cannot be read is said in its place, and
// is not an error.
func (p *pagePrinter) stockPages(ids []page.ID) error {
	for i, id := range ids {
		if i > 0 {
			fmt.Fprint(p.Out, stockSeparator)
		}
		if _, err := p.stockPage(id); err != nil {
			return err
		}
	}
	return nil
}

// stockAll goes from page to page by what each says of its overflow pages.
func (p *pagePrinter) stockAll() error {
	for id := page.ID(0); id < p.file.highWater; {
		if id > 0 {
			fmt.Fprint(p.Out, stockSeparator)
		}
		n, err := p.stockPage(id)
		if err != nil {
			return err
		}
		id += page.ID(n)
	}
	return nil
}

// stockPage prints one page and returns how many belong together. The error is one of
// the output, or that the command was ended.
func (p *pagePrinter) stockPage(id page.ID) (pages uint64, err error) {
	pages = 1
	shown := p.file.safely(func() error {
		v, e := p.file.view(id)
		if e != nil {
			return io.EOF // what bbolt says of it
		}
		if e := v.stockFault(); e != nil {
			return e
		}
		var unread error
		unread, err = p.stockContent(v)
		if unread == nil {
			pages = v.pages()
		}
		return unread
	})
	if err == nil && shown != nil {
		fmt.Fprintf(p.Out, "Prining page %d failed: %s. Continuing...\n", id, shown) // spelt so by bbolt
	}
	if err == nil {
		err = p.Ctx.Err()
	}
	return pages, err
}

// stockFault is why bbolt would print nothing of the page.
func (v *pageView) stockFault() error {
	switch n := v.header.Overflow; {
	case v.record != nil:
		return nil
	case v.header.ID != v.id:
		return fmt.Errorf("error: %w due to unexpected Page id: %d != %d", cli.ErrDamaged, v.header.ID, v.id)
	case uint64(n) >= uint64(v.file.pages-v.id):
		return fmt.Errorf("error: %w, Page claims to have %d overflow pages, and the file has %d pages", cli.ErrDamaged, n, v.file.pages)
	}
	return nil
}

// stockContent prints the page. unread is what could not be read of it.
func (p *pagePrinter) stockContent(v *pageView) (unread, err error) {
	w := p.Out
	id, kind, overflow := v.id, page.TypeName(v.header.Flags), uint64(v.header.Overflow)
	switch {
	case v.record != nil:
		id, kind, overflow = v.record.Start, kindRecord, v.pages()-1
	case !knownType(v.header.Flags):
		kind = fmt.Sprintf("unknown<%02x>", v.header.Flags)
	}
	fmt.Fprintf(w, "Page ID:    %d\nPage Type:  %s\nTotal Size: %d bytes\nOverflow pages: %d\n",
		id, kind, (overflow+1)*uint64(p.file.pageSize), overflow)
	switch {
	case v.record != nil:
		_, err = fmt.Fprintln(w)
		return nil, err
	case v.header.Flags == page.FlagMeta:
		m := readMeta(v.run)
		m.printStock(w)
		return nil, nil
	case v.kind == kindMeta || v.kind == kindUnknown:
		return nil, nil
	}
	fmt.Fprintf(w, "Item Count: %d\n", v.count)
	if v.kind == kindFreelist {
		fmt.Fprintf(w, "Overflow: %d\n", overflow)
	}
	fmt.Fprintln(w)
	if unread, err = p.stockItems(v); err != nil || unread != nil {
		return unread, err
	}
	_, err = fmt.Fprintln(w)
	return nil, err
}

func (p *pagePrinter) stockItems(v *pageView) (unread, err error) {
	for i := range v.fits {
		if err := p.Ctx.Err(); err != nil {
			return nil, err
		}
		if v.kind == kindFreelist {
			if _, err := fmt.Fprintln(p.Out, uint64(v.number(i))); err != nil {
				return nil, err
			}
			continue
		}
		e, unread := v.element(i)
		if unread != nil {
			return page.Corruptf(v.id, "element %d of %d %s", i, v.count, unread), nil
		}
		if unread, err := p.stockItem(v, e); unread != nil || err != nil {
			return unread, err
		}
	}
	if v.fits < v.count {
		return v.fault, nil
	}
	return nil, nil
}

func (p *pagePrinter) stockItem(v *pageView, e element) (unread, err error) {
	if err := cli.WriteKey(p.Out, e.key); err != nil {
		return nil, err
	}
	switch root, sequence, ok := e.bucketHeader(); {
	case v.kind == kindBranch:
		_, err = fmt.Fprintf(p.Out, ": <pgid=%d>\n", e.child)
	case e.bucket && !ok:
		fmt.Fprintln(p.Out)
		return page.Corruptf(v.id, "a bucket of %d bytes is shorter than its header", len(e.value)), nil
	case e.bucket:
		_, err = fmt.Fprintf(p.Out, ": <pgid=%d,seq=%d>\n", root, sequence)
	default:
		fmt.Fprint(p.Out, ": ")
		if err = cli.WriteBytes(p.Out, e.value, p.format); err == nil {
			_, err = fmt.Fprintln(p.Out)
		}
	}
	return nil, err
}

// print prints pages for people, or as JSON.
func (p *pagePrinter) print(ids []page.ID, all bool) error {
	for _, id := range ids {
		if id >= p.file.pages { // before anything is printed
			return p.file.noPage(id)
		}
	}
	p.file.loadFree()
	if err := p.begin(); err != nil {
		return err
	}
	var err error
	if all {
		err = p.printAll()
	} else {
		for _, id := range ids {
			if _, err = p.printPage(id); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	return p.damage.err(nil)
}

// printAll prints all pages, free ones that lie side by side together. So it does with
// zeros where no meta page tells what the end of the file is.
func (p *pagePrinter) printAll() error {
	for id := page.ID(0); id < p.file.highWater; {
		n := p.file.freeExtent(id)
		n.N = min(n.N, uint64(p.file.highWater-id))
		kind, err := kindFree, error(nil)
		if n.N == 0 && p.file.best < 0 && id >= page.FirstDataPage {
			kind = kindZeros
			err = p.file.safely(func() error { n.N = p.file.zeros(p.Ctx, id); return nil })
		}
		switch {
		case err != nil:
			n.N, err = p.printPage(id) // which says so
		case n.N > 0:
			err = p.printRun(kind, n)
		default:
			n.N, err = p.printPage(id)
		}
		if err != nil {
			return err
		}
		id += page.ID(n.N)
	}
	return nil
}

// printPage prints page id and returns how many pages belong together from there on. The
// error is not of the page: damage is kept for the end.
func (p *pagePrinter) printPage(id page.ID) (pages uint64, err error) {
	var v *pageView
	err = p.file.safely(func() (err error) {
		v, err = p.file.view(id)
		return err
	})
	var damage *page.CorruptError
	if errors.As(err, &damage) { // the system could not deliver the page
		v = &pageView{file: p.file, id: id, kind: kindUnknown, run: make([]byte, p.file.pageSize), fault: damage}
	} else if err != nil {
		return 0, err
	}
	if damage := v.damage(); damage != nil {
		p.damage.add(holdfast.PageRun{Err: damage})
	}
	if pages = v.pages(); v.record != nil {
		pages -= uint64(id - v.record.Start)
	}
	err = p.file.safely(func() error {
		if p.JSON {
			return p.printPageJSON(v)
		}
		return p.printPageText(v)
	})
	return pages, errors.Join(err, p.Ctx.Err())
}
