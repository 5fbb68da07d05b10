package holdfast

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// Copy is WriteTo without the count.
//
// Deprecated: use WriteTo.
func (tx *Tx) Copy(w io.Writer) error {
	_, err := tx.WriteTo(w)
	return err
}

// CopyFile writes the database as the transaction sees it to a file, which is
// created with mode or overwritten. The database can be used meanwhile. If it
// fails the file is not removed.
func (tx *Tx) CopyFile(path string, mode os.FileMode) error {
	if err := tx.usable(); err != nil {
		return err
	}
	f, err := tx.db.openCopy(path, mode)
	if err != nil {
		return err
	}
	if _, err := tx.WriteTo(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func (db *DB) openCopy(path string, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
}

// WriteTo writes the database as the transaction sees it, Size bytes. Its
// metas name no freelist page, so opening the copy scans it.
func (tx *Tx) WriteTo(w io.Writer) (n int64, err error) {
	if err := tx.usable(); err != nil {
		return 0, err
	}
	if err := tx.waitForBase(); err != nil {
		return 0, err
	}
	src, closeSrc, err := tx.copySource()
	if err != nil {
		return 0, err
	}
	defer closeSrc()

	ps := tx.db.pager.PageSize()
	n, err = tx.writeMetas(w, ps)
	if err != nil {
		return n, err
	}
	// Pages that are free in this state may change while they are copied;
	// they are not read in the copy.
	rest := io.Reader(io.NewSectionReader(src, n, tx.Size()-n))
	if tx.foreign != nil {
		rest = &confirmed{rest, tx}
	}
	m, err := io.CopyBuffer(struct{ io.Writer }{w}, rest, make([]byte, copyBytes))
	n += m
	if err == nil && n != tx.Size() {
		err = fmt.Errorf("copy %s: %w: %d of %d bytes", tx.db.path, io.ErrUnexpectedEOF, n, tx.Size())
	}
	return n, cmp.Or(tx.confirmed(), err)
}

// copyBytes is how much is copied at a time.
const copyBytes = 1 << 20

// confirmed reads the file of a database that another process has open: what it has read counts if the process has not ended
// meanwhile.
type confirmed struct {
	io.Reader
	tx *Tx
}

func (c *confirmed) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if gone := c.tx.foreign.Live(); gone != nil {
		return 0, c.tx.keep(gone)
	}
	return n, err
}

// copySource is where the pages are read from.
func (tx *Tx) copySource() (io.ReaderAt, func(), error) {
	if tx.WriteFlag == 0 {
		return tx.db.pager.File(), func() {}, nil
	}
	f, err := os.OpenFile(tx.db.path, os.O_RDONLY|tx.WriteFlag, 0)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil
}

// writeMetas writes both meta pages of the copy: slot 0, with an even label,
// holds the state; slot 1 the same with the label before it.
func (tx *Tx) writeMetas(w io.Writer, pageSize int) (n int64, err error) {
	m := tx.state.Meta
	m.Freelist = page.NoFreelist
	m.Label += m.Label%2 + 2 // even, and not so small that slot 1 has none before it
	buf := make([]byte, pageSize)
	for slot := page.ID(0); slot < 2; slot++ {
		page.EncodeMeta(buf, slot, m, nil)
		if slot == 0 && tx.state.Sum.Known {
			if err := tx.putSum(buf); err != nil {
				return n, fmt.Errorf("meta %d copy: %w", slot, err)
			}
		}
		k, err := w.Write(buf)
		n += int64(k)
		if err != nil {
			return n, fmt.Errorf("meta %d copy: %w", slot, err)
		}
		m.Label--
	}
	return n, nil
}

// putSum records in a meta page of the copy what the pages of the state add up to.
func (tx *Tx) putSum(meta []byte) error {
	ext := &extension.Extension{Tx: tx.state.Tx, Sum: tx.state.Sum}
	h, err := extension.NewHasher(ext.Key)
	if err != nil { // there are no checksums here
		return nil
	}
	return extension.Encode(meta, ext, h)
}
