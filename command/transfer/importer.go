package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
	"holdfast/command/internal/rows"
)

// importBatch is about how many bytes of keys and values go into one transaction of a file
// that no other process sees yet.
const importBatch = 8 << 20

// importHeld is about how many bytes of what it has changed a transaction has in memory before it
// writes them early.
const importHeld = 8 << 20

// recordBytes is about what a key takes in memory besides its bytes.
const recordBytes = 64

// importer puts the records of a source into a database, or looks what would become of it.
type importer struct {
	*cli.Call
	ctx     context.Context
	in      *cli.Input
	src     source
	create  bool // buckets that do not exist
	replace bool
	r       importReport

	rows [][]byte // with CSV: the bucket of the rows

	tx   *holdfast.Tx       // nil in a dry run without a database
	path [][]byte           // of the bucket of the last record
	at   []*holdfast.Bucket // the same opened; nil in a dry run where it does not exist
	last record             // in a dry run: to see whether the input is in order

	old []byte // scratch: what a key had

	table  *rows.Table // of rows with columns of blobs; nil: there are none
	blobs  *blob.Store // of those; nil in a dry run where it does not exist
	inline bool        // short blobs stay in the row

	plain *holdfast.Bucket // whose keys were put last, without columns of blobs
	found *rows.Table      // what it has; nil: no such rows
}

// all imports all records in one transaction.
func (m *importer) all(tx *holdfast.Tx) error {
	_, err := m.some(tx, 0)
	return err
}

// some imports records in tx until they have so many bytes, 0: all. more says that there
// may be others.
func (m *importer) some(tx *holdfast.Tx, limit int64) (more bool, err error) {
	m.tx, m.path, m.at, m.plain = tx, nil, m.at[:0], nil
	if err := m.notStore(); err != nil {
		return true, err
	}
	if m.table != nil { // which an earlier transaction has begun
		path, err := m.table.StorePath()
		if err == nil {
			m.blobs, err = m.tableStore(path)
		}
		if err != nil {
			return true, err
		}
	}
	for held := int64(0); limit == 0 || held < limit; {
		r, err := m.src.next()
		if err == io.EOF {
			return false, m.ctx.Err()
		}
		if err != nil {
			return false, m.badInput(err)
		}
		if err := m.add(r); err != nil {
			return false, err
		}
		if tx != nil && tx.Writable() {
			if _, err := tx.Spill(importHeld); err != nil {
				return false, err
			}
		}
		held += r.bytes()
	}
	return true, m.ctx.Err()
}

// notStore is an error if the rows of CSV would go into a store of blobs, where nothing but its own can be. What export
// has written of a store goes where it came from.
func (m *importer) notStore() error {
	if m.rows == nil || m.tx == nil {
		return nil
	}
	if err := m.NotInside(m.r.File, m.tx, m.rows); err != nil {
		return err
	}
	at := cli.Container{Tx: m.tx}
	for _, name := range m.rows {
		if at.Bucket = at.Child(name); at.Bucket == nil {
			return m.tx.Err()
		}
	}
	if blob.IsStore(at.Bucket) {
		return &cli.FileError{File: m.r.File, What: fmt.Sprintf("bucket %s is a store of blobs", cli.BriefPath(m.rows)), Next: "give another bucket for the rows", Err: cli.ErrNoBucket}
	}
	return m.tx.Err()
}

func (m *importer) add(r record) error {
	if m.r.DryRun {
		if err := m.order(r); err != nil {
			return err
		}
	}
	b, err := m.bucket(r)
	if err != nil {
		return err
	}
	if r.kind == bucketLine {
		if m.table = r.table; m.table != nil {
			return m.beginTable(b, m.table)
		}
		return m.sequence(b, r)
	}
	m.r.Keys++
	switch {
	case len(r.key) == 0:
		return m.conflict(r.line, "", "the key is empty")
	case len(r.key) > holdfast.MaxKeySize:
		return m.conflict(r.line, "", "the key %s is too large: at most %s", cli.Brief(r.key), cli.SizeExactly(holdfast.MaxKeySize))
	case int64(len(r.value)) > holdfast.MaxValueSize:
		return m.conflict(r.line, "", "the value of %s is too large: at most %s", cli.Brief(r.key), cli.SizeExactly(holdfast.MaxValueSize))
	case b == nil: // in a dry run, a bucket that would be created
		m.r.NewKeys++
		return nil
	}
	return m.put(b, r)
}

func (m *importer) put(b *holdfast.Bucket, r record) error {
	if m.table == nil {
		if err := m.plainRow(b, r); err != nil {
			return err
		}
	}
	old := m.value(b, r.key)
	same, err := old != nil && bytes.Equal(old, r.value), error(nil)
	if old != nil && m.table != nil {
		if same, err = m.sameRow(m.table, old, r); err != nil {
			return err
		}
	}
	switch {
	case same:
		m.r.UnchangedKeys++
		return nil
	case old != nil && !m.replace:
		return m.differs(r)
	case old != nil:
		m.r.ReplacedKeys++
	case m.tx.Err() != nil:
		return m.tx.Err()
	default:
		m.r.NewKeys++
	}
	if !m.r.DryRun {
		err = m.set(b, r, old)
	} else if old == nil && b.Bucket(r.key) != nil {
		err = holdfast.ErrIncompatibleValue
	}
	if errors.Is(err, holdfast.ErrIncompatibleValue) {
		return m.conflict(r.line, "", "%s is a bucket in %s and cannot have a value", cli.Brief(r.key), m.r.File)
	}
	return err
}

// value is a copy of what key has, nil if it has none. It is valid until the next call.
func (m *importer) value(b *holdfast.Bucket, key []byte) []byte {
	if cap(m.old) == 0 || cap(m.old) > cli.InputChunk {
		m.old = make([]byte, 0, 1<<10) // nothing found is nil, and an empty value is not
	}
	old, found := b.AppendValue(m.old[:0], key)
	if !found {
		return nil
	}
	m.old = old
	return old
}

// set puts the value of the record in the place of another, if there is one.
func (m *importer) set(b *holdfast.Bucket, r record, old []byte) (err error) {
	if m.table != nil {
		// First what it had: a row whose blob is gone has no user of it, and would otherwise give up the one of the
		// same blob that is just put.
		if old != nil {
			err = m.dropRow(m.table, old)
		}
		if err == nil {
			r.value, err = m.rowValue(m.table, r)
		}
	}
	if err == nil {
		err = b.Put(r.key, r.value)
	}
	return err
}

// bytes is about what the record takes in memory.
func (r *record) bytes() int64 {
	n := recordBytes + int64(len(r.key)+len(r.value))
	for _, field := range r.fields {
		n += int64(len(field))
	}
	return n
}

// sameValue tells whether both have the same value.
func (r *record) sameValue(o *record) bool {
	return bytes.Equal(r.value, o.value) && slices.EqualFunc(r.fields, o.fields, bytes.Equal)
}

// differs is the error of a key that has another value.
func (m *importer) differs(r record) error {
	return m.conflict(r.line, "; --replace replaces it", "key %s in %s has another value already", cli.Brief(r.key), cli.BriefPath(r.path))
}

// sequence sets the bucket's sequence to that of the record.
func (m *importer) sequence(b *holdfast.Bucket, r record) error {
	old := uint64(0)
	if b != nil {
		old = b.Sequence()
	}
	switch {
	case r.sequence == 0 || r.sequence == old: // an export has none where it is 0
		return nil
	case old != 0 && !m.replace:
		return m.conflict(r.line, "; --replace replaces it", "bucket %s has the sequence %d already, not %d", cli.BriefPath(r.path), old, r.sequence)
	}
	m.r.SetSequences++
	if m.r.DryRun {
		return nil
	}
	return b.SetSequence(r.sequence)
}

// bucket opens the bucket of the record, and creates it where it does not exist.
func (m *importer) bucket(r record) (*holdfast.Bucket, error) {
	same := 0
	for same < min(len(r.path), len(m.at)) && bytes.Equal(r.path[same], m.path[same]) {
		same++
	}
	m.path, m.at = r.path, m.at[:same]
	for i := same; i < len(r.path); i++ {
		in := cli.Container{Tx: m.tx}
		absent := m.tx == nil
		if i > 0 {
			in.Bucket = m.at[i-1]
			absent = in.Bucket == nil
		}
		var b *holdfast.Bucket
		if !absent {
			if b = in.Child(r.path[i]); b == nil && m.tx.Err() != nil {
				return nil, m.tx.Err()
			}
		}
		if b == nil {
			var err error
			if b, err = m.newBucket(in, r, i, absent); err != nil {
				return nil, err
			}
			m.r.CreatedBuckets++
		}
		m.at = append(m.at, b)
	}
	return m.at[len(r.path)-1], nil
}

// newBucket creates the bucket r.path[:i+1] in the one given; absent: that does not exist
// either, in a dry run.
func (m *importer) newBucket(in cli.Container, r record, i int, absent bool) (b *holdfast.Bucket, err error) {
	name, path := r.path[i], r.path[:i+1]
	if !m.create && !absent {
		err := m.NoBucket(m.r.File, in, path)
		var e *cli.FileError
		if errors.As(err, &e) {
			e.Next += "; --create creates it"
			if m.in.File == nil && isFile(string(name)) {
				e.Next += fmt.Sprintf("; if the file %s is the input, give it as --input", cli.ShellWord(string(name)))
			}
		}
		return nil, err
	}
	switch {
	case len(name) > holdfast.MaxKeySize:
		err = holdfast.ErrKeyTooLarge
	case !m.r.DryRun:
		b, err = in.Create(name)
	case !absent && in.Bucket != nil && in.Get(name) != nil:
		err = holdfast.ErrIncompatibleValue
	}
	switch {
	case errors.Is(err, holdfast.ErrIncompatibleValue):
		return nil, m.conflict(r.line, "", "%s is a key in %s and cannot be a bucket", cli.BriefPath(path), m.r.File)
	case errors.Is(err, holdfast.ErrKeyTooLarge):
		return nil, m.conflict(r.line, "", "the name %s of a bucket is too large: at most %s", cli.Brief(name), cli.SizeExactly(holdfast.MaxKeySize))
	case errors.Is(err, holdfast.ErrTooDeep):
		return nil, m.conflict(r.line, "", "a bucket in %s: %s", cli.Plural(i, "other"), err)
	}
	return b, err
}

// isFile tells whether there is a file of that name.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// order sees in a dry run whether the record comes after the one before in the order of an
// export, and whether both fit together. As long as all are in order nothing can be there twice
// but one after the other.
func (m *importer) order(r record) error {
	last := m.last
	m.last = r
	if last.path == nil || m.r.Unordered {
		return nil
	}
	before, now := last.position(), r.position()
	switch c := slices.CompareFunc(before, now, bytes.Compare); {
	case c > 0:
		m.r.Unordered = true
	case last.kind == keyLine && len(now) > len(before) && slices.EqualFunc(now[:len(before)], before, bytes.Equal),
		c == 0 && last.kind != r.kind:
		return m.conflict(r.line, "", "%s is both a key and a bucket in the input", cli.BriefPath(before))
	case c == 0 && r.kind == keyLine && !last.sameValue(&r) && !m.replace:
		return m.differs(r)
	}
	return nil
}

// position is where the record belongs in an export.
func (r record) position() [][]byte {
	if r.kind == bucketLine {
		return r.path
	}
	return append(r.path[:len(r.path):len(r.path)], r.key)
}
