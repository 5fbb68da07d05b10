package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/blob"
)

const blobDiffHelp = `Tell in which parts two blobs differ, without reading what is the same in both.

  ~ 65488+65488    both have these bytes, and not the same: offset and length
  + 130976+24      only B has them
  - 130976+24      only A has them: it is longer

Whole leaves are compared, so a part is as long as a leaf at least. In a store that is cut by content (fastcdc) there are
lines with + only: the parts of B that are nowhere in A.

Exit codes, as those of diff: 0 the same content, 1 they differ, 2 anything else: an error.`

type blobDiffReport struct {
	File   string       `json:"file"`
	Store  []string     `json:"store"`
	A      refReport    `json:"a"`
	B      refReport    `json:"b"`
	Equal  bool         `json:"equal"`
	Ranges []rangeEntry `json:"ranges"`
	Bytes  int64        `json:"different_bytes"` // of B
}

// rangeEntry is a part that differs.
type rangeEntry struct {
	Side   string `json:"in"` // both, b, or a
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
}

func (a *app) newBlobDiff() *cobra.Command {
	var f storeName
	cmd := &cobra.Command{
		Use:   "diff FILE STORE A B",
		Short: "Tell in which parts two blobs differ",
		Long:  blobDiffHelp,
		Args:  cobra.ExactArgs(4),
		RunE:  a.comparison(func(c *call) (bool, error) { return c.blobDiff(f) }),
	}
	f.addStoreFlag(cmd)
	return cmd
}

func (c *call) blobDiff(f storeName) (same bool, err error) {
	err = c.viewStore(f, func(_ *database, b *blobs) error {
		r := blobDiffReport{File: b.file, Store: pathNames(b.path), Ranges: []rangeEntry{}}
		var refs [2]blob.Ref
		for i, name := range c.args[2:] {
			if refs[i], err = b.resolve(name); err != nil {
				return err
			}
		}
		if r.A, err = b.report(refs[0]); err == nil {
			r.B, err = b.report(refs[1])
		}
		if err != nil {
			return err
		}
		err = b.Diff(refs[0], refs[1], func(p blob.Range) error {
			r.Bytes += p.Length
			return c.diffRange(&r, p)
		})
		if err != nil {
			return err
		}
		end := refs[1].Size()
		if cut := refs[0].Size() - end; cut > 0 && b.Options().Chunking == blob.FixedSize {
			err = c.diffEntry(&r, rangeEntry{"a", end, cut})
		}
		r.Equal = len(r.Ranges) == 0 && r.A.Reference == r.B.Reference
		same = r.Equal
		switch {
		case err != nil:
			return err
		case c.json:
			return c.printJSON(r)
		case same:
			_, err = fmt.Fprintf(c.out, "the same: %s\n", sizeExactly(r.B.Bytes))
		default:
			_, err = fmt.Fprintf(c.out, "%s of the %s of B differ\n", sizeExactly(r.Bytes), size(r.B.Bytes))
		}
		return err
	})
	return same, err
}

func (c *call) diffRange(r *blobDiffReport, p blob.Range) error {
	side := "b"
	if p.InA {
		side = "both"
	}
	return c.diffEntry(r, rangeEntry{side, p.Offset, p.Length})
}

// diffEntry prints a part that differs, or keeps it for JSON.
func (c *call) diffEntry(r *blobDiffReport, e rangeEntry) error {
	if c.json {
		r.Ranges = append(r.Ranges, e)
		return nil
	}
	r.Ranges = append(r.Ranges[:0], e) // there is one
	mark := map[string]string{"both": c.paint(yellow, "~"), "b": c.paint(green, "+"), "a": c.paint(red, "-")}[e.Side]
	_, err := fmt.Fprintf(c.out, "%s %d+%d\n", mark, e.Offset, e.Length)
	return err
}
