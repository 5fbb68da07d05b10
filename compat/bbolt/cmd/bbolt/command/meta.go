package command

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"holdfast"
)

// noFreelist stands for no freelist page.
const noFreelist = ^holdfast.Pgid(0)

// Meta is what a meta page says, whether or not it is right.
type Meta struct {
	magic, version, pageSize, flags uint32
	root                            InBucket
	freelist, pgid                  holdfast.Pgid
	txid, checksum                  uint64
}

// InBucket is the header of a bucket.
type InBucket struct {
	root     holdfast.Pgid
	sequence uint64
}

// RootPage is the bucket's root page.
func (b *InBucket) RootPage() holdfast.Pgid { return b.root }

// InSequence is the bucket's sequence.
func (b *InBucket) InSequence() uint64 { return b.sequence }

// Magic is the first field, by which a meta is known.
func (m *Meta) Magic() uint32 { return m.magic }

// Version is the version of the format.
func (m *Meta) Version() uint32 { return m.version }

// PageSize is the size of a page in bytes.
func (m *Meta) PageSize() uint32 { return m.pageSize }

// Flags are unused.
func (m *Meta) Flags() uint32 { return m.flags }

// RootBucket is the bucket of all buckets.
func (m *Meta) RootBucket() *InBucket { return &m.root }

// Freelist is the freelist page, or 2^64-1.
func (m *Meta) Freelist() holdfast.Pgid { return m.freelist }

// IsFreelistPersisted tells whether there is a freelist page.
func (m *Meta) IsFreelistPersisted() bool { return m.freelist != noFreelist }

// Pgid is the high-water mark: the first page never used.
func (m *Meta) Pgid() holdfast.Pgid { return m.pgid }

// Txid is the transaction id.
func (m *Meta) Txid() uint64 { return m.txid }

// Checksum is that of the fields before it, as it stands in the page.
func (m *Meta) Checksum() uint64 { return m.checksum }

// metaBytes is how much ReadMetaPageAt reads.
const metaBytes = 1024

// ReadMetaPageAt reads meta page 0 or 1 of the file at dbPath, with the bytes in which
// it was found. pageSize, in bytes, tells where page 1 is. Nothing is verified.
func ReadMetaPageAt(dbPath string, metaPageId uint32, pageSize uint32) (*Meta, []byte, error) {
	if metaPageId > 1 {
		return nil, nil, fmt.Errorf("there are meta pages 0 and 1, not %d", metaPageId)
	}
	f, err := os.Open(dbPath)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	buf := make([]byte, metaBytes)
	if _, err := f.ReadAt(buf, int64(metaPageId)*int64(pageSize)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, nil, fmt.Errorf("read meta page %d of %s: %w", metaPageId, dbPath, err)
	}
	order, b := binary.NativeEndian, buf[16:] // after the page header
	return &Meta{
		magic: order.Uint32(b), version: order.Uint32(b[4:]), pageSize: order.Uint32(b[8:]), flags: order.Uint32(b[12:]),
		root:     InBucket{holdfast.Pgid(order.Uint64(b[16:])), order.Uint64(b[24:])},
		freelist: holdfast.Pgid(order.Uint64(b[32:])), pgid: holdfast.Pgid(order.Uint64(b[40:])),
		txid: order.Uint64(b[48:]), checksum: order.Uint64(b[56:]),
	}, buf, nil
}
