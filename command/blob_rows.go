package command

import (
	"fmt"

	"holdfast"
	"holdfast/blob"
)

// takes is an error if a value is no row of a bucket whose columns t describes: one that is breaks the export of
// all. A nil t takes all values.
func (t *table) takes(value []byte) error {
	if t == nil {
		return nil
	}
	return t.fields(value, func(column int, field []byte) error {
		var ref blob.Ref
		if t.isBlob(column) && ref.UnmarshalBinary(field) != nil {
			return errRow
		}
		return nil
	})
}

// notRow is an error if the bucket at path has rows with columns of blobs and the value for key is none.
func (c *call) notRow(file string, b *holdfast.Bucket, path [][]byte, key, value []byte) error {
	t, err := readTable(b)
	if err == nil {
		err = t.takes(value)
	}
	if err == nil || b.Tx().Err() != nil {
		return err
	}
	return &fileError{file: file, what: fmt.Sprintf("bucket %s has rows with columns of blobs, and %s cannot have this value there: %s", briefPath(path), brief(key), err),
		next: fmt.Sprintf("%s import --csv --blob-columns puts rows there; give another bucket for other keys", c.name()), err: err}
}

// plainRow is an error if what is to be put into b, not by --blob-columns, is no row and b has rows with columns of
// blobs.
func (m *importer) plainRow(b *holdfast.Bucket, r record) error {
	if m.plain != b {
		t, err := readTable(b)
		if err != nil {
			return err
		}
		m.plain, m.found = b, t
	}
	if m.found == nil || m.rows == nil && m.found.takes(r.value) == nil {
		return nil
	}
	return m.conflict(r.line, "; give the --blob-columns with which they were imported, or another bucket", "bucket %s has rows with columns of blobs", briefPath(r.path))
}
