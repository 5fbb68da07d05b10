package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const pagesHelp = `List what the pages of the file are, in their order: the number of the first page,
its type, how many pages belong together (a page with its overflow pages, or free
pages that lie side by side), and for pages of buckets the elements and the bytes that
are used.

With --map the file is drawn as a map instead: each cell stands for so many pages that
all of it fits, from the front of the file to its end, and shows what most of the pages
in use there are. So it shows where free pages lie, and whether they lie at the end.

Types: meta; branch and leaf, the pages of buckets; freelist, the free pages as bbolt
stores them; record, the same as Holdfast records them; free; damaged, in use and
unreadable; unknown, in use or free, where damage hides which.

It reads all pages that are not free, except large values, and changes no byte. It
shows what a page says of itself; "holdfast check" tells whether the pages fit each
other.`

// pageTypes are the types of pages, in the order in which the map explains them.
var pageTypes = []holdfast.PageKind{
	holdfast.PageMeta, holdfast.PageBranch, holdfast.PageLeaf, holdfast.PageFreelist, holdfast.PageRecord,
	holdfast.PageFree, holdfast.PageDamaged, holdfast.PageUnknown,
}

type pagesFlags struct {
	types       []string
	asMap       bool
	width, rows int
}

func newPages(a *cli.App) *cobra.Command {
	var f pagesFlags
	cmd := &cobra.Command{
		Use:   "pages FILE",
		Short: "List the pages, or draw the file as a map",
		Long:  pagesHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runPages(c, f) }),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.types, "type", nil, "list only pages of these types: "+typeNames("|"))
	flags.BoolVar(&f.asMap, "map", false, "draw the file as a map")
	flags.IntVar(&f.width, "width", 0, "cells in a row of the map; 0: as many as the terminal shows, 64 if there is none")
	flags.IntVar(&f.rows, "rows", defaultRows, "rows of the map at most")
	return cmd
}

func typeNames(separator string) string {
	var names []string
	for _, t := range pageTypes {
		names = append(names, string(t))
	}
	return strings.Join(names, separator)
}

func runPages(c *cli.Call, f pagesFlags) error {
	if err := checkPagesFlags(c, f); err != nil {
		return err
	}
	if f.asMap {
		return drawMap(c, f)
	}
	return c.View(c.Args[0], false, func(d *cli.Database, tx *holdfast.Tx) error {
		list := pageList{Call: c, pageSize: int64(d.Info().PageSize)}
		list.digits = len(fmt.Sprint(tx.Size() / list.pageSize))
		var damage damages
		list.begin()
		err := tx.ForEachPage(func(r holdfast.PageRun) error {
			damage.add(r)
			if len(f.types) > 0 && !slices.Contains(f.types, string(r.Kind)) {
				return c.Ctx.Err()
			}
			return list.add(r)
		})
		if err != nil && !cli.IsDamage(err) {
			return err
		}
		list.end()
		return damage.err(err)
	})
}

func checkPagesFlags(c *cli.Call, f pagesFlags) error {
	for _, name := range f.types {
		if !slices.Contains(pageTypes, holdfast.PageKind(name)) {
			return cli.Usagef("--type: no pages are of type %q; there are %s", name, typeNames(", "))
		}
	}
	changed := c.Cmd.Flags().Changed
	switch {
	case f.asMap && changed("type"):
		return cli.Usagef("--type is for the list, not for --map")
	case !f.asMap && (changed("width") || changed("rows")):
		return cli.Usagef("--width and --rows are for --map")
	case f.width < 0 || f.width > maxWidth:
		return cli.Usagef("--width: %d is outside of 1 to %d (0: as wide as the terminal)", f.width, maxWidth)
	case f.rows < 1 || f.rows > maxRows:
		return cli.Usagef("--rows: %d is outside of 1 to %d", f.rows, maxRows)
	}
	return nil
}

// damages are the damaged pages that were met.
type damages struct {
	first *holdfast.CorruptError
	more  int
}

func (d *damages) add(r holdfast.PageRun) {
	switch {
	case r.Err == nil:
	case d.first == nil:
		d.first = r.Err
	default:
		d.more++
	}
}

// err is the error of the damage: of hidden, which kept the free pages from being known,
// if there is none at any page.
func (d *damages) err(hidden error) error {
	damage := d.first
	if damage == nil && !errors.As(hidden, &damage) {
		return hidden
	}
	all := *damage
	if d.more > 0 {
		all.Reason += fmt.Sprintf(" (and %s elsewhere)", cli.Plural(d.more, "more fault"))
	}
	return &all
}

// pageList prints runs of pages one by one, so that a file of any size does.
type pageList struct {
	*cli.Call
	pageSize int64
	digits   int // of the highest page number
	n        int
}

// pageEntry is a run of pages in JSON. What is not known, or does not apply, is null.
type pageEntry struct {
	Page     uint64  `json:"page"`
	Type     string  `json:"type"`
	Pages    uint64  `json:"pages"`
	Elements *uint64 `json:"elements"`
	Used     *uint64 `json:"used_bytes"`
	Error    string  `json:"error,omitempty"`
}

func (l *pageList) begin() {
	if l.JSON {
		fmt.Fprint(l.Out, "[")
		return
	}
	l.digits = max(l.digits, len("Page"), len("Pages"))
	fmt.Fprintf(l.Out, "%*s  %-8s  %*s  %8s  %s\n", l.digits, "Page", "Type", l.digits, "Pages", "Elements", "Bytes used")
}

func (l *pageList) end() {
	switch {
	case l.JSON && l.n > 0:
		fmt.Fprint(l.Out, "\n]\n")
	case l.JSON:
		fmt.Fprint(l.Out, "]\n")
	}
}

// hasElements tells whether elements and bytes are known of pages of a kind.
func hasElements(kind holdfast.PageKind) bool {
	return kind == holdfast.PageBranch || kind == holdfast.PageLeaf || kind == holdfast.PageFreelist
}

func (l *pageList) add(r holdfast.PageRun) error {
	l.n++
	if l.JSON {
		return l.addJSON(r)
	}
	elements, last := "", ""
	switch {
	case r.Err != nil:
		last = l.Paint(cli.Red, r.Err.Reason)
	case hasElements(r.Kind):
		elements = fmt.Sprint(r.Elements)
		last = fmt.Sprintf("%s (%s)", cli.Size(int64(r.UsedBytes)), cli.Percent(int64(r.UsedBytes), int64(r.Pages)*l.pageSize))
	}
	line := fmt.Sprintf("%*d  %-8s  %*d  %8s  %s", l.digits, r.ID, r.Kind, l.digits, r.Pages, elements, last)
	_, err := fmt.Fprintln(l.Out, strings.TrimRight(line, " "))
	return err
}

func (l *pageList) addJSON(r holdfast.PageRun) error {
	entry := pageEntry{Page: uint64(r.ID), Type: string(r.Kind), Pages: r.Pages}
	if hasElements(r.Kind) {
		entry.Elements, entry.Used = &r.Elements, &r.UsedBytes
	}
	if r.Err != nil {
		entry.Error = r.Err.Reason
	}
	text, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	separator := ",\n  "
	if l.n == 1 {
		separator = "\n  "
	}
	_, err = fmt.Fprintf(l.Out, "%s%s", separator, text)
	return err
}
