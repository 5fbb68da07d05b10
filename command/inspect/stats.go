package inspect

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

type statsReport struct {
	File             string `json:"file"`
	Prefix           string `json:"bucket_prefix"`
	TopLevelBuckets  int    `json:"top_level_buckets"`
	Buckets          int    `json:"buckets"`
	InlineBuckets    int    `json:"inline_buckets"`
	Keys             int    `json:"keys"`
	Depth            int    `json:"depth"`
	BranchPages      int    `json:"branch_pages"`
	BranchOverflow   int    `json:"branch_overflow_pages"`
	LeafPages        int    `json:"leaf_pages"`
	LeafOverflow     int    `json:"leaf_overflow_pages"`
	BranchAlloc      int    `json:"branch_allocated_bytes"`
	BranchInuse      int    `json:"branch_used_bytes"`
	LeafAlloc        int    `json:"leaf_allocated_bytes"`
	LeafInuse        int    `json:"leaf_used_bytes"`
	InlineBucketUsed int    `json:"inline_bucket_used_bytes"`

	Unflushed bool `json:"unflushed"`

	*freeReport // of the whole file; nil if only some of its buckets were asked for
}

const statsHelp = `Count pages, keys, buckets and bytes of the buckets whose names begin with PREFIX, or
of all.

Without PREFIX also the free pages of the file, and a histogram of the extents that
they form, which are runs of consecutive free pages, by their length. Many short ones
mean that the file is fragmented: a value that takes several pages finds no room in
them. "holdfast pages --map" shows where in the file they lie.

The heads of pages are read and not their content: "holdfast check" verifies seals.`

func newStats(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats FILE [PREFIX]",
		Short: "Count pages, keys, buckets and bytes of the buckets whose names begin with PREFIX",
		Args:  cobra.RangeArgs(1, 2),
		RunE:  a.Action(runStats),
	}
	if !a.Stock {
		cmd.Short = "Count pages, keys, buckets and bytes, and show how free space is scattered"
		cmd.Long = statsHelp
	}
	return cmd
}

func runStats(c *cli.Call) error {
	prefix := ""
	if len(c.Args) > 1 {
		prefix = c.Args[1]
	}
	var sum holdfast.BucketStats
	var free *freeReport
	top, unflushed := 0, false
	// Seals are for check to verify: counting looks at the heads of pages, and a checksum
	// at all of their bytes, which takes several times as long.
	err := c.ViewWith(c.Args[0], &holdfast.Options{NoSeals: true}, func(d *cli.Database, tx *holdfast.Tx) error {
		stop := c.Progress("counting "+cli.Size(tx.Size()), 0, nil)
		defer stop()
		unflushed = d.FileState().Unflushed
		err := cli.EachTop(tx, func(name []byte, b *holdfast.Bucket) error {
			if bytes.HasPrefix(name, []byte(prefix)) {
				sum.Add(b.Stats())
				top++
			}
			return tx.Err()
		})
		if err == nil && prefix != "" && top == 0 && !c.Stock { // where bbolt counts nothing
			return c.NoPrefix(c.Args[0], tx, []byte(prefix))
		}
		if err == nil && prefix == "" && !c.Stock {
			free, err = freeSpace(d, tx)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case c.JSON:
		r := newStatsReport(c.Args[0], prefix, top, sum)
		r.freeReport, r.Unflushed = free, unflushed
		return c.PrintJSON(r)
	case c.Stock:
		printStockStats(c.Out, top, sum)
	default:
		printStats(c, prefix, top, sum, free, unflushed)
	}
	return nil
}

func newStatsReport(file, prefix string, top int, s holdfast.BucketStats) statsReport {
	return statsReport{
		File: file, Prefix: prefix, TopLevelBuckets: top,
		Buckets: s.BucketN, InlineBuckets: s.InlineBucketN, Keys: s.KeyN, Depth: s.Depth,
		BranchPages: s.BranchPageN, BranchOverflow: s.BranchOverflowN,
		LeafPages: s.LeafPageN, LeafOverflow: s.LeafOverflowN,
		BranchAlloc: s.BranchAlloc, BranchInuse: s.BranchInuse,
		LeafAlloc: s.LeafAlloc, LeafInuse: s.LeafInuse, InlineBucketUsed: s.InlineBucketInuse,
	}
}

func printStats(c *cli.Call, prefix string, top int, s holdfast.BucketStats, free *freeReport, unflushed bool) {
	buckets := fmt.Sprintf("%s, with those inside %s; %s of them inline", cli.Count(top), cli.Count(s.BucketN), cli.Count(s.InlineBucketN))
	if prefix != "" {
		buckets += fmt.Sprintf(" (only names that begin with %q)", prefix)
	}
	pages := func(n, overflow int) string {
		return fmt.Sprintf("%s and %s of overflow", cli.Count(n), cli.Count(overflow))
	}
	used := func(inuse, alloc int) string {
		return fmt.Sprintf("%s of %s (%s)", cli.Size(int64(inuse)), cli.Size(int64(alloc)), cli.Percent(int64(inuse), int64(alloc)))
	}
	lines := [][2]string{
		{"Buckets", buckets},
		{"Keys", fmt.Sprintf("%s, buckets among them", cli.Count(s.KeyN))},
		{"Depth", cli.Plural(s.Depth, "level")},
		{"Branch pages", pages(s.BranchPageN, s.BranchOverflowN)},
		{"Leaf pages", pages(s.LeafPageN, s.LeafOverflowN)},
		{"Branch bytes used", used(s.BranchInuse, s.BranchAlloc)},
		{"Leaf bytes used", used(s.LeafInuse, s.LeafAlloc)},
		{"Inline buckets", cli.Size(int64(s.InlineBucketInuse))},
	}
	if free != nil {
		lines = append(lines, free.rows()...)
	}
	if unflushed {
		lines = append(lines, [2]string{"Not flushed", cli.NotFlushed})
	}
	cli.Rows(c.Out, lines...)
	if free != nil && free.Extents > 0 {
		fmt.Fprintf(c.Out, "\n%s\n", c.Paint(cli.Bold, "Free extents by length"))
		cli.Columns(c.Out, free.histogram(block(c))...)
	}
}

// printStockStats prints the lines that scripts written for bbolt read.
func printStockStats(w io.Writer, top int, s holdfast.BucketStats) {
	share := func(part, whole int) int {
		if whole == 0 {
			return 0
		}
		return int(float32(part) * 100 / float32(whole))
	}
	fmt.Fprintf(w, "Aggregate statistics for %d buckets\n\n", top)
	fmt.Fprintf(w, "Page count statistics\n")
	fmt.Fprintf(w, "\tNumber of logical branch pages: %d\n", s.BranchPageN)
	fmt.Fprintf(w, "\tNumber of physical branch overflow pages: %d\n", s.BranchOverflowN)
	fmt.Fprintf(w, "\tNumber of logical leaf pages: %d\n", s.LeafPageN)
	fmt.Fprintf(w, "\tNumber of physical leaf overflow pages: %d\n", s.LeafOverflowN)
	fmt.Fprintf(w, "Tree statistics\n")
	fmt.Fprintf(w, "\tNumber of keys/value pairs: %d\n", s.KeyN)
	fmt.Fprintf(w, "\tNumber of levels in B+tree: %d\n", s.Depth)
	fmt.Fprintf(w, "Page size utilization\n")
	fmt.Fprintf(w, "\tBytes allocated for physical branch pages: %d\n", s.BranchAlloc)
	fmt.Fprintf(w, "\tBytes actually used for branch data: %d (%d%%)\n", s.BranchInuse, share(s.BranchInuse, s.BranchAlloc))
	fmt.Fprintf(w, "\tBytes allocated for physical leaf pages: %d\n", s.LeafAlloc)
	fmt.Fprintf(w, "\tBytes actually used for leaf data: %d (%d%%)\n", s.LeafInuse, share(s.LeafInuse, s.LeafAlloc))
	fmt.Fprintf(w, "Bucket statistics\n")
	fmt.Fprintf(w, "\tTotal number of buckets: %d\n", s.BucketN)
	fmt.Fprintf(w, "\tTotal number on inlined buckets: %d (%d%%)\n", s.InlineBucketN, share(s.InlineBucketN, s.BucketN))
	fmt.Fprintf(w, "\tBytes used for inlined buckets: %d (%d%%)\n", s.InlineBucketInuse, share(s.InlineBucketInuse, s.LeafInuse))
}
