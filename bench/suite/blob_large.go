package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/blob"
)

// refName is the key of the row that names the large blob.
var refName = []byte("ref")

// buildLargeBlob makes a database with one blob of so many bytes, and a row that names it,
// in one transaction.
func buildLargeBlob(path string, size int64) error {
	db, err := createBlobs(path)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		s, err := openStore(tx)
		if err != nil {
			return err
		}
		w := s.Writer()
		if _, err := w.ReadFrom(newLargeReader(size)); err != nil {
			return err
		}
		ref, err := w.Commit()
		if err != nil {
			return err
		}
		row, err := ref.AppendBinary(nil)
		if err != nil {
			return err
		}
		return tx.Bucket(bucketName).Put(refName, row)
	})
	if err == nil {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// buildIngested is buildLargeBlob in transactions of bounded size, as the command stores a blob.
func buildIngested(path string, size int64) error {
	db, err := createBlobs(path)
	if err != nil {
		return err
	}
	r := newLargeReader(size)
	for done := false; err == nil && !done; {
		err = db.Update(func(tx *holdfast.Tx) error {
			s, err := openStore(tx)
			if err != nil {
				return err
			}
			in, err := s.Ingest("large", blob.IngestOptions{})
			if err != nil {
				return err
			}
			n, err := in.ReadFrom(io.LimitReader(r, 2*blobTx))
			if err != nil || n > 0 {
				return errors.Join(err, in.Save())
			}
			done = true
			ref, err := in.Commit()
			if err != nil {
				return err
			}
			row, err := ref.AppendBinary(nil)
			if err != nil {
				return err
			}
			return tx.Bucket(bucketName).Put(refName, row)
		})
	}
	return errors.Join(err, db.Close())
}

// largeRef is what the row in the file of buildLargeBlob names.
func largeRef(tx *holdfast.Tx) (ref blob.Ref, err error) {
	err = ref.UnmarshalBinary(tx.Bucket(bucketName).Get(refName))
	return ref, err
}

// stockPiece is how long the values are in which bbolt holds the same bytes.
const stockPiece = 64 << 10

// buildLargeStock makes a bbolt database with the same bytes, in values under numbers.
func buildLargeStock(path string, size int64) error {
	to, err := openStockSink(path, false)
	if err != nil {
		return err
	}
	s := to.(*stockSink)
	r := newLargeReader(size)
	pieces := make([]byte, blobTx)
	for err == nil {
		var n int
		n, err = io.ReadFull(r, pieces)
		if n == 0 {
			break
		}
		if err == io.ErrUnexpectedEOF {
			err = nil // the last ones
		}
		if err == nil {
			err = s.begin()
		}
		for at := 0; at < n && err == nil; at += stockPiece {
			err = s.put(pieces[at:min(at+stockPiece, n)])
		}
		if err == nil {
			err = s.commit()
		}
	}
	if err == io.EOF {
		err = nil
	}
	if err == nil {
		err = s.db.Sync()
	}
	return errors.Join(err, s.close())
}

// buildLargeFile makes a file with the same bytes.
func buildLargeFile(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, newLargeReader(size), make([]byte, 1<<20))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// largeKind is a way to keep the bytes of a large blob.
type largeKind struct {
	name  string
	build func(path string, size int64) error
	open  func(path string) (large, error)
}

// large is an open file with a large blob.
type large interface {
	// verified reads all and verifies it, or hashes it where there is nothing to verify with.
	verified() (int64, error)
	// copied reads all into a buffer.
	copied(buf []byte) (int64, error)
	// readAt reads len(p) bytes.
	readAt(p []byte, offset int64) error
	close() error
}

var largeKinds = []largeKind{
	{blobOurs, buildLargeBlob, openLargeBlob},
	{blobStockSeq, buildLargeStock, openLargeStock},
	{blobFiles, buildLargeFile, openLargeFile},
}

type largeBlob struct {
	db *holdfast.DB
	tx *holdfast.Tx
	r  *blob.Reader
}

func openLargeBlob(path string) (large, error) {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	l := &largeBlob{db: db}
	if l.tx, err = db.Begin(false); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s, err := openStore(l.tx)
	var ref blob.Ref
	if err == nil {
		ref, err = largeRef(l.tx)
	}
	if err == nil {
		l.r, err = s.Reader(ref)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// counted counts what is written to it.
type counted int64

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

func (l *largeBlob) verified() (int64, error) {
	if _, err := l.r.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	var n counted
	_, err := l.r.WriteTo(&n)
	return int64(n), err
}

func (l *largeBlob) copied(buf []byte) (int64, error) {
	if _, err := l.r.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	return readThrough(l.r, buf)
}

// readThrough reads all into a buffer.
func readThrough(r io.Reader, buf []byte) (n int64, err error) {
	for {
		m, err := r.Read(buf)
		n += int64(m)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func (l *largeBlob) readAt(p []byte, offset int64) error {
	_, err := l.r.ReadAt(p, offset)
	return err
}

func (l *largeBlob) close() error { return errors.Join(l.tx.Rollback(), l.db.Close()) }

// detachedBlob is a largeBlob that reads parts in transactions of their own.
type detachedBlob struct {
	*largeBlob
	r *blob.DetachedReader
}

func (l *largeBlob) detached() (large, error) {
	r, err := blob.OpenReader(context.Background(), l.db, openStore, l.r.Ref())
	return &detachedBlob{l, r}, err
}

func (d *detachedBlob) readAt(p []byte, offset int64) error {
	_, err := d.r.ReadAt(p, offset)
	return err
}

type largeStock struct {
	db *bbolt.DB
	tx *bbolt.Tx
	b  *bbolt.Bucket
}

func openLargeStock(path string) (large, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	tx, err := db.Begin(false)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &largeStock{db, tx, tx.Bucket(blobsName)}, nil
}

func (l *largeStock) each(fn func(v []byte)) (n int64, err error) {
	err = l.b.ForEach(func(_, v []byte) error {
		fn(v)
		n += int64(len(v))
		return nil
	})
	return n, err
}

func (l *largeStock) verified() (int64, error) {
	var s hashSink
	return l.each(func(v []byte) { _ = s.put(v) })
}

func (l *largeStock) copied(buf []byte) (int64, error) {
	return l.each(func(v []byte) { copy(buf, v) })
}

func (l *largeStock) readAt(p []byte, offset int64) error {
	for len(p) > 0 {
		v := l.b.Get(numberKey(uint64(offset/stockPiece) + 1))
		at := offset % stockPiece
		if int64(len(v)) <= at {
			return fmt.Errorf("no value holds the byte at %d", offset)
		}
		n := copy(p, v[at:])
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}

func (l *largeStock) close() error { return errors.Join(l.tx.Rollback(), l.db.Close()) }

type largeFile struct{ f *os.File }

func openLargeFile(path string) (large, error) {
	f, err := os.Open(path)
	return largeFile{f}, err
}

func (l largeFile) verified() (int64, error) {
	var s hashSink
	buf := make([]byte, stockPiece)
	if _, err := l.f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	for n := int64(0); ; {
		m, err := io.ReadFull(l.f, buf)
		_ = s.put(buf[:m])
		n += int64(m)
		switch err {
		case io.EOF, io.ErrUnexpectedEOF:
			return n, nil
		case nil:
		default:
			return n, err
		}
	}
}

func (l largeFile) copied(buf []byte) (int64, error) {
	if _, err := l.f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	return readThrough(l.f, buf)
}

func (l largeFile) readAt(p []byte, offset int64) error {
	_, err := l.f.ReadAt(p, offset)
	return err
}

func (l largeFile) close() error { return l.f.Close() }
