// Package extension is what Holdfast keeps in a meta page behind bbolt's meta:
// which pages are free, so that nobody has to look for them. docs/format.md has
// the bytes.
//
// bbolt ignores these bytes, and zeroes them in the slot that it writes. An
// extension is believed only if its checksum holds, which also covers the meta
// before it and the page's number. Nothing in this package trusts a byte that
// came from disk.
package extension

import (
	"encoding/binary"
	"errors"
	"fmt"

	"holdfast/internal/page"
)

var order = binary.NativeEndian

// magic begins every extension.
const magic = "HOLDFAST"

// version is that of the layout. An extension of another version is not
// believed, which costs a scan.
const version = 1

// Sizes of the layout, in bytes.
const (
	fixedSize = 112 // before the log runs
	runSize   = 32
	// maxArea bounds the part of a meta page that is used: a write of so much is
	// not torn by the end of a process.
	maxArea = 4096
)

// MaxLogs is the number of log runs that an extension names at most.
const MaxLogs = 8

// ErrNone says that there is no extension, as in what bbolt writes.
var ErrNone = errors.New("no extension")

// Extension is what one meta page says besides its meta.
type Extension struct {
	Database [16]byte // id of the file; zero in this version
	Key      [16]byte // of the checksums; zero in this version
	Tx       page.TxID
	// List is how many pages the freelist page of this slot has, and OtherList
	// is that of the other slot. Both are in use, and in no tree.
	List      uint32
	OtherList page.Extent
	Free      FreeSet
}

// FreeSet is the set of unused pages: a snapshot, and what changed since.
type FreeSet struct {
	Count    uint64 // pages in the set
	Snapshot Run    // zero: the set begins empty
	Logs     []Run  // changes, oldest first
	Inline   []byte // the newest changes
}

// Run is pages that hold a part of a free set. They are in use, and in no tree.
type Run struct {
	Start page.ID
	Pages uint32 // reserved
	Bytes uint32 // that mean something
	Hash  Hash   // of those
}

// Extent is the run's pages.
func (r Run) Extent() page.Extent { return page.Extent{Start: r.Start, N: uint64(r.Pages)} }

// Room is how many bytes of inline changes fit behind so many log runs.
func Room(pageSize, logs int) int {
	return min(pageSize, maxArea) - page.ExtensionOffset - fixedSize - logs*runSize - len(Hash{})
}

// Encode writes e behind the meta of a meta page, which must be there already.
// h makes checksums with e.Key.
func Encode(buf []byte, e *Extension, h *Hasher) error {
	if len(e.Free.Logs) > MaxLogs || len(e.Free.Inline) > Room(len(buf), len(e.Free.Logs)) {
		return fmt.Errorf("an extension of %d log runs and %d bytes does not fit", len(e.Free.Logs), len(e.Free.Inline))
	}
	b := buf[page.ExtensionOffset:]
	clear(b)
	size := fixedSize + len(e.Free.Logs)*runSize + len(e.Free.Inline) + len(Hash{})
	copy(b, magic)
	b[8] = version
	order.PutUint32(b[12:], uint32(size))
	copy(b[16:32], e.Database[:])
	copy(b[32:48], e.Key[:])
	order.PutUint64(b[48:], uint64(e.Tx))
	order.PutUint64(b[56:], e.Free.Count)
	putRun(b[64:], e.Free.Snapshot)
	order.PutUint32(b[96:], e.List)
	order.PutUint32(b[100:], uint32(e.OtherList.N))
	order.PutUint64(b[104:], uint64(e.OtherList.Start))
	at := fixedSize
	b[9] = byte(len(e.Free.Logs))
	for _, r := range e.Free.Logs {
		putRun(b[at:], r)
		at += runSize
	}
	at += copy(b[at:], e.Free.Inline)
	sum := h.Sum(OfMeta, 0, buf[:page.ExtensionOffset+at])
	copy(b[at:], sum[:])
	return nil
}

func putRun(b []byte, r Run) {
	order.PutUint64(b, uint64(r.Start))
	order.PutUint32(b[8:], r.Pages)
	order.PutUint32(b[12:], r.Bytes)
	copy(b[16:32], r.Hash[:])
}

// Decode reads the extension of a meta page. It returns ErrNone if there is
// none, and another error if it is not to be believed.
func Decode(buf []byte) (*Extension, error) {
	if len(buf) < page.ExtensionOffset+fixedSize+len(Hash{}) {
		return nil, ErrNone
	}
	b := buf[page.ExtensionOffset:]
	if string(b[:len(magic)]) != magic {
		return nil, ErrNone
	}
	if b[8] != version {
		return nil, fmt.Errorf("extension of version %d, this program knows %d", b[8], version)
	}
	size := uint64(order.Uint32(b[12:]))
	logs := int(b[9])
	start := fixedSize + logs*runSize
	if logs > MaxLogs || size > uint64(len(b)) || size < uint64(start+len(Hash{})) {
		return nil, fmt.Errorf("extension of %d bytes with %d log runs", size, logs)
	}
	end := int(size) - len(Hash{})
	e := &Extension{
		Database:  [16]byte(b[16:32]),
		Key:       [16]byte(b[32:48]),
		Tx:        page.TxID(order.Uint64(b[48:])),
		List:      order.Uint32(b[96:]),
		OtherList: page.Extent{Start: page.ID(order.Uint64(b[104:])), N: uint64(order.Uint32(b[100:]))},
		Free: FreeSet{
			Count:    order.Uint64(b[56:]),
			Snapshot: getRun(b[64:]),
			Inline:   b[start:end:end],
		},
	}
	h, err := NewHasher(e.Key)
	if err != nil {
		return nil, err
	}
	if h.Sum(OfMeta, 0, buf[:page.ExtensionOffset+end]) != Hash(b[end:size]) {
		return nil, errors.New("the extension's checksum does not hold")
	}
	for i := range logs {
		e.Free.Logs = append(e.Free.Logs, getRun(b[fixedSize+i*runSize:]))
	}
	return e, nil
}

func getRun(b []byte) Run {
	return Run{
		Start: page.ID(order.Uint64(b)), Pages: order.Uint32(b[8:]), Bytes: order.Uint32(b[12:]), Hash: Hash(b[16:32]),
	}
}

// Check tells whether a run can be one of a state with that high-water mark.
func (r Run) Check(highWater page.ID, pageSize int) error {
	if r.Start < page.FirstDataPage || r.Start >= highWater || uint64(r.Pages) > uint64(highWater-r.Start) || r.Pages == 0 {
		return page.Corruptf(r.Start, "a run of %d pages of free-space records from here, pages are %d to %d", r.Pages, page.FirstDataPage, highWater-1)
	}
	if uint64(r.Bytes) > uint64(r.Pages)*uint64(pageSize) {
		return page.Corruptf(r.Start, "free-space records of %d bytes in %d pages", r.Bytes, r.Pages)
	}
	return nil
}
