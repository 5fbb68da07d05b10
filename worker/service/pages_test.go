package service

import (
	"bytes"
	"testing"

	"holdfast"
)

// TestPageCells: each page is counted in its cell, and what lies beyond the end in none.
func TestPageCells(t *testing.T) {
	c := newPageCells(100, 10)
	for _, r := range []holdfast.PageRun{
		{ID: 0, Kind: holdfast.PageMeta, Pages: 2}, {ID: 2, Kind: holdfast.PageFree, Pages: 8}, {ID: 10, Kind: holdfast.PageLeaf, Pages: 25},
		{ID: 35, Kind: holdfast.PageBranch, Pages: 1}, {ID: 36, Kind: holdfast.PageFree, Pages: 14}, {ID: 50, Kind: holdfast.PageDamaged, Pages: 1},
		{ID: 51, Kind: holdfast.PageLeaf, Pages: 1}, {ID: 52, Kind: holdfast.PageFree, Pages: 38}, {ID: 90, Kind: holdfast.PageRecord, Pages: 1000},
	} {
		c.run(r)
	}
	got := c.message(4096, 100)
	use := []byte{useMeta, useOverflow, useOverflow, useOverflow, useFree, useDamaged, useFree, useFree, useFree, useFreelist}
	if got.PagesPerCell != 10 || !bytes.Equal(got.Use, use) || got.Used != 2+25+1+2+10 || got.Share[0] != 51 || got.Share[1] != 255 || got.Share[4] != 0 {
		t.Errorf("%v", got)
	}
	for _, pages := range []uint64{1, 9, 10, 11, 99, 101, 1 << 40} {
		if c := newPageCells(pages, 10); len(c.count) > 10 || uint64(len(c.count))*c.per < pages {
			t.Errorf("%d pages: %d cells of %d", pages, len(c.count), c.per)
		}
	}
}
