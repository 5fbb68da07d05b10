package suite

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/blob"
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

// rowColumns is how many bytes a row has beside its blobs.
const rowColumns = 40

// rowSink is where rows go, in transactions.
type rowSink interface {
	begin() error
	row(key uint64, value []byte, blobs [][]byte) error
	commit() error
	close() error
}

// slab gives memory that stays as it is until the end of a transaction, since that is how
// long the engines keep a value.
type slab struct {
	blocks [][]byte
	used   int // of these
}

const slabBlock = 1 << 20

// take is an empty slice with room for n bytes.
func (s *slab) take(n int) []byte {
	if s.used == 0 || cap(s.blocks[s.used-1])-len(s.blocks[s.used-1]) < n {
		if s.used == len(s.blocks) {
			s.blocks = append(s.blocks, make([]byte, 0, max(n, slabBlock)))
		}
		s.used++
	}
	b := &s.blocks[s.used-1]
	at := len(*b)
	*b = (*b)[:at+n]
	return (*b)[at : at : at+n]
}

func (s *slab) reset() {
	for i := range s.blocks[:s.used] {
		s.blocks[i] = s.blocks[i][:0]
	}
	s.used = 0
}

// importRows imports n rows, at most so many in a transaction, and gives the bytes of their
// blobs.
func importRows(to rowSink, k *rowKind, n, columns, most int) (bytes int64, err error) {
	var own slab
	values := make([][]byte, columns)
	for i := 0; i < n; {
		if err := to.begin(); err != nil {
			return bytes, err
		}
		own.reset()
		for size, last := 0, min(n, i+most); i < last && size < blobTx; i++ {
			at := i * 101 % (len(noise) - rowColumns)
			size += 8 + rowColumns
			for column := range columns {
				v := k.value(own.take(16), i, column)
				values[column] = v
				size += len(v)
				bytes += int64(len(v))
			}
			if err := to.row(uint64(i), noise[at:at+rowColumns], values); err != nil {
				return bytes, err
			}
		}
		if err := to.commit(); err != nil {
			return bytes, err
		}
	}
	return bytes, nil
}

// blobRows has the blobs in a store, or short ones in the rows.
type blobRows struct {
	db     *holdfast.DB
	inline bool
	tx     *holdfast.Tx
	rows   *holdfast.Bucket
	store  *blob.Store
	own    slab
	key    []byte
}

func openBlobRows(path string, inline bool) (rowSink, error) {
	db, err := createBlobs(path)
	return &blobRows{db: db, inline: inline}, err
}

func (s *blobRows) begin() (err error) {
	if s.tx, err = s.db.Begin(true); err != nil {
		return err
	}
	s.own.reset()
	s.rows = s.tx.Bucket(bucketName)
	s.rows.FillPercent = 1
	s.store, err = openStore(s.tx)
	return err
}

// refSize is how many bytes a reference takes that has nothing inline.
const refSize = 48

func (s *blobRows) row(key uint64, value []byte, blobs [][]byte) error {
	n := len(value)
	for _, b := range blobs {
		n += refSize
		if s.inline {
			n += min(len(b), blob.MaxInline)
		}
	}
	row := append(s.own.take(n), value...)
	for _, b := range blobs {
		put := s.store.Put
		if s.inline {
			put = s.store.PutInline
		}
		ref, err := put(b)
		if err == nil {
			row, err = ref.AppendBinary(row)
		}
		if err != nil {
			return err
		}
	}
	s.key = binary.BigEndian.AppendUint64(s.key[:0], key)
	return s.rows.Put(s.key, row)
}

func (s *blobRows) commit() error {
	tx := s.tx
	s.tx = nil
	return tx.Commit()
}

func (s *blobRows) close() error {
	if s.tx != nil {
		_ = s.tx.Rollback()
	}
	return s.db.Close()
}

// stockRows has the blobs in a bucket beside the rows, under their SHA-256.
type stockRows struct {
	stockSink
	rows *bbolt.Bucket
	own  slab
	key  []byte
}

func openStockRows(path string) (rowSink, error) {
	s, err := openStockSink(path, true)
	if err != nil {
		return nil, err
	}
	r := &stockRows{stockSink: *s.(*stockSink)}
	return r, r.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(bucketName)
		return err
	})
}

func (s *stockRows) begin() error {
	if err := s.stockSink.begin(); err != nil {
		return err
	}
	s.own.reset()
	s.rows = s.tx.Bucket(bucketName)
	s.rows.FillPercent = 1
	return nil
}

func (s *stockRows) row(key uint64, value []byte, blobs [][]byte) error {
	row := append(s.own.take(len(value)+len(blobs)*sha256.Size), value...)
	for _, b := range blobs {
		sum := sha256.Sum256(b)
		if err := s.b.Put(sum[:], b); err != nil {
			return err
		}
		row = append(row, sum[:]...)
	}
	s.key = binary.BigEndian.AppendUint64(s.key[:0], key)
	return s.rows.Put(s.key, row)
}

// floorRows does with the blobs what cannot be left out, and nothing with the rows.
type floorRows struct {
	hashSink
	seal sealSink
	to   sink
}

func openFloorRows(path string) (rowSink, error) {
	to, err := openPwrite(path)
	return &floorRows{to: to}, err
}

func (s *floorRows) row(_ uint64, _ []byte, blobs [][]byte) error {
	for _, b := range blobs {
		if err := errors.Join(s.hashSink.put(b), s.seal.put(b), s.to.put(b)); err != nil {
			return err
		}
	}
	return nil
}

func (s *floorRows) commit() error { return s.to.commit() }
func (s *floorRows) close() error  { return s.to.close() }

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
