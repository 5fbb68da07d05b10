package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
	"holdfast/command/internal/rows"
)

// newTable makes the description from the first row, which has the names of the columns if header is set.
func newTable(row []string, key int, f csvFlags) (*rows.Table, error) {
	t := &rows.Table{Version: rows.Version, Columns: len(row), Key: key, Store: rows.EncodePath(f.store)}
	var names []string
	if f.header {
		names = slices.Clone(row)
		t.Names = names
		for _, name := range names {
			if !utf8.ValidString(name) {
				return nil, fmt.Errorf("the name %s of a column is not UTF-8", cli.Shorten(name))
			}
		}
	}
	for _, column := range f.blobColumns {
		i, err := findColumn("blob-columns", column, names)
		switch {
		case err != nil:
			return nil, err
		case i >= len(row):
			return nil, cli.Usagef("--blob-columns: there is no column %d: the first row has %s", i+1, cli.Plural(len(row), "column"))
		case i == key:
			return nil, cli.Usagef("--blob-columns: column %d is that of the key", i+1)
		case slices.Contains(t.Blobs, i):
			return nil, cli.Usagef("--blob-columns: column %d is given twice", i+1)
		}
		t.Blobs = append(t.Blobs, i)
	}
	slices.Sort(t.Blobs)
	return t, nil
}

// rowFields are the fields of a row, whose columns t describes, but that of the key.
func (c *csvRows) rowFields(row []string) (fields [][]byte, err error) {
	if len(row) != c.table.Columns {
		return nil, fmt.Errorf("the row has %s, and the first has %d", cli.Plural(len(row), "column"), c.table.Columns)
	}
	fields = make([][]byte, 0, len(row)-1)
	for i, text := range row {
		if i == c.key {
			continue
		}
		b, err := csvBytes(text, c.formatOfValues)
		if err != nil {
			return nil, fmt.Errorf("column %d, %s: %w", i+1, cli.Shorten(text), err)
		}
		fields = append(fields, b)
	}
	return fields, nil
}

// tableStore opens the store of the table in the transaction, and creates it if that may be.
func (m *importer) tableStore(path [][]byte) (*blob.Store, error) {
	if err := m.NotInside(m.r.File, m.tx, path); err != nil {
		return nil, err
	}
	at, created, err := m.LocateOrCreate(m.r.File, m.tx, path, m.create)
	if err != nil {
		return nil, cli.WithCreate(cli.WithSlash(m.tx, path, err))
	}
	if created == 0 {
		return m.OpenStore(m.r.File, at, path)
	}
	m.r.CreatedBuckets += uint64(created)
	key, err := m.BlobKey()
	if err != nil {
		return nil, err
	}
	return blob.Create(at.Bucket, blob.Options{Key: key})
}

// beginTable looks whether the rows fit those that the bucket has, and opens the store of their blobs. In a
// dry run it is nil where it would be created.
func (m *importer) beginTable(b *holdfast.Bucket, t *rows.Table) error {
	if m.tx == nil {
		return nil
	}
	if b != nil {
		old, err := rows.Read(b)
		switch {
		case err != nil:
			return err
		case old != nil && !t.Same(old):
			return m.conflict(1, "", "bucket %s has rows of other columns, or with another store", cli.BriefPath(m.path))
		case old == nil && !rows.IsEmpty(b):
			return m.conflict(1, "; give another bucket", "bucket %s has keys that are not rows with columns of blobs", cli.BriefPath(m.path))
		}
	}
	path, err := t.StorePath()
	if err != nil {
		return err
	}
	if !m.r.DryRun {
		if m.blobs, err = m.tableStore(path); err != nil {
			return err
		}
		if m.blobs.InlineUpTo(-1); m.inline {
			m.blobs.InlineUpTo(blob.MaxInline)
		}
		if m.inline && m.blobs.Options().Key != nil {
			return cli.Usagef("--inline: the store is encrypted, and keeps no blobs in rows")
		}
		return t.Write(b)
	}
	at, err := m.Locate(m.r.File, m.tx, path)
	if errors.Is(err, cli.ErrNoBucket) && m.create {
		return nil
	}
	if err == nil {
		m.blobs, err = m.OpenStore(m.r.File, at, path)
	}
	return cli.WithCreate(err)
}

// rowValue is the value of a row, with its blobs stored.
func (m *importer) rowValue(t *rows.Table, r record) ([]byte, error) {
	var value []byte
	for i, column := 0, 0; column < t.Columns; column++ {
		if column == t.Key {
			continue
		}
		field := r.fields[i]
		i++
		if t.IsBlob(column) {
			ref, err := m.blobs.Put(field)
			if err != nil {
				return nil, err
			}
			m.r.Blobs++
			m.r.BlobBytes += uint64(len(field))
			if field, err = ref.MarshalBinary(); err != nil {
				return nil, err
			}
		}
		value = t.AppendField(value, field)
	}
	if int64(len(value)) > holdfast.MaxValueSize {
		return nil, m.conflict(r.line, "; --blob-columns keeps long ones out of the row", "the columns of %s are too large: at most %s", cli.Brief(r.key), cli.SizeExactly(holdfast.MaxValueSize))
	}
	return value, nil
}

// sameRow tells whether a row in the database says what one of the input does.
func (m *importer) sameRow(t *rows.Table, old []byte, r record) (bool, error) {
	i, same := 0, true
	err := t.Fields(old, func(column int, field []byte) error {
		want := r.fields[i]
		i++
		if !same {
			return nil
		}
		if !t.IsBlob(column) {
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
	if errors.Is(err, rows.ErrRow) || errors.Is(err, blob.ErrInvalidRef) || errors.Is(err, blob.ErrAlgorithm) { // something else was put there
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
func (m *importer) dropRow(t *rows.Table, old []byte) error {
	err := t.Fields(old, func(column int, field []byte) error {
		if !t.IsBlob(column) {
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
	if errors.Is(err, rows.ErrRow) || errors.Is(err, blob.ErrInvalidRef) {
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
		return content{strings.NewReader(string(inline)), int64(len(inline))}, nil
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
	buf := make([]byte, min(len(b), cli.InputChunk))
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
func tableRow(t *rows.Table, s *blob.Store, key, value []byte, f *exportFlags, r *exportReport) ([]string, error) {
	row := make([]string, t.Columns)
	write := func(i int, b []byte, format string) {
		r.noText = r.noText || format == "auto" && !cli.Printable(b)
		row[i] = cli.FormatBytes(b, format)
	}
	write(t.Key, key, f.keyFormat)
	err := t.Fields(value, func(column int, field []byte) error {
		if t.IsBlob(column) {
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
		return nil, fmt.Errorf("row %s: %w", cli.Brief(key), err)
	}
	return row, nil
}

// parseBlobColumns reads --blob-columns.
func parseBlobColumns(s string) ([]string, error) {
	columns := strings.Split(s, ",")
	if slices.Contains(columns, "") {
		return nil, cli.Usagef("--blob-columns: a column without a name in %q", s)
	}
	return columns, nil
}
