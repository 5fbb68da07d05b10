package pages

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/internal/page"
)

const dumpHelp = `Print pages in hexadecimal: the offset in the file, and 16 bytes in the order in
which they lie there. Lines that are the same as the one before are left out and a
star stands for them. Overflow pages have numbers of their own.

It reads the file as it is, as "page" does; of a page in which the file ends, what is
there.`

func newDump(a *cli.App) *cobra.Command {
	var pageSize int
	cmd := &cobra.Command{
		Use:   "dump FILE PAGE...",
		Short: "Print pages in hexadecimal",
		Long:  dumpHelp,
		Args:  cobra.MinimumNArgs(2),
		RunE:  a.Action(func(c *cli.Call) error { return runDump(c, pageSize) }),
	}
	cli.AddPageSize(cmd, &pageSize)
	return cmd
}

func runDump(c *cli.Call, pageSize int) error {
	ids, err := parsePages(c.Args[1:])
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		return cli.ErrPageIDRequired
	}
	return withPages(c, c.Args[0], pageSize, func(f *pageFile) error {
		if c.JSON {
			return dumpJSON(c, f, ids)
		}
		for i, id := range ids {
			if i > 0 {
				fmt.Fprint(c.Out, stockSeparator)
			}
			if err := f.safely(func() error { return dumpPage(c, f, id) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// part is the bytes of page id that the file has; whole tells whether that is all.
func (f *pageFile) part(id page.ID) (b []byte, at int64, whole bool, err error) {
	at, ok := f.offset(id)
	if !ok {
		return nil, 0, false, f.noPage(id)
	}
	end := min(at+int64(f.pageSize), f.size)
	return f.mapping.Data()[at:end:end], at, end-at == int64(f.pageSize), nil
}

// lineBytes is how many bytes a line has.
const lineBytes = 16

func dumpPage(c *cli.Call, f *pageFile, id page.ID) error {
	b, at, whole, err := f.part(id)
	if err != nil {
		return err
	}
	var before []byte
	skipped := false
	for i := 0; i < len(b); i += lineBytes {
		line := b[i:min(i+lineBytes, len(b))]
		last := i+lineBytes >= len(b)
		if bytes.Equal(line, before) && !last {
			if !skipped {
				fmt.Fprintf(c.Out, "%07x *\n", at+int64(i))
			}
			skipped = true
			continue
		}
		skipped, before = false, line
		if _, err := fmt.Fprintf(c.Out, "%07x %s\n", at+int64(i), hexPairs(line)); err != nil {
			return err
		}
		if err := c.Ctx.Err(); err != nil {
			return err
		}
	}
	fmt.Fprintln(c.Out)
	if !whole {
		return f.noPage(id)
	}
	return nil
}

// hexPairs writes bytes in hexadecimal, two by two.
func hexPairs(b []byte) string {
	text := make([]byte, 0, len(b)*5/2)
	for i := range b {
		if i > 0 && i%2 == 0 {
			text = append(text, ' ')
		}
		text = hex.AppendEncode(text, b[i:i+1])
	}
	return string(text)
}

// dumpJSON prints pages as JSON, one by one.
func dumpJSON(c *cli.Call, f *pageFile, ids []page.ID) error {
	for _, id := range ids { // before anything is printed
		if _, _, _, err := f.part(id); err != nil {
			return err
		}
	}
	name, err := cli.CompactJSON(f.path)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "{\n  \"file\": %s,\n  \"page_size_bytes\": %d,\n  \"pages\": [", name, f.pageSize)
	var cut error
	for i, id := range ids {
		if i > 0 {
			fmt.Fprint(c.Out, ",")
		}
		err := f.safely(func() error {
			b, at, whole, err := f.part(id)
			if err != nil {
				return err
			}
			if !whole {
				cut = f.noPage(id)
			}
			fmt.Fprintf(c.Out, "\n    {\"page\":%d,\"offset_bytes\":%d,\"hex\":\"", id, at)
			if _, err := hex.NewEncoder(c.Out).Write(b); err != nil {
				return err
			}
			_, err = fmt.Fprint(c.Out, `"}`)
			return err
		})
		if err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(c.Out, "\n  ]\n}\n"); err != nil {
		return err
	}
	return cut
}
