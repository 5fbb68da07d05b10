// Package rows describes the rows of CSV that import keeps whole, with some of their columns in a store of
// blobs. Such a bucket takes no other values.
package rows

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
)

// tableBucket is the name of the bucket, in that of the rows, which says what columns there are. It has
// a byte that no text has, so that no key of a row is in its way.
var tableBucket = []byte("\x00csv")

// tableKey is the key in it.
var tableKey = []byte("table")

// Version is the version of the description and of the rows.
const Version = 1

// maxColumns bounds the columns that are believed.
const maxColumns = 1 << 16

// Table is the description of rows of CSV that are kept whole, with some columns in a store of blobs.
//
// The value of a row has the fields of all columns but that of the key, in their order. If there is
// one only, the value is that field. If there are several, each stands after its length, a
// uvarint. The field of a column of blobs is a reference, as blob.Ref's MarshalBinary encodes it.
type Table struct {
	Version int               `json:"version"`
	Columns int               `json:"columns"`
	Names   []string          `json:"names,omitempty"` // of the columns, if the first line had them
	Key     int               `json:"key"`             // the column of the key, from 0
	Blobs   []int             `json:"blobs"`           // the columns of blobs, in order
	Store   []cli.BucketEntry `json:"store"`           // the path of their store
}

// StorePath is the path of the store.
func (t *Table) StorePath() ([][]byte, error) {
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
func decodeName(e cli.BucketEntry) ([]byte, error) {
	if e.Encoding == "text" {
		return []byte(e.Name), nil
	}
	return cli.ParseBytes("name", e.Name, "hex")
}

// EncodePath writes the names of buckets such that decodeName reads them.
func EncodePath(path [][]byte) (all []cli.BucketEntry) {
	for _, name := range path {
		text, encoding := cli.EncodeBytes(name, "auto")
		all = append(all, cli.BucketEntry{Name: text, Encoding: encoding})
	}
	return all
}

// IsBlob tells whether column i is in the store.
func (t *Table) IsBlob(i int) bool {
	_, found := slices.BinarySearch(t.Blobs, i)
	return found
}

// Fields calls fn with each field of the value of a row and its column.
func (t *Table) Fields(value []byte, fn func(column int, field []byte) error) error {
	for i := range t.Columns {
		if i == t.Key {
			continue
		}
		field := value
		if t.Columns > 2 {
			n, used := binary.Uvarint(value)
			if used <= 0 || n > uint64(len(value)-used) {
				return ErrRow
			}
			field, value = value[used:used+int(n)], value[used+int(n):]
		}
		if err := fn(i, field); err != nil {
			return err
		}
	}
	if t.Columns > 2 && len(value) > 0 {
		return ErrRow
	}
	return nil
}

// ErrRow is wrapped by errors of a value that is not a row of its bucket.
var ErrRow = errors.New("its value has not the fields of the columns: no row that import --csv --blob-columns has written")

// AppendField adds a field to the value of a row.
func (t *Table) AppendField(value, field []byte) []byte {
	if t.Columns > 2 {
		value = binary.AppendUvarint(value, uint64(len(field)))
	}
	return append(value, field...)
}

var errTable = errors.New("the description of the columns, in the bucket 00637376 in hexadecimal, is none that import has written")

// Has tells whether the bucket name, in that of the rows at path, is the description or has the blobs.
func (t *Table) Has(path [][]byte, name []byte) bool {
	store, err := t.StorePath()
	in := err == nil && len(store) > len(path) && slices.EqualFunc(store[:len(path)], path, bytes.Equal)
	return bytes.Equal(name, tableBucket) || in && bytes.Equal(store[len(path)], name)
}

// Open opens the store of the blobs in a file; nil: there is none.
func (t *Table) Open(a *cli.App, file string, tx *holdfast.Tx) (*blob.Store, error) {
	path, err := t.StorePath()
	if err != nil {
		return nil, err
	}
	at := cli.Container{Tx: tx}
	for _, name := range path {
		if at.Bucket = at.Child(name); at.Bucket == nil {
			return nil, tx.Err()
		}
	}
	s, err := a.OpenStore(file, at, path)
	if errors.Is(err, blob.ErrNotStore) {
		return nil, nil
	}
	return s, err
}

// Read reads the description of the rows in a bucket; nil: there is none.
func Read(b *holdfast.Bucket) (*Table, error) {
	in := b.Bucket(tableBucket)
	if in == nil {
		return nil, b.Tx().Err()
	}
	var t Table
	if err := json.Unmarshal(in.Get(tableKey), &t); err != nil {
		return nil, fmt.Errorf("%w: %w", errTable, err)
	}
	switch {
	case t.Version > Version:
		return nil, fmt.Errorf("its columns are described by version %d, and this command knows %d", t.Version, Version)
	case t.Columns < 2 || t.Columns > maxColumns, t.Key < 0 || t.Key >= t.Columns,
		len(t.Names) > 0 && len(t.Names) != t.Columns, !slices.IsSorted(t.Blobs), len(t.Store) == 0,
		slices.ContainsFunc(t.Blobs, func(i int) bool { return i < 0 || i >= t.Columns || i == t.Key }):
		return nil, fmt.Errorf("%w: it contradicts itself", errTable)
	}
	return &t, nil
}

// Same tells whether both describe rows that can be in one bucket.
func (t *Table) Same(o *Table) bool {
	return t.Columns == o.Columns && t.Key == o.Key && slices.Equal(t.Names, o.Names) && slices.Equal(t.Blobs, o.Blobs) && slices.Equal(t.Store, o.Store)
}

// Write puts the description into the bucket of the rows.
func (t *Table) Write(b *holdfast.Bucket) error {
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

// IsEmpty tells whether there is nothing in the bucket.
func IsEmpty(b *holdfast.Bucket) bool {
	k, _ := b.Cursor().First()
	return k == nil && b.Tx().Err() == nil
}

// Takes is an error if a value is not a row of a bucket whose columns t describes: one that is breaks the export of
// all. A nil t takes all values.
func (t *Table) Takes(value []byte) error {
	if t == nil {
		return nil
	}
	return t.Fields(value, func(column int, field []byte) error {
		var ref blob.Ref
		if t.IsBlob(column) && ref.UnmarshalBinary(field) != nil {
			return ErrRow
		}
		return nil
	})
}

// NotRow is an error if the bucket at path has rows with columns of blobs and the value for key is none.
func NotRow(c *cli.Call, file string, b *holdfast.Bucket, path [][]byte, key, value []byte) error {
	t, err := Read(b)
	if err == nil {
		err = t.Takes(value)
	}
	if err == nil || b.Tx().Err() != nil {
		return err
	}
	return &cli.FileError{File: file, What: fmt.Sprintf("bucket %s has rows with columns of blobs, and %s cannot have this value there: %s", cli.BriefPath(path), cli.Brief(key), err),
		Next: fmt.Sprintf("%s import --csv --blob-columns puts rows there; give another bucket for other keys", c.Name()), Err: err}
}
