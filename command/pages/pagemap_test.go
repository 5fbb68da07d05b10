package pages

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

// runsOf makes runs of pages of every kind at random, up to page high, and what each
// page is to be.
func runsOf(random *rand.Rand, high uint64) (runs []holdfast.PageRun, want []use) {
	for id := uint64(0); id < high; {
		kind := pageTypes[random.IntN(len(pageTypes))]
		n := min(1+random.Uint64N(1<<random.IntN(10)), high-id)
		runs = append(runs, holdfast.PageRun{ID: holdfast.Pgid(id), Pages: n, Kind: kind})
		for i := range n {
			u := map[holdfast.PageKind]use{
				holdfast.PageMeta: useMeta, holdfast.PageBranch: useBranch, holdfast.PageLeaf: useLeaf, holdfast.PageFreelist: useFreelist,
				holdfast.PageRecord: useRecord, holdfast.PageFree: useFree, holdfast.PageDamaged: useDamaged, holdfast.PageUnknown: useUnknown,
			}[kind]
			if i > 0 && (u == useLeaf || u == useBranch) {
				u = useOverflow
			}
			want = append(want, u)
		}
		id += n
	}
	return runs, want
}

// Every page is in the right cell, and in one, whatever the sizes of the file and the map.
func TestMapCells(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 2))
	for range 500 {
		pageSize := int64(512) << random.IntN(8)
		high := 2 + random.Uint64N(1<<random.IntN(14))
		size := int64(high)*pageSize + random.Int64N(100*pageSize)*int64(random.IntN(2))
		width, rows := 1+random.IntN(80), 1+random.IntN(50)
		m := newPageMap(size, pageSize, high, width, rows)
		runs, want := runsOf(random, high)
		for _, r := range runs {
			m.addRun(r)
		}
		m.finish()
		for uint64(len(want)) < uint64((size+pageSize-1)/pageSize) {
			want = append(want, useNever)
		}
		cells := make([]cell, len(m.cells))
		var total cell
		last, before, free := 0, 0, 0
		for id, u := range want {
			cells[id/int(m.perCell)][u]++
			total[u]++
			if u == useFree {
				free++
			} else if u != useNever {
				last, before = id, free
			}
		}
		for i := range cells {
			if m.cells[i] != cells[i] {
				t.Fatalf("cell %d: got %v, want %v", i, m.cells[i], cells[i])
			}
			if n := cells[i].pages(); n != m.perCell && i < len(cells)-1 || n == 0 {
				t.Errorf("cell %d of %d has %d pages of %d", i, len(cells), n, m.perCell)
			}
		}
		if m.total != total || total.pages() != m.pages || m.last != uint64(last) || m.before != uint64(before) || m.after() != uint64(len(want)-1-last) {
			t.Errorf("got %v, last %d, %d free before it; want %v, %d, %d", m.total, m.last, m.before, total, last, before)
		}
		var bytes int64
		for u := range uses {
			bytes += m.bytes(u)
		}
		if bytes != size {
			t.Errorf("the parts have %d bytes, the file %d", bytes, size)
		}
		if len(m.cells) > width*rows || m.perCell > 1 && 2*len(m.cells)+1 < width*rows {
			t.Errorf("%d cells of %d pages in %d rows of %d", len(m.cells), m.perCell, rows, width)
		}
	}
}

func TestMapOfHugeFile(t *testing.T) {
	const high = 1 << 54 / 512 // bytes that only a sparse file has
	m := newPageMap(1<<54, 512, high, maxWidth, maxRows)
	m.add(useFree, 0, high)
	m.finish()
	if len(m.cells) > maxWidth*maxRows || m.total[useFree] != high || m.cells[len(m.cells)-1].pages() == 0 {
		t.Errorf("%d cells of %d pages", len(m.cells), m.perCell)
	}
}

func TestCellMain(t *testing.T) {
	for _, c := range []struct {
		cell cell
		want use
	}{
		{cell{useFree: 9}, useFree},
		{cell{useFree: 4, useNever: 5}, useNever},
		{cell{useFree: 1000, useLeaf: 1}, useLeaf}, // a page in use keeps the file from being cut off
		{cell{useLeaf: 3, useOverflow: 7, useFree: 90}, useOverflow},
		{cell{useBranch: 2, useLeaf: 2}, useBranch},
		{cell{useLeaf: 500, useDamaged: 1}, useDamaged},
		{cell{useUnknown: 5, useFree: 5}, useUnknown},
	} {
		if got := c.cell.main(); got != c.want {
			t.Errorf("%v: got %s, want %s", c.cell, useStyles[got].name, useStyles[c.want].name)
		}
	}
}

func TestGlyphs(t *testing.T) {
	letters := mapStyle{shades: asciiShades, free: "."}
	shades := mapStyle{colours: true, shades: utf8Shades, free: "·"}
	ascii := mapStyle{colours: true, shades: asciiShades, free: "."}
	for _, c := range []struct {
		cell cell
		want string // with letters, shades, and shades in ASCII
	}{
		{cell{useLeaf: 10}, "L█#"},
		{cell{useLeaf: 9, useFree: 1}, "L▓*"},
		{cell{useLeaf: 5, useFree: 5}, "L▒+"},
		{cell{useLeaf: 1, useFree: 99}, "l░:"},
		{cell{useFree: 10}, ".·."},
		{cell{useNever: 10}, "---"},
		{cell{useDamaged: 1, useFree: 99}, "!!!"},
		{cell{useUnknown: 5, useFree: 6}, "???"},
		{cell{useMeta: 2}, "M█#"},
	} {
		if got := letters.glyph(&c.cell) + shades.glyph(&c.cell) + ascii.glyph(&c.cell); got != c.want {
			t.Errorf("%v: got %s, want %s", c.cell, got, c.want)
		}
	}
}

// The map has the width and the rows that were asked for.
func TestMapRows(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	c := &cli.Call{App: &cli.App{}, Cmd: cmd, Args: []string{"x.db"}, Out: bufio.NewWriter(&out)}
	m := newPageMap(5000*4096, 4096, 4500, 50, 8)
	m.add(useMeta, 0, 2)
	m.add(useLeaf, 2, 998)
	m.add(useFree, 1000, 3499)
	m.add(useLeaf, 4499, 1)
	m.finish()
	printMap(c, m)
	if err := c.Out.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	want := []string{
		"x.db: 20 MiB (20,480,000 bytes), pages of 4.0 KiB; 20% in use; the last page in use is 4,499, 90% into the file; a cell is 16 pages (64 KiB)",
		"Empty: 14 MiB in 3,499 pages between pages in use, and 2.0 MiB at the end, after the last of them",
		"",
		"    0  LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL",
		"  800  LLLLLLLLLLLLL" + strings.Repeat(".", 37),
		"1,600  " + strings.Repeat(".", 50),
		"2,400  " + strings.Repeat(".", 50),
		"3,200  " + strings.Repeat(".", 50),
		"4,000  " + strings.Repeat(".", 31) + "l" + strings.Repeat("-", 18),
		"4,800  " + strings.Repeat("-", 13),
		"",
	}
	if got := strings.Join(lines[:len(want)], "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colours where there is no terminal")
	}
}
