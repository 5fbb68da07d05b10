package command

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"holdfast"
	"holdfast/blob"
)

// tableBucket is the name of the bucket, in that of the rows, which says what columns there are. It has
// a byte that no text has, so that no key of a row is in its way.
var tableBucket = []byte("\x00csv")

// tableKey is the key in it.
var tableKey = []byte("table")

// tableVersion is the version of the description and of the rows.
const tableVersion = 1

// maxColumns bounds the columns that are believed.
const maxColumns = 1 << 16

// table is the description of rows of CSV that are kept whole, with some columns in a store of blobs.
//
// The value of a row has the fields of all columns but that of the key, in their order. If there is
// one only, the value is that field. If there are several, each stands after its length, a
// uvarint. The field of a column of blobs is a reference, as blob.Ref's MarshalBinary encodes it.
type table struct {
	Version int           `json:"version"`
	Columns int           `json:"columns"`
	Names   []string      `json:"names,omitempty"` // of the columns, if the first line had them
	Key     int           `json:"key"`             // the column of the key, from 0
	Blobs   []int         `json:"blobs"`           // the columns of blobs, in order
	Store   []bucketEntry `json:"store"`           // the path of their store
}

// storePath is the path of the store.
func (t *table) storePath() ([][]byte, error) {
	path := make([][]byte, len(t.Store))
	for i, e := range t.Store {
		b, err := decodeName(e)
		if err != nil || len(b) == 0 {
			return nil, fmt.Errorf("%w: it names no bucket as the store", errTable)
		}
		path[i] = b
	}
	return path, nil
}

// decodeName is what encodeBytes with "auto" has written.
func decodeName(e bucketEntry) ([]byte, error) {
	if e.Encoding == "text" {
		return []byte(e.Name), nil
	}
	return parseBytes("name", e.Name, "hex")
}

// encodePath writes the names of buckets such that decodeName reads them.
func encodePath(path [][]byte) (all []bucketEntry) {
	for _, name := range path {
		text, encoding := encodeBytes(name, "auto")
		all = append(all, bucketEntry{text, encoding})
	}
	return all
}

// isBlob tells whether column i is in the store.
func (t *table) isBlob(i int) bool {
	_, found := slices.BinarySearch(t.Blobs, i)
	return found
}

// fields calls fn with each field of the value of a row and its column.
func (t *table) fields(value []byte, fn func(column int, field []byte) error) error {
	for i := range t.Columns {
		if i == t.Key {
			continue
		}
		field := value
		if t.Columns > 2 {
			n, used := binary.Uvarint(value)
			if used <= 0 || n > uint64(len(value)-used) {
				return errRow
			}
			field, value = value[used:used+int(n)], value[used+int(n):]
		}
		if err := fn(i, field); err != nil {
			return err
		}
	}
	if t.Columns > 2 && len(value) > 0 {
		return errRow
	}
	return nil
}

var errRow = errors.New("its value has not the fields of the columns: no row that import --csv --blob-columns has written")

// appendField adds a field to the value of a row.
func (t *table) appendField(value, field []byte) []byte {
	if t.Columns > 2 {
		value = binary.AppendUvarint(value, uint64(len(field)))
	}
	return append(value, field...)
}

var errTable = errors.New("the description of the columns, in the bucket 00637376 in hexadecimal, is none that import has written")

// has tells whether the bucket name, in that of the rows at path, is the description or has the blobs.
func (t *table) has(path [][]byte, name []byte) bool {
	store, err := t.storePath()
	in := err == nil && len(store) > len(path) && slices.EqualFunc(store[:len(path)], path, bytes.Equal)
	return bytes.Equal(name, tableBucket) || in && bytes.Equal(store[len(path)], name)
}

// open opens the store of the blobs; nil: there is none.
func (t *table) open(tx *holdfast.Tx) (*blob.Store, error) {
	path, err := t.storePath()
	if err != nil {
		return nil, err
	}
	at := container{tx: tx}
	for _, name := range path {
		if at.Bucket = at.child(name); at.Bucket == nil {
			return nil, tx.Err()
		}
	}
	s, err := blob.Open(at.Bucket)
	if errors.Is(err, blob.ErrNotStore) {
		return nil, nil
	}
	return s, err
}

// readTable reads the description of the rows in a bucket; nil: there is none.
func readTable(b *holdfast.Bucket) (*table, error) {
	in := b.Bucket(tableBucket)
	if in == nil {
		return nil, b.Tx().Err()
	}
	var t table
	if err := json.Unmarshal(in.Get(tableKey), &t); err != nil {
		return nil, fmt.Errorf("%w: %w", errTable, err)
	}
	switch {
	case t.Version > tableVersion:
		return nil, fmt.Errorf("its columns are described by version %d, and this command knows %d", t.Version, tableVersion)
	case t.Columns < 2 || t.Columns > maxColumns, t.Key < 0 || t.Key >= t.Columns,
		len(t.Names) > 0 && len(t.Names) != t.Columns, !slices.IsSorted(t.Blobs), len(t.Store) == 0,
		slices.ContainsFunc(t.Blobs, func(i int) bool { return i < 0 || i >= t.Columns || i == t.Key }):
		return nil, fmt.Errorf("%w: it contradicts itself", errTable)
	}
	return &t, nil
}

// same tells whether both describe rows that can be in one bucket.
func (t *table) same(o *table) bool {
	return t.Columns == o.Columns && t.Key == o.Key && slices.Equal(t.Names, o.Names) && slices.Equal(t.Blobs, o.Blobs) && slices.Equal(t.Store, o.Store)
}

// write puts the description into the bucket of the rows.
func (t *table) write(b *holdfast.Bucket) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	in, err := b.CreateBucketIfNotExists(tableBucket)
	if err != nil {
		return err
	}
	return in.Put(tableKey, text)
}

// newTable makes the description from the first row, which has the names of the columns if header is set.
func newTable(row []string, key int, f csvFlags) (*table, error) {
	t := &table{Version: tableVersion, Columns: len(row), Key: key, Store: encodePath(f.store)}
	var names []string
	if f.header {
		names = slices.Clone(row)
		t.Names = names
		for _, name := range names {
			if !utf8.ValidString(name) {
				return nil, fmt.Errorf("the name %s of a column is not UTF-8", shorten(name))
			}
		}
	}
	for _, column := range f.blobColumns {
		i, err := findColumn("blob-columns", column, names)
		switch {
		case err != nil:
			return nil, err
		case i >= len(row):
			return nil, usagef("--blob-columns: there is no column %d: the first row has %s", i+1, plural(len(row), "column"))
		case i == key:
			return nil, usagef("--blob-columns: column %d is that of the key", i+1)
		case slices.Contains(t.Blobs, i):
			return nil, usagef("--blob-columns: column %d is given twice", i+1)
		}
		t.Blobs = append(t.Blobs, i)
	}
	slices.Sort(t.Blobs)
	return t, nil
}

// rowFields are the fields of a row, whose columns t describes, but that of the key.
func (c *csvRows) rowFields(row []string) (fields [][]byte, err error) {
	if len(row) != c.table.Columns {
		return nil, fmt.Errorf("the row has %s, and the first has %d", plural(len(row), "column"), c.table.Columns)
	}
	fields = make([][]byte, 0, len(row)-1)
	for i, text := range row {
		if i == c.key {
			continue
		}
		b, err := csvBytes(text, c.formatOfValues)
		if err != nil {
			return nil, fmt.Errorf("column %d, %s: %w", i+1, shorten(text), err)
		}
		fields = append(fields, b)
	}
	return fields, nil
}

// tableStore opens the store of the table in the transaction, and creates it if that may be.
func (m *importer) tableStore(path [][]byte) (*blob.Store, error) {
	if err := m.notInside(m.r.File, m.tx, path); err != nil {
		return nil, err
	}
	at, created, err := m.locateOrCreate(m.r.File, m.tx, path, m.create)
	if err != nil {
		return nil, withCreate(withSlash(m.tx, path, err))
	}
	if created == 0 {
		return m.openStore(m.r.File, at, path)
	}
	m.r.CreatedBuckets += uint64(created)
	return blob.Create(at.Bucket, blob.Options{})
}

// beginTable looks whether the rows fit those that the bucket has, and opens the store of their blobs. In a
// dry run it is nil where it would be created.
func (m *importer) beginTable(b *holdfast.Bucket, t *table) error {
	if m.tx == nil {
		return nil
	}
	if b != nil {
		old, err := readTable(b)
		switch {
		case err != nil:
			return err
		case old != nil && !t.same(old):
			return m.conflict(1, "", "bucket %s has rows of other columns, or with another store", briefPath(m.path))
		case old == nil && !isEmpty(b):
			return m.conflict(1, "; give another bucket", "bucket %s has keys that are no rows with columns of blobs", briefPath(m.path))
		}
	}
	path, err := t.storePath()
	if err != nil {
		return err
	}
	if !m.r.DryRun {
		if m.blobs, err = m.tableStore(path); err != nil {
			return err
		}
		return t.write(b)
	}
	at, err := m.locate(m.r.File, m.tx, path)
	if errors.Is(err, errNoBucket) && m.create {
		return nil
	}
	if err == nil {
		m.blobs, err = m.openStore(m.r.File, at, path)
	}
	return withCreate(err)
}

// isEmpty tells whether there is nothing in the bucket.
func isEmpty(b *holdfast.Bucket) bool {
	k, _ := b.Cursor().First()
	return k == nil && b.Tx().Err() == nil
}

// rowValue is the value of a row, with its blobs stored.
func (m *importer) rowValue(t *table, r record) ([]byte, error) {
	var value []byte
	for i, column := 0, 0; column < t.Columns; column++ {
		if column == t.Key {
			continue
		}
		field := r.fields[i]
		i++
		if t.isBlob(column) {
			put := m.blobs.Put
			if m.inline {
				put = m.blobs.PutInline
			}
			ref, err := put(field)
			if err != nil {
				return nil, err
			}
			m.r.Blobs++
			m.r.BlobBytes += uint64(len(field))
			if field, err = ref.MarshalBinary(); err != nil {
				return nil, err
			}
		}
		value = t.appendField(value, field)
	}
	if int64(len(value)) > holdfast.MaxValueSize {
		return nil, m.conflict(r.line, "; --blob-columns keeps long ones out of the row", "the columns of %s are too large: at most %s", brief(r.key), sizeExactly(holdfast.MaxValueSize))
	}
	return value, nil
}

// sameRow tells whether a row in the database says what one of the input does.
func (m *importer) sameRow(t *table, old []byte, r record) (bool, error) {
	i, same := 0, true
	err := t.fields(old, func(column int, field []byte) error {
		want := r.fields[i]
		i++
		if !same {
			return nil
		}
		if !t.isBlob(column) {
			same = bytes.Equal(field, want)
			return nil
		}
		content, err := openRef(m.blobs, field)
		if err != nil {
			return err
		}
		if same, err = content.equals(want); err != nil || !same {
			return err
		}
		return m.hasUser(field)
	})
	if errors.Is(err, errRow) || errors.Is(err, blob.ErrInvalidRef) || errors.Is(err, blob.ErrAlgorithm) { // something else was put there
		return false, nil
	}
	lost := errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrCorrupt)
	if lost && m.tx.Err() == nil { // of the row's blob; it can be replaced
		return false, nil
	}
	return same, err
}

// hasUser is an error if the blob of a reference in a row has no user: the next collection removes it.
func (m *importer) hasUser(field []byte) error {
	var ref blob.Ref
	if err := ref.UnmarshalBinary(field); err != nil {
		return err
	}
	if _, inline := ref.Inline(); inline {
		return nil
	}
	n, err := m.blobs.Users(ref)
	if err == nil && n == 0 {
		err = blob.ErrNotFound
	}
	return err
}

// dropRow gives up the blobs of a row that is replaced.
func (m *importer) dropRow(t *table, old []byte) error {
	err := t.fields(old, func(column int, field []byte) error {
		if !t.isBlob(column) {
			return nil
		}
		var ref blob.Ref
		if err := ref.UnmarshalBinary(field); err != nil {
			return err
		}
		err := m.blobs.Delete(ref)
		if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrAlgorithm) { // the row is replaced all the same
			return nil
		}
		return err
	})
	if errors.Is(err, errRow) || errors.Is(err, blob.ErrInvalidRef) {
		return nil
	}
	return err
}

// content is what a reference in a row stands for.
type content struct {
	io.Reader
	size int64
}

// openRef opens what the bytes of a reference stand for. s may be nil where all is in the row.
func openRef(s *blob.Store, b []byte) (content, error) {
	var ref blob.Ref
	if err := ref.UnmarshalBinary(b); err != nil {
		return content{}, err
	}
	if inline, ok := ref.Inline(); ok {
		return content{bytes.NewReader(inline.Bytes()), int64(len(inline))}, nil
	}
	if s == nil {
		return content{}, fmt.Errorf("%w: the store of its blobs is missing", blob.ErrMissing)
	}
	r, err := s.Reader(ref)
	if err != nil {
		return content{}, err
	}
	return content{r, r.Size()}, nil
}

// equals tells whether the content is b.
func (c content) equals(b []byte) (bool, error) {
	if c.size != int64(len(b)) {
		return false, nil
	}
	buf := make([]byte, min(len(b), inputChunk))
	for len(b) > 0 {
		part := buf[:min(len(b), len(buf))]
		if _, err := io.ReadFull(c, part); err != nil {
			return false, err
		}
		if !bytes.Equal(part, b[:len(part)]) {
			return false, nil
		}
		b = b[len(part):]
	}
	return true, nil
}

// all reads the whole content.
func (c content) all() ([]byte, error) {
	if c.size > math.MaxInt {
		return nil, errors.New("larger than the memory")
	}
	b := make([]byte, c.size)
	_, err := io.ReadFull(c, b)
	return b, err
}

// tableRow is a row of the export: the columns in their order.
func (t *table) row(s *blob.Store, key, value []byte, f *exportFlags, r *exportReport) ([]string, error) {
	row := make([]string, t.Columns)
	write := func(i int, b []byte, format string) {
		r.noText = r.noText || format == "auto" && !printable(b)
		row[i] = formatBytes(b, format)
	}
	write(t.Key, key, f.keyFormat)
	err := t.fields(value, func(column int, field []byte) error {
		if t.isBlob(column) {
			c, err := openRef(s, field)
			if err == nil {
				field, err = c.all()
			}
			if err != nil {
				return fmt.Errorf("column %d: %w", column+1, err)
			}
		}
		write(column, field, f.valueFormat)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("row %s: %w", brief(key), err)
	}
	return row, nil
}

// parseBlobColumns reads --blob-columns.
func parseBlobColumns(s string) ([]string, error) {
	columns := strings.Split(s, ",")
	if slices.Contains(columns, "") {
		return nil, usagef("--blob-columns: a column without a name in %q", s)
	}
	return columns, nil
}
