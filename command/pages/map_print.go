package pages

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fatih/color"

	"holdfast/command/cli"
)

// mapMargin stands between the page number at the beginning of a row and its cells.
const mapMargin = "  "

// useStyle is how pages of one use are shown.
type useStyle struct {
	name   string // in JSON and for people
	letter string
	color  color.Attribute
	text   string
}

var useStyles = [uses]useStyle{
	useMeta:     {"meta", "M", color.FgMagenta, "meta pages"},
	useBranch:   {"branch", "B", color.FgYellow, "branches of buckets"},
	useLeaf:     {"leaf", "L", color.FgGreen, "leaves of buckets: keys and values"},
	useOverflow: {"overflow", "O", color.FgCyan, "pages after a leaf or branch that belong to it: large values"},
	useFreelist: {"freelist", "F", color.FgBlue, "the free pages, as bbolt stores them"},
	useRecord:   {"record", "R", color.FgBlue, "the free pages, as Holdfast records them"},
	useDamaged:  {"damaged", "!", color.FgRed, "in use, and cannot be read"},
	useUnknown:  {"unknown", "?", color.FgRed, "in use or free: damage hides which"},
	useFree:     {"free", ".", color.Faint, "free"},
	useNever:    {"never_used", "-", color.Faint, "never used: room at the end for growth"},
}

// mapStyle is how a map is drawn: with colours for what cells are and shades for how
// much of them is in use, or with letters.
type mapStyle struct {
	colours bool
	shades  []string // by the share in use, from little to all
	free    string
}

// Shades. The last is only for cells that are in use entirely.
var (
	utf8Shades  = []string{"░", "▒", "▓", "█"}
	asciiShades = []string{":", "+", "*", "#"}
)

func newMapStyle(w io.Writer) mapStyle {
	s := mapStyle{colours: cli.HasColour(w), shades: asciiShades, free: "."}
	if cli.HasUTF8(w) {
		s.shades, s.free = utf8Shades, "·"
	}
	return s
}

// glyph is the character of a cell.
func (s *mapStyle) glyph(c *cell) string {
	u := c.main()
	used, all := c.used(), c.pages()
	switch {
	case u == useFree && s.colours:
		return s.free
	case u == useDamaged || u == useUnknown || !u.inUse():
		return useStyles[u].letter
	case s.colours && used == all:
		return s.shades[len(s.shades)-1]
	case s.colours:
		return s.shades[used*uint64(len(s.shades)-1)/all]
	case 2*used < all:
		return strings.ToLower(useStyles[u].letter)
	}
	return useStyles[u].letter
}

// swatch is the character that the legend shows for a use.
func (s *mapStyle) swatch(u use) string {
	var c cell
	c[u] = 1
	return s.glyph(&c)
}

// printMap prints the map, and what it shows.
func printMap(c *cli.Call, m *pageMap) {
	s := newMapStyle(c.Cmd.OutOrStdout())
	fmt.Fprintf(c.Out, "%s: %s\n%s\n\n", c.Paint(cli.Bold, c.Args[0]), m.summary(), m.emptiness())
	digits := len(cli.Count(uint64(len(m.cells)-1) / uint64(m.width) * uint64(m.width) * m.perCell))
	for first := 0; first < len(m.cells); first += m.width {
		row := m.cells[first:min(first+m.width, len(m.cells))]
		fmt.Fprintf(c.Out, "%*s%s%s\n", digits, cli.Count(uint64(first)*m.perCell), mapMargin, cellRow(c, row, &s))
	}
	fmt.Fprintln(c.Out)
	printLegend(c, m, &s)
	if m.perCell > 1 {
		fmt.Fprintln(c.Out, s.explain())
	}
}

// printLegend prints what the cells stand for, and how much of it there is. What is
// painted stands before the columns, which count its bytes otherwise.
func printLegend(c *cli.Call, m *pageMap, s *mapStyle) {
	var swatches []string
	var lines [][]string
	for u := range uses {
		if m.total[u] == 0 && u != useFree {
			continue
		}
		swatches = append(swatches, cellText(c, u, s.swatch(u), s))
		lines = append(lines, []string{cli.Plural(m.total[u], "page"), cli.Size(m.bytes(u)), cli.Percent(m.bytes(u), m.size), useStyles[u].text})
	}
	var table strings.Builder
	cli.Columns(&table, lines...)
	for i, line := range slices.Collect(strings.Lines(table.String())) {
		fmt.Fprintf(c.Out, "%s  %s", swatches[i], line)
	}
}

// explain says how cells show what part of them is in use.
func (s *mapStyle) explain() string {
	if s.colours {
		return fmt.Sprintf("%s: how much of a cell is in use, from little to all of it", strings.Join(s.shades, " "))
	}
	return "Small letters: less than half of a cell is in use."
}

// cellRow is a row of cells. Neighbours of one colour are painted together.
func cellRow(c *cli.Call, cells []cell, s *mapStyle) string {
	var row, run strings.Builder
	flush := func(u use) {
		row.WriteString(cellText(c, u, run.String(), s))
		run.Reset()
	}
	for i := range cells {
		u := cells[i].main()
		if run.WriteString(s.glyph(&cells[i])); i+1 == len(cells) || cells[i+1].main() != u {
			flush(u)
		}
	}
	return row.String()
}

// cellText is text in the colour of a use.
func cellText(c *cli.Call, u use, text string, s *mapStyle) string {
	if !s.colours {
		return text
	}
	return c.Paint(useStyles[u].color, text)
}

// summary says how large the file is, and how full.
func (m *pageMap) summary() string {
	used := m.total.used()
	pages := "1 page"
	if m.perCell > 1 {
		pages = fmt.Sprintf("%s pages (%s)", cli.Count(m.perCell), cli.Size(int64(m.perCell)*m.pageSize))
	}
	end := int64(m.last+1) * m.pageSize
	return fmt.Sprintf("%s, pages of %s; %s in use; the last page in use is %s, %s into the file; a cell is %s",
		cli.SizeExactly(m.size), cli.Size(m.pageSize), cli.Percent(int64(used)*m.pageSize, m.size), cli.Count(m.last), cli.Percent(end, m.size), pages)
}

// after is how many pages lie after the last one in use.
func (m *pageMap) after() uint64 { return m.pages - m.last - 1 }

// emptiness says where the empty part of the file is.
func (m *pageMap) emptiness() string {
	return fmt.Sprintf("Empty: %s in %s between pages in use, and %s at the end, after the last of them",
		cli.Size(int64(m.before)*m.pageSize), cli.Plural(m.before, "page"), cli.Size(max(m.size-int64(m.last+1)*m.pageSize, 0)))
}

// mapReport is the head of the map's JSON.
type mapReport struct {
	File      string            `json:"file"`
	SizeBytes int64             `json:"size_bytes"`
	PageSize  int64             `json:"page_size_bytes"`
	Pages     uint64            `json:"pages"`
	HighWater uint64            `json:"high_water_pages"`
	InUse     uint64            `json:"pages_in_use"`
	Last      uint64            `json:"last_page_in_use"`
	Before    uint64            `json:"free_pages_before_it"`
	After     uint64            `json:"pages_after_it"`
	Width     int               `json:"cells_per_row"`
	PerCell   uint64            `json:"pages_per_cell"`
	Total     map[string]uint64 `json:"pages_by_kind"`
	Cells     []json.RawMessage `json:"cells"` // printed by hand, a line each
}

// printMapJSON prints the map as counts of pages.
func printMapJSON(c *cli.Call, m *pageMap) error {
	r := mapReport{
		File: c.Args[0], SizeBytes: m.size, PageSize: m.pageSize, Pages: m.pages, HighWater: m.high,
		InUse: m.total.used(), Last: m.last, Before: m.before, After: m.after(),
		Width: m.width, PerCell: m.perCell, Total: map[string]uint64{}, Cells: []json.RawMessage{},
	}
	for u, n := range m.total {
		r.Total[useStyles[u].name] = n
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	head, _ := strings.CutSuffix(string(text), "]\n}")
	fmt.Fprint(c.Out, head)
	for i := range m.cells {
		separator := ",\n"
		if i == 0 {
			separator = "\n"
		}
		fmt.Fprintf(c.Out, "%s    {\"page\":%d", separator, uint64(i)*m.perCell)
		for u, n := range m.cells[i] {
			fmt.Fprintf(c.Out, ",%q:%d", useStyles[u].name, n)
		}
		if _, err := fmt.Fprint(c.Out, "}"); err != nil {
			return err
		}
	}
	_, err = fmt.Fprint(c.Out, "\n  ]\n}\n")
	return err
}
