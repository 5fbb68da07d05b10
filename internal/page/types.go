// Package page converts between bytes and the structures of the bbolt v2 file format: page
// headers, branch, leaf, meta and freelist pages, the bucket header that is stored as a
// value, and the checksum at the end of a page, the seal. It knows nothing of files and
// transactions. docs/format.md has the bytes.
//
// Every decode is bounds-checked and returns an error, a *CorruptError that names the
// page; nothing in this package trusts a byte that came from disk. Numbers are in the byte
// order of the machine, as bbolt writes them.
//
// An Image is the mapped file up to a high-water mark; a Page is a run of it that was
// parsed; an Encoder lays out a new one:
//
//	Image ──Page(id)──▸ Page ──Search, Leaf, Branch──▸ key, value, child
//	NewLeaf, NewBranch ──▸ Encoder ──Leaf, Branch──▸ ──Finish──▸ a run of pages
package page

import (
	"errors"
	"fmt"
)

// ID is a page number: the page's offset in the file divided by the page size.
// (bbolt calls it pgid.)
type ID uint64

// Label is the transaction id that stands in a v2 meta page. It decides which
// of the two metas wins and in which slot a meta is written (label mod 2). It
// is a label and nothing more: see TxID.
type Label uint64

// TxID is Holdfast's own transaction number. It is dense: each committed
// transaction takes the next one. It is what Tx.ID returns and what decides
// when a page may be reused.
type TxID uint64

// NoFreelist is the freelist pgid of a meta that names no freelist page:
// an opening finds the free pages in another way.
const NoFreelist = ^ID(0)

// Page flags. A page carries exactly one of them.
const (
	FlagBranch   uint16 = 0x01
	FlagLeaf     uint16 = 0x02
	FlagMeta     uint16 = 0x04
	FlagFreelist uint16 = 0x10
)

// BucketFlag marks a leaf element whose value is a bucket header.
const BucketFlag uint32 = 0x01

// Sizes of the format, in bytes.
const (
	HeaderSize        = 16 // page header
	BranchElementSize = 16
	LeafElementSize   = 16
	BucketHeaderSize  = 16 // root pgid and sequence
	MetaSize          = 64 // v2 meta, after the page header
	ExtensionOffset   = HeaderSize + MetaSize
)

// Limits of the format.
const (
	// MinPageSize and MaxPageSize bound the page sizes that are accepted, in
	// bytes. bbolt probes 1024 to 16 MiB for the second meta page.
	MinPageSize = 512
	MaxPageSize = 16 << 20

	// MaxCount is the largest number of elements of one page.
	MaxCount = 0xFFFE

	// FirstDataPage is the lowest page that can hold anything but a meta.
	FirstDataPage ID = 2

	// MaxKeySize is the largest key, in bytes.
	MaxKeySize = 32768
	// MaxValueSize is the largest value, in bytes.
	MaxValueSize = (1 << 31) - 2
)

// Errors of a meta page, compared with == by callers of bbolt.
var (
	ErrInvalid         = errors.New("invalid database")
	ErrVersionMismatch = errors.New("version mismatch")
	ErrChecksum        = errors.New("checksum error")
)

// CorruptError reports damage found in a file. It names the page where the
// damage was met.
type CorruptError struct {
	Page   ID
	Reason string
	Err    error  // what it wraps: ErrUnreadable, or what opening found; or nil
	File   string // set where the error is a panic; else what wraps the error names the file
}

func (e *CorruptError) Error() string {
	if e.File != "" {
		return fmt.Sprintf("%s is damaged: page %d: %s (keep a copy of the file; \"holdfast doctor\" says what is sound in it, and docs/recovering.md what to do)",
			e.File, e.Page, e.Reason)
	}
	return fmt.Sprintf("page %d: %s", e.Page, e.Reason)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Corruptf makes a CorruptError.
func Corruptf(id ID, format string, args ...any) *CorruptError {
	return &CorruptError{Page: id, Reason: fmt.Sprintf(format, args...)}
}

// NoPage is the error of page number id, which something names, in a file whose pages
// are those below limit.
func NoPage(id, limit ID) *CorruptError {
	if limit <= FirstDataPage {
		return Corruptf(id, "it is not a page of this database, which is too short to have any but its meta pages")
	}
	return Corruptf(id, "it is not a page of this database, whose pages are %d to %d", FirstDataPage, limit-1)
}

// beyond is the error of n pages from id on that are not all pages below limit.
func beyond(id ID, n uint64, limit ID) *CorruptError {
	if id >= limit {
		return NoPage(id, limit)
	}
	return TooLong(id, n, limit)
}

// wrongNumber is the error of page id whose header h gives another number.
func wrongNumber(id ID, h Header) *CorruptError {
	if h == (Header{}) {
		return Corruptf(id, "it is empty: it begins with zeros, and not with its number")
	}
	return Corruptf(id, "the page says that it is page %d", h.ID)
}

// TooLong is the error of a page that says that it is n pages long, of a file whose
// pages are those below limit.
func TooLong(id ID, n uint64, limit ID) *CorruptError {
	return Corruptf(id, "it says that it has %d pages, and the last page of this database is page %d", n, limit-1)
}

// Extent is a run of N consecutive pages that begins at Start.
type Extent struct {
	Start ID
	N     uint64
}

// End is the first page after the extent.
func (e Extent) End() ID { return e.Start + ID(e.N) }
