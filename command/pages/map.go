package pages

import (
	"holdfast"
	"holdfast/command/cli"
)

// Sizes of the map, in cells. The upper bounds keep it in memory, whatever the file.
const (
	defaultWidth = 64
	maxWidth     = 500
	defaultRows  = 40
	maxRows      = 1000
)

// use is what a page is used for, as the map shows it.
type use int

const (
	useMeta use = iota
	useBranch
	useLeaf
	useOverflow // pages after the first of a branch or leaf
	useFreelist
	useRecord
	useDamaged
	useUnknown
	useFree
	useNever // beyond the high-water mark: the file has the room, and no page is there yet
	uses
)

// inUse tells whether pages of that use cannot be given away. Those that damage hides
// are counted in: it is not known that they are not needed.
func (u use) inUse() bool { return u < useFree }

// cell counts the pages of a part of the file by their use.
type cell [uses]uint64

func (c *cell) pages() (n uint64) {
	for _, k := range c {
		n += k
	}
	return n
}

func (c *cell) used() uint64 { return c.pages() - c[useFree] - c[useNever] }

// main is what a cell shows: damage if there is any, else what most of its pages in use
// are, else, where none is, what most of the others are.
func (c *cell) main() use {
	if c[useDamaged] > 0 {
		return useDamaged
	}
	best := useFree
	if c[useNever] > c[useFree] {
		best = useNever
	}
	if c.used() == 0 {
		return best
	}
	best = useMeta
	for u := useMeta; u.inUse(); u++ {
		if c[u] > c[best] {
			best = u
		}
	}
	return best
}

// pageMap is a file as cells of equally many pages, the last of which may have fewer.
type pageMap struct {
	size     int64 // of the file, in bytes
	pageSize int64
	pages    uint64 // of the file; the last one may not be whole
	high     uint64 // pages below the high-water mark
	width    int    // cells in a row
	perCell  uint64 // pages

	cells  []cell
	total  cell
	last   uint64 // last page in use
	before uint64 // free pages before it
}

// newPageMap makes a map of at most rows rows of width cells.
func newPageMap(size, pageSize int64, high uint64, width, rows int) *pageMap {
	m := &pageMap{size: size, pageSize: pageSize, high: high, width: width, perCell: 1}
	m.pages = max(uint64((size+pageSize-1)/pageSize), high)
	for m.count() > uint64(width)*uint64(rows) {
		m.perCell *= 2 // so that a cell is a round number of bytes
	}
	m.cells = make([]cell, m.count())
	return m
}

func (m *pageMap) count() uint64 { return (m.pages + m.perCell - 1) / m.perCell }

// add puts n pages from id on into their cells. Calls are in ascending order.
func (m *pageMap) add(u use, id, n uint64) {
	m.total[u] += n
	if u.inUse() && n > 0 {
		m.last, m.before = id+n-1, m.total[useFree]
	}
	for n > 0 {
		i := id / m.perCell
		k := min(n, (i+1)*m.perCell-id)
		m.cells[i][u] += k
		id, n = id+k, n-k
	}
}

// addRun adds what the engine says of pages.
func (m *pageMap) addRun(r holdfast.PageRun) {
	id, n := uint64(r.ID), r.Pages
	switch r.Kind {
	case holdfast.PageMeta:
		m.add(useMeta, id, n)
	case holdfast.PageBranch, holdfast.PageLeaf:
		first := useLeaf
		if r.Kind == holdfast.PageBranch {
			first = useBranch
		}
		m.add(first, id, 1)
		m.add(useOverflow, id+1, n-1)
	case holdfast.PageFreelist:
		m.add(useFreelist, id, n)
	case holdfast.PageRecord:
		m.add(useRecord, id, n)
	case holdfast.PageDamaged:
		m.add(useDamaged, id, n)
	case holdfast.PageFree:
		m.add(useFree, id, n)
	default:
		m.add(useUnknown, id, n)
	}
}

// finish adds what lies past the high-water mark.
func (m *pageMap) finish() { m.add(useNever, m.high, m.pages-m.high) }

// bytes is how many bytes of the file pages of one use are.
func (m *pageMap) bytes(u use) int64 {
	if u == useNever { // its last page may not be whole
		return max(m.size-int64(m.high)*m.pageSize, 0)
	}
	return int64(m.total[u]) * m.pageSize
}

// drawMap draws the file.
func drawMap(c *cli.Call, f pagesFlags) error {
	return c.View(c.Args[0], false, func(d *cli.Database, tx *holdfast.Tx) error {
		size, err := d.SizeNow()
		if err != nil {
			return err
		}
		pageSize := int64(d.Info().PageSize)
		high := uint64(tx.Size() / pageSize)
		width := f.width
		if width == 0 {
			width = mapWidth(c, high)
		}
		m := newPageMap(size, pageSize, high, width, f.rows)
		damage, hidden, err := fillMap(c, m, tx)
		if err != nil {
			return err
		}
		if c.JSON {
			err = printMapJSON(c, m)
		} else {
			printMap(c, m)
		}
		if err != nil {
			return err
		}
		return damage.err(hidden)
	})
}

// fillMap looks at all pages. hidden is the damage that keeps the free pages from being
// known.
func fillMap(c *cli.Call, m *pageMap, tx *holdfast.Tx) (damage damages, hidden, err error) {
	stop := c.Progress("reading "+cli.Size(tx.Size()), 0, nil)
	defer stop()
	err = tx.ForEachPage(func(r holdfast.PageRun) error {
		damage.add(r)
		m.addRun(r)
		return c.Ctx.Err()
	})
	if cli.IsDamage(err) {
		hidden, err = err, nil
	}
	m.finish()
	return damage, hidden, err
}

// mapWidth is how many cells fit next to the page numbers.
func mapWidth(c *cli.Call, pages uint64) int {
	columns := cli.TerminalWidth(c.Cmd.OutOrStdout())
	if columns == 0 {
		return defaultWidth
	}
	return min(max(columns-len(cli.Count(pages))-len(mapMargin), 1), maxWidth)
}
