package transfer

import (
	"bufio"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"holdfast/command/cli"
	"holdfast/command/internal/rows"
)

// csvFormats are the formats in which keys and values in CSV are read.
var csvFormats = []string{"bytes", "hex", "ascii-encoded"}

// csvFlags say what the columns of CSV are.
type csvFlags struct {
	header         bool
	keyColumn      string
	valueColumn    string
	formatOfKeys   string
	formatOfValues string
	blobColumns    []string // nil: the value is one column
	store          [][]byte // the path of the bucket for those
}

// csvRows is CSV as a source of keys in one bucket.
type csvRows struct {
	csvFlags
	r     *csv.Reader
	bound *bounded
	path  [][]byte
	max   int64
	begun bool
	key   int // the column of the key, from 0
	value int
	line  int64 // where the last row began
	table *rows.Table
	first []string // a row that was read to know the columns
}

func newCSVRows(r io.Reader, path [][]byte, maxLine int64, f csvFlags) *csvRows {
	rows := &csvRows{csvFlags: f, bound: &bounded{r: r}, path: path, max: maxLine}
	buffered := bufio.NewReaderSize(rows.bound, cli.InputChunk)
	rows.bound.allow(int64(len(byteOrderMark)))
	if mark, err := buffered.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		_, _ = buffered.Discard(len(byteOrderMark))
	}
	rows.r = csv.NewReader(buffered)
	rows.r.FieldsPerRecord = -1
	rows.r.ReuseRecord = true
	return rows
}

// byteOrderMark is what some programs put before the text. It belongs to no field: before one that begins with it,
// export puts another.
const byteOrderMark = "\ufeff"

// bounded is a reader of which so many bytes can be read.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) allow(n int64) { b.left = n }

var errBound = errors.New("more than is allowed")

func (b *bounded) Read(buf []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBound
	}
	n, err := b.r.Read(buf[:min(int64(len(buf)), b.left)])
	b.left -= int64(n)
	return n, err
}

// row reads a row. It is valid until the next.
func (c *csvRows) row() ([]string, error) {
	if row := c.first; row != nil {
		c.first = nil
		return row, nil
	}
	c.bound.allow(c.max + cli.InputChunk) // of which the reader has some already
	row, err := c.r.Read()
	var bad *csv.ParseError
	switch {
	case errors.Is(err, errBound):
		return nil, fmt.Errorf("the row after that of line %d: %w", c.line, errLongLine(c.max))
	case errors.As(err, &bad):
		return nil, &lineError{int64(bad.StartLine), bad.Err}
	case err != nil:
		return nil, err
	}
	line, _ := c.r.FieldPos(0)
	c.line = int64(line)
	return row, nil
}

// begin finds the columns.
func (c *csvRows) begin() error {
	c.begun = true
	var names []string
	if c.header {
		row, err := c.row()
		if err == io.EOF {
			err = fmt.Errorf("%w: there is no line with the names of the columns", errEmptyInput)
		}
		if err != nil {
			return err
		}
		names = slices.Clone(row)
	}
	var err error
	if c.key, err = findColumn("key-column", c.keyColumn, names); err == nil && c.blobColumns != nil {
		return c.beginTable(names)
	}
	if err == nil {
		c.value, err = findColumn("value-column", c.valueColumn, names)
	}
	if err == nil && c.key == c.value {
		err = cli.Usagef("the key and the value are both taken from column %d", c.key+1)
	}
	return err
}

// beginTable finds out what the columns are of rows that keep all of them.
func (c *csvRows) beginTable(names []string) error {
	row := names
	if row == nil {
		first, err := c.row()
		if err == io.EOF {
			err = fmt.Errorf("%w: there is no row that tells the columns", errEmptyInput)
		}
		if err != nil {
			return err
		}
		row = slices.Clone(first)
		c.first = row
	}
	if c.key >= len(row) {
		return cli.Usagef("--key-column: there is no column %d: the first row has %s", c.key+1, cli.Plural(len(row), "column"))
	}
	var err error
	c.table, err = newTable(row, c.key, c.csvFlags)
	return err
}

// findColumn is the index of a column that is given by its name or its number, from 1.
func findColumn(flag, column string, names []string) (int, error) {
	if i := slices.Index(names, column); i >= 0 {
		if slices.Contains(names[i+1:], column) {
			return 0, cli.Usagef("--%s: several columns have the name %s; give a number", flag, column)
		}
		return i, nil
	}
	n, err := strconv.Atoi(column)
	if err == nil && n >= 1 {
		return n - 1, nil
	}
	var shown []string
	for _, name := range names[:min(len(names), cli.MaxNamed*cli.MaxNamed)] {
		shown = append(shown, cli.Shorten(name))
	}
	switch {
	case names == nil:
		return 0, cli.Usagef("--%s: %q is not a column number, from 1; with --header columns can be given by their names", flag, column)
	default:
		return 0, cli.Usagef("--%s: no column has the name %q; there are %s", flag, column, strings.Join(shown, ", "))
	}
}

func (c *csvRows) next() (record, error) {
	if !c.begun { // the bucket is what the import is for, also without a row
		err := c.begin()
		return record{kind: bucketLine, line: 1, path: c.path, table: c.table}, err
	}
	row, err := c.row()
	if err != nil {
		return record{}, err
	}
	r := record{kind: keyLine, line: c.line, path: c.path, table: c.table}
	if last := max(c.key, c.value); last >= len(row) {
		return r, &lineError{c.line, fmt.Errorf("there is no column %d: the row has %s", last+1, cli.Plural(len(row), "column"))}
	}
	if r.key, err = csvBytes(row[c.key], c.formatOfKeys); err != nil {
		return r, &lineError{c.line, fmt.Errorf("key %s: %w", cli.Shorten(row[c.key]), err)}
	}
	if c.table != nil {
		if r.fields, err = c.rowFields(row); err != nil {
			err = &lineError{c.line, err}
		}
		return r, err
	}
	if r.value, err = csvBytes(row[c.value], c.formatOfValues); err != nil {
		return r, &lineError{c.line, fmt.Errorf("value %s: %w", cli.Shorten(row[c.value]), err)}
	}
	return r, nil
}

var errEmptyInput = errors.New("the input is empty")

// csvBytes reads a field in one of csvFormats.
func csvBytes(s, format string) ([]byte, error) {
	switch format {
	case "hex":
		b, err := hex.DecodeString(s)
		if err != nil {
			return nil, errors.New("not hexadecimal")
		}
		return b, nil
	case "ascii-encoded":
		text, err := strconv.Unquote(s)
		if err != nil || s[0] != '"' {
			return nil, errors.New("not in quotes with escapes, as ascii-encoded is")
		}
		return []byte(text), nil
	}
	return []byte(s), nil
}
