package blobcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/blob"
	"holdfast/command/cli"
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

func newBlobDiff(a *cli.App) *cobra.Command {
	var f cli.StoreName
	cmd := &cobra.Command{
		Use:   "diff FILE STORE A B",
		Short: "Tell in which parts two blobs differ",
		Long:  blobDiffHelp,
		Args:  cobra.ExactArgs(4),
		RunE:  a.Comparison(func(c *cli.Call) (bool, error) { return blobDiff(c, f) }),
	}
	f.AddStoreFlag(cmd)
	return cmd
}

func blobDiff(c *cli.Call, f cli.StoreName) (same bool, err error) {
	err = viewStore(c, f, func(_ *cli.Database, b *blobs) error {
		r := blobDiffReport{File: b.file, Store: cli.PathNames(b.path), Ranges: []rangeEntry{}}
		var refs [2]blob.Ref
		for i, name := range c.Args[2:] {
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
			return diffRange(c, &r, p)
		})
		if err != nil {
			return err
		}
		end := refs[1].Size()
		if cut := refs[0].Size() - end; cut > 0 && b.Options().Chunking == blob.FixedSize {
			err = diffEntry(c, &r, rangeEntry{"a", end, cut})
		}
		r.Equal = len(r.Ranges) == 0 && r.A.Reference == r.B.Reference
		same = r.Equal
		switch {
		case err != nil:
			return err
		case c.JSON:
			return c.PrintJSON(r)
		case same:
			_, err = fmt.Fprintf(c.Out, "the same: %s\n", cli.SizeExactly(r.B.Bytes))
		default:
			_, err = fmt.Fprintf(c.Out, "%s of the %s of B differ\n", cli.SizeExactly(r.Bytes), cli.Size(r.B.Bytes))
		}
		return err
	})
	return same, err
}

func diffRange(c *cli.Call, r *blobDiffReport, p blob.Range) error {
	side := "b"
	if p.InA {
		side = "both"
	}
	return diffEntry(c, r, rangeEntry{side, p.Offset, p.Length})
}

// diffEntry prints a part that differs, or keeps it for JSON.
func diffEntry(c *cli.Call, r *blobDiffReport, e rangeEntry) error {
	if c.JSON {
		r.Ranges = append(r.Ranges, e)
		return nil
	}
	r.Ranges = append(r.Ranges[:0], e) // there is one
	mark := map[string]string{"both": c.Paint(cli.Yellow, "~"), "b": c.Paint(cli.Green, "+"), "a": c.Paint(cli.Red, "-")}[e.Side]
	_, err := fmt.Fprintf(c.Out, "%s %d+%d\n", mark, e.Offset, e.Length)
	return err
}
