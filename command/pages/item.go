package pages

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
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

func newPageItem(a *cli.App) *cobra.Command {
	var f pageItemFlags
	cmd := &cobra.Command{
		Use:   "page-item FILE PAGE ITEM",
		Short: "Print the key and the value of one element of a page",
		Long:  pageItemHelp,
		Args:  cobra.ExactArgs(3),
		RunE:  a.Action(func(c *cli.Call) error { return runPageItem(c, f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.keyOnly, "key-only", false, "print only the key")
	flags.BoolVar(&f.valueOnly, "value-only", false, "print only the value")
	flags.StringVar(&f.format, "format", "auto", "format of key and value: "+strings.Join(cli.OutputFormats, "|"))
	cli.AddPageSize(cmd, &f.pageSize)
	return cmd
}

func runPageItem(c *cli.Call, f pageItemFlags) error {
	if f.keyOnly && f.valueOnly {
		return cli.Usagef("--key-only and --value-only exclude each other")
	}
	if err := cli.CheckFormat("format", f.format, cli.OutputFormats); err != nil {
		return err
	}
	id, err := parsePage(c.Args[1])
	if err != nil {
		return err
	}
	item, err := strconv.ParseUint(c.Args[2], 10, 64)
	if err != nil {
		return cli.Usagef("%q is not an element number", c.Args[2])
	}
	return withPages(c, c.Args[0], f.pageSize, func(file *pageFile) error {
		return file.safely(func() error { return printItem(c, file, id, item, f) })
	})
}

func printItem(c *cli.Call, file *pageFile, id page.ID, item uint64, f pageItemFlags) error {
	v, err := file.view(id)
	if err != nil {
		return err
	}
	if v.kind != kindLeaf && (v.kind != kindBranch || c.Stock) {
		return &cli.FileError{File: file.path, What: fmt.Sprintf("page %d has no elements with values: it is a %s page", id, v.typeText()), Err: errNoItem,
			Next: fmt.Sprintf("see what it is with: %s page %s %d", c.Name(), cli.ShellWord(file.path), id)}
	}
	if item >= v.fits {
		what := fmt.Sprintf("no element %d in page %d, which has 0 to %d", item, id, int64(v.fits)-1)
		if v.fits == 0 {
			what = fmt.Sprintf("page %d has no elements", id)
		}
		if v.fits < v.count {
			return fmt.Errorf("%s: %w", what, v.fault)
		}
		return &cli.FileError{File: file.path, What: what, Err: errNoItem}
	}
	e, err := v.element(item)
	switch {
	case err != nil:
		return page.Corruptf(id, "element %d of %d %s", item, v.count, err)
	case c.JSON:
		return itemJSON(c, v, item, f)
	}
	if !f.valueOnly {
		if err := line(c, e.key, f.format); err != nil {
			return err
		}
	}
	switch {
	case f.keyOnly:
		return nil
	case v.kind == kindBranch:
		_, err = fmt.Fprintf(c.Out, "page %d\n", e.child)
		return err
	}
	return line(c, e.value, f.format)
}

// typeText is the type of the page.
func (v *pageView) typeText() string {
	if v.kind == kindUnknown {
		return page.TypeName(v.header.Flags)
	}
	return v.kind
}

// line prints bytes and ends the line.
func line(c *cli.Call, b []byte, format string) error {
	if err := cli.WriteBytes(c.Out, b, format); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.Out)
	return err
}

func itemJSON(c *cli.Call, v *pageView, item uint64, f pageItemFlags) error {
	return c.PrintJSON(&pageItemReport{
		File: v.file.path, Page: uint64(v.id), Type: v.kind,
		elementReport: v.elementReport(item, f.format, f.format, !f.valueOnly, !f.keyOnly),
	})
}
