package suite

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"
)

// rowKind is a kind of values in the blob columns of rows.
type rowKind struct {
	name  string
	stock bool // bbolt takes part, which takes most of the time
	rows  func(*BlobConfig) int
	value func(p []byte, row, column int) []byte // appended to p, or a slice that stays as it is
}

func smallRows(c *BlobConfig) int { return c.Rows }

var rowKinds = []rowKind{
	{"6 to 11 bytes, the same in both columns", true, smallRows, func(p []byte, row, _ int) []byte {
		return strconv.AppendInt(append(p, "blob "...), int64(row), 10)
	}},
	{"6 to 11 bytes, all distinct", false, smallRows, func(p []byte, row, column int) []byte {
		return strconv.AppendInt(append(p, [...]string{"blob ", "text "}[column]...), int64(row), 10)
	}},
	sizedRows,
}

var sizedRows = rowKind{"100 B to 1 MB", true, func(c *BlobConfig) int { return c.Sized }, sizedValue}

// Lengths of sized values, and how steeply there are fewer of the longer ones: some 2 kB on
// average.
const (
	sizedLeast = 100
	sizedMost  = 1e6
	sizedPower = 0.8
)

// sizedValue is a part of the noise that no other value begins at, or hardly any.
func sizedValue(_ []byte, row, column int) []byte {
	x := uint64(2*row+column)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	share := float64(x>>40) / (1 << 24)
	tail := math.Pow(float64(sizedLeast)/sizedMost, sizedPower)
	n := min(sizedMost, int(sizedLeast*math.Pow(1-share*(1-tail), -1/sizedPower)))
	at := int(x & (1<<40 - 1) % uint64(len(noise)-n+1))
	return noise[at : at+n : at+n]
}

// rowColumns is how many bytes a row has besides its blobs.
const rowColumns = 40

// Ways to store rows, and their columns: how many blobs a row has.
const (
	rowsOut    = "holdfast, out of line"
	rowsInline = "holdfast, inline up to 1 KiB"
	rowsStock  = "stock, under SHA-256"
	rowsFloor  = "SHA-256, pwrite and seals of the blobs alone"
)

var rowColumnNames = []string{"no blob column", "one", "two"}

const (
	rowsLimit   = 400 * time.Millisecond // target for what blob columns add to the import of 200,000 rows
	inlineLimit = 40 * time.Millisecond  // and if they are in the rows: about nothing
	rowsOfLimit = 200_000
)

// How many rows are in a transaction at most. In that of bbolt they are fewer, since the
// first one of a bucket takes time by the square of its random keys.
const (
	ourMost   = 50_000
	stockMost = 5000
)

type rowStore struct {
	name string
	most int // rows in a transaction
	open func(path string) (rowSink, error)
}

var rowStores = []rowStore{
	{rowsOut, ourMost, func(path string) (rowSink, error) { return openBlobRows(path, false) }},
	{rowsInline, ourMost, func(path string) (rowSink, error) { return openBlobRows(path, true) }},
	{rowsStock, stockMost, openStockRows},
	{rowsFloor, ourMost, openFloorRows},
}

// BlobRows measures the import of rows with no, one and two columns of blobs.
func BlobRows(c Config) (Table, error) {
	t := Table{
		Title: fmt.Sprintf("Import of rows with blob columns, in transactions of %s or %d rows, nothing flushed: time of all", FormatBytes(blobTx), ourMost),
		Peer:  rowColumnNames[0], Ours: rowColumnNames[2], Columns: rowColumnNames,
	}
	var peer *dolt
	if c.Blobs.Dolt != "" {
		var err error
		if peer, err = startDolt(c.Blobs.Dolt); err != nil {
			return t, err
		}
		defer peer.stop()
	}
	for _, k := range rowKinds {
		w := &rowImports{c: &c, kind: &k, n: k.rows(&c.Blobs), all: map[string][]sample{}, shares: map[string][]sample{}}
		if err := w.run(&t, peer); err != nil {
			return t, fmt.Errorf("values of %s: %w", k.name, err)
		}
		w.targets(&t)
	}
	return t, nil
}

// rowImports measures the import of one kind of rows.
type rowImports struct {
	c      *Config
	kind   *rowKind
	n      int
	all    map[string][]sample // by store and columns
	shares map[string][]sample // of the garbage collector
}

func (w *rowImports) name() string {
	return fmt.Sprintf("%d rows, values of %s", w.n, w.kind.name)
}

// rowCell names what was measured of a store with so many columns.
func rowCell(store string, columns int) string { return store + "\n" + rowColumnNames[columns] }

func (w *rowImports) run(t *Table, peer *dolt) (err error) {
	w.c.logf("measuring: import of %s", w.name())
	names, runners := []string{}, []runner{}
	for _, s := range rowStores {
		if s.name == rowsStock && !w.kind.stock {
			continue
		}
		names = append(names, s.name)
		for columns := range rowColumnNames {
			if columns == 0 && (s.name == rowsInline || s.name == rowsFloor) {
				continue // what the first store does, or nothing
			}
			runners = append(runners, runner{rowCell(s.name, columns), func() (sample, error) { return w.once(s, columns) }})
		}
	}
	if peer != nil && w.kind.rows(&w.c.Blobs) == w.c.Blobs.Rows && w.kind.name == rowKinds[0].name {
		names = append(names, doltMemory)
		for columns := 1; columns < len(rowColumnNames); columns++ {
			runners = append(runners, runner{rowCell(doltMemory, columns), func() (sample, error) {
				return peer.ask(w.c, "values", doltStores[0].store, int64(w.n), int64(columns))
			}})
		}
	}
	if w.all, err = byTurns(w.c.Rounds, runners); err != nil {
		return err
	}
	for _, name := range names {
		row := Row{Workload: w.name() + ": " + name, Unit: "ns", Cells: map[string]Cell{}}
		for columns, column := range rowColumnNames {
			if samples, ok := w.all[rowCell(name, columns)]; ok {
				row.Cells[column] = cellOf(samples)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return nil
}

func (w *rowImports) once(s rowStore, columns int) (m sample, err error) {
	path, err := w.c.path("rows", s.name)
	if err != nil {
		return m, err
	}
	defer remove(path)
	to, err := s.open(path)
	if err != nil {
		return m, err
	}
	var before, after runtime.MemStats
	collector := collectorSince()
	runtime.ReadMemStats(&before)
	began := time.Now()
	_, err = importRows(to, w.kind, w.n, columns, s.most)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	cell := rowCell(s.name, columns)
	w.shares[cell] = append(w.shares[cell], sample{100 * collector.share(), -1})
	return sample{float64(took), float64(after.Mallocs - before.Mallocs)}, errors.Join(err, to.close())
}

// targets are about what the columns add; of large values, what they add above the floors.
func (w *rowImports) targets(t *Table) {
	scale := float64(w.n) / rowsOfLimit
	large := w.kind.name == sizedRows.name
	none := w.all[rowCell(rowsOut, 0)]
	for columns := 1; columns < len(rowColumnNames); columns++ {
		name := fmt.Sprintf("%s: added by blob columns, %s", w.name(), rowColumnNames[columns])
		added, above := differences(w.all[rowCell(rowsOut, columns)], none), ""
		if large {
			added, above = differences(added, w.all[rowCell(rowsFloor, columns)]), " above hash, pwrite and seals"
		}
		w.atMost(t, name+", out of line", above, added, scale*float64(rowsLimit))
		if !large {
			w.atMost(t, name+", inline", "", differences(w.all[rowCell(rowsInline, columns)], none), scale*float64(inlineLimit))
		}
	}
	share := cellOf(w.shares[rowCell(rowsOut, 2)]).Median
	t.atMost(w.name()+": share of the garbage collector, two columns out of line", percent(100*collectLimit), share, 100*collectLimit, percent(share))
}

func (w *rowImports) atMost(t *Table, name, above string, added []sample, limit float64) {
	median := cellOf(added).Median
	t.atMost(name, FormatDuration(time.Duration(limit))+above, median, limit, signedDuration(median))
}

func signedDuration(ns float64) string {
	if ns < 0 {
		return "-" + FormatDuration(time.Duration(-ns))
	}
	return FormatDuration(time.Duration(ns))
}

// differences are those of samples that were taken in the same round.
func differences(a, b []sample) []sample {
	all := make([]sample, min(len(a), len(b)))
	for i := range all {
		all[i] = sample{a[i].value - b[i].value, -1}
	}
	return all
}
