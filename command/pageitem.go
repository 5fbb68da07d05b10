package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/internal/page"
)

var errNoItem = errors.New("no such element")

const pageItemHelp = `Print the key and the value of one element of a leaf page, or the key of one of a
branch page and the page that it leads to. Elements are counted from 0, as "page"
prints them. Of a bucket the value is its header and, if it is inline, its page.

It reads the file as it is, as "page" does.`

type pageItemFlags struct {
	keyOnly, valueOnly bool
	format             string
	pageSize           int
}

// pageItemReport is an element in JSON.
type pageItemReport struct {
	File string `json:"file"`
	Page uint64 `json:"page"`
	Type string `json:"type"`
	*elementReport
}

func (a *app) newPageItem() *cobra.Command {
	var f pageItemFlags
	cmd := &cobra.Command{
		Use:   "page-item FILE PAGE ITEM",
		Short: "Print the key and the value of one element of a page",
		Long:  pageItemHelp,
		Args:  cobra.ExactArgs(3),
		RunE:  a.action(func(c *call) error { return c.pageItem(f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.keyOnly, "key-only", false, "print only the key")
	flags.BoolVar(&f.valueOnly, "value-only", false, "print only the value")
	flags.StringVar(&f.format, "format", "auto", "format of key and value: "+strings.Join(outputFormats, "|"))
	addPageSize(cmd, &f.pageSize)
	return cmd
}

func (c *call) pageItem(f pageItemFlags) error {
	if f.keyOnly && f.valueOnly {
		return usagef("--key-only and --value-only exclude each other")
	}
	if err := checkFormat("format", f.format, outputFormats); err != nil {
		return err
	}
	id, err := parsePage(c.args[1])
	if err != nil {
		return err
	}
	item, err := strconv.ParseUint(c.args[2], 10, 64)
	if err != nil {
		return usagef("%q is no number of an element", c.args[2])
	}
	return c.withPages(c.args[0], f.pageSize, func(file *pageFile) error {
		return file.safely(func() error { return c.printItem(file, id, item, f) })
	})
}

func (c *call) printItem(file *pageFile, id page.ID, item uint64, f pageItemFlags) error {
	v, err := file.view(id)
	if err != nil {
		return err
	}
	if v.kind != kindLeaf && (v.kind != kindBranch || c.stock) {
		return &fileError{file: file.path, what: fmt.Sprintf("page %d has no elements with values: it is a %s page", id, v.typeText()), err: errNoItem,
			next: fmt.Sprintf("see what it is with: %s page %s %d", c.name(), shellQuote(file.path), id)}
	}
	if item >= v.fits {
		what := fmt.Sprintf("no element %d in page %d, which has 0 to %d", item, id, int64(v.fits)-1)
		if v.fits == 0 {
			what = fmt.Sprintf("page %d has no elements", id)
		}
		if v.fits < v.count {
			return fmt.Errorf("%s: %w", what, v.fault)
		}
		return &fileError{file: file.path, what: what, err: errNoItem}
	}
	e, err := v.element(item)
	switch {
	case err != nil:
		return page.Corruptf(id, "element %d of %d %s", item, v.count, err)
	case c.json:
		return c.itemJSON(v, item, f)
	}
	if !f.valueOnly {
		if err := c.line(e.key, f.format); err != nil {
			return err
		}
	}
	switch {
	case f.keyOnly:
		return nil
	case v.kind == kindBranch:
		_, err = fmt.Fprintf(c.out, "page %d\n", e.child)
		return err
	}
	return c.line(e.value, f.format)
}

// typeText is the type of the page.
func (v *pageView) typeText() string {
	if v.kind == kindUnknown {
		return page.TypeName(v.header.Flags)
	}
	return v.kind
}

// line prints bytes and ends the line.
func (c *call) line(b []byte, format string) error {
	if err := writeBytes(c.out, b, format); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.out)
	return err
}

func (c *call) itemJSON(v *pageView, item uint64, f pageItemFlags) error {
	return c.printJSON(&pageItemReport{
		File: v.file.path, Page: uint64(v.id), Type: v.kind,
		elementReport: v.elementReport(item, f.format, f.format, !f.valueOnly, !f.keyOnly),
	})
}
