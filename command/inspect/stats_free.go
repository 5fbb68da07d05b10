package inspect

import (
	"fmt"
	"math/bits"
	"strings"

	"holdfast"
	"holdfast/command/cli"
)

// freeReport is what of a file is free, and in which pieces.
type freeReport struct {
	SizeBytes int64         `json:"size_bytes"`
	PageSize  int64         `json:"page_size_bytes"`
	FreePages int64         `json:"free_pages"`
	FreeBytes int64         `json:"free_bytes"`
	Extents   int64         `json:"free_extents_total"` // runs of consecutive free pages
	Longest   int64         `json:"longest_free_extent_pages"`
	Classes   []extentClass `json:"free_extents"` // by length, without a gap up to the longest
}

// extentClass are the free extents whose lengths lie between two powers of two.
type extentClass struct {
	From    int64 `json:"pages_from"` // the shortest that belongs here
	To      int64 `json:"pages_to"`   // the longest
	Extents int64 `json:"extents"`
	Pages   int64 `json:"pages"` // of all of them
	Bytes   int64 `json:"bytes"`
}

// freeSpace finds what of the file is free, from what it records if it does so.
func freeSpace(d *cli.Database, tx *holdfast.Tx) (*freeReport, error) {
	size, err := d.SizeNow()
	if err != nil {
		return nil, err
	}
	extents, err := tx.FreeExtents()
	if err != nil {
		return nil, err
	}
	r := &freeReport{SizeBytes: size, PageSize: int64(d.Info().PageSize), Classes: []extentClass{}}
	for _, n := range extents {
		r.add(int64(n))
	}
	return r, nil
}

// add counts a free extent of n pages.
func (r *freeReport) add(n int64) {
	class := bits.Len64(uint64(n)) - 1
	for i := len(r.Classes); i <= class; i++ {
		r.Classes = append(r.Classes, extentClass{From: 1 << i, To: 2<<i - 1})
	}
	c := &r.Classes[class]
	c.Extents++
	c.Pages += n
	c.Bytes += n * r.PageSize
	r.Extents++
	r.FreePages += n
	r.FreeBytes += n * r.PageSize
	r.Longest = max(r.Longest, n)
}

// rows are the lines of stats on free space.
func (r *freeReport) rows() [][2]string {
	extents := "none"
	if r.Extents > 0 {
		extents = fmt.Sprintf("%s; the longest has %s (%s)", cli.Count(r.Extents), cli.Plural(r.Longest, "page"), cli.Size(r.Longest*r.PageSize))
	}
	return [][2]string{
		{"Free pages", fmt.Sprintf("%s, %s, %s of the file", cli.Count(r.FreePages), cli.Size(r.FreeBytes), cli.Percent(r.FreeBytes, r.SizeBytes))},
		{"Free extents", extents},
	}
}

// barWidth is the length of the bar of a class that has all free pages.
const barWidth = 30

// histogram is the table of free extents by length.
func (r *freeReport) histogram(block string) [][]string {
	lines := [][]string{{"  Length in pages", "Extents", "Pages", "Bytes", "Share of the free pages"}}
	for _, c := range r.Classes {
		length := cli.Count(c.From)
		if c.To > c.From {
			length += "-" + cli.Count(c.To)
		}
		share := cli.Percent(c.Pages, r.FreePages)
		if bar := bar(c.Pages, r.FreePages); bar > 0 {
			share = fmt.Sprintf("%-6s %s", share, strings.Repeat(block, bar))
		}
		lines = append(lines, []string{"  " + length, cli.Count(c.Extents), cli.Count(c.Pages), cli.Size(c.Bytes), share})
	}
	return lines
}

// bar is the length of a bar that shows part of whole: at least 1 if there is any.
func bar(part, whole int64) int {
	if part <= 0 || whole <= 0 {
		return 0
	}
	return max(1, int(float64(part)/float64(whole)*barWidth+0.5))
}

// block is what bars are made of.
func block(c *cli.Call) string {
	if cli.HasUTF8(c.Cmd.OutOrStdout()) {
		return "█"
	}
	return "#"
}
