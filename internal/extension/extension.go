// Package extension is what Holdfast keeps in a meta page after bbolt's meta: which state
// a flush has made newest, and which pages are free, so that no opening has to look for
// them. It knows nothing of files and transactions. docs/format.md has the bytes.
//
// An extension is plain or trailing. A plain one describes the state of the meta before
// it. A trailing one was written together with the pages of a newer state: it lists them
// with a hash, and that state is there if the hash is right.
//
// bbolt ignores these bytes, and zeroes them in the slot that it writes. An extension is
// believed only if its checksum holds, which also covers the meta before it and the page's
// number. Nothing in this package trusts a byte that came from disk.
//
// The free set is recorded as changes, each of them what one transaction took out and put
// in (delta.go): in the extension itself, in log runs, and after a snapshot.
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

// version is that of the layout. A file whose newest meta has a trailing extension of
// another version is refused: it names a state that no other version knows. A plain one is
// as good as none. Version 2 had no Sum; what it says is read all the same.
const version = 3

// Bits of the flags.
const (
	flagTrailing = 1 << iota
	flagFreeSet
	flagSum
	flagBaseSum
)

// Sizes of the layout, in bytes.
const (
	fixedSize = 184 // before the freelists
	sumAt     = 168 // which is where the freelists began in version 2
	baseSumAt = 176
	listSize  = 16
	runSize   = 32
	// maxArea bounds the part of a meta page that is used: a write of so much is
	// not torn by the end of a process.
	maxArea = 4096
)

// Limits of an extension.
const (
	MaxLogs  = 8 // log runs
	MaxLists = 4 // freelists
)

// Why an extension cannot be read, though it may say something that must be known.
var (
	ErrVersion    = fmt.Errorf("%w: written by another version of Holdfast", page.ErrVersionMismatch)
	ErrNoChecksum = errors.New("its checksum cannot be computed")
)

// Why there is nothing to read.
var (
	ErrNone         = errors.New("no extension") // as in what bbolt writes
	ErrPlainVersion = errors.New("another version of Holdfast has recorded the free pages")
)

// Extension is what one meta page says besides its meta.
//
// A plain one belongs to the meta's own state. A trailing one names a newer
// state, T, which one flush wrote together with this page: it is T that the file
// holds if the pages listed have the hash, and the meta's own state if not.
type Extension struct {
	Database [16]byte // id of the file; zero in this version
	Key      [16]byte // of the checksums; zero in this version
	Tx       page.TxID
	// File is a number of the file in which the extension was written, its identity; zero if
	// none is known, or nothing wrote to the file any more. In another file, it is a copy that
	// was made while a program had the first one open, or had not closed it.
	File     uint32
	Sum      page.Sum  // of the runs in the trees of state Tx
	Trailing *Trailing // nil in a plain one
	// Lists are the freelist pages that a slot of the file names, or one that
	// was overwritten by the page's commit. They are in use, and in no tree.
	Lists []page.Extent
	// Free is the free set of state Tx; nil if nothing is recorded of it.
	Free *FreeSet
}

// Trailing is what a trailing extension says of its state.
type Trailing struct {
	Base      page.TxID // number of the meta's own state
	Root      page.ID
	Sequence  uint64
	HighWater page.ID
	BaseSum   page.Sum // of the runs in the trees of Base
	Key       [16]byte // of Hash: new with each opening, so that pages that have it cannot be prepared
	Hash      Hash     // of the pages written, see PageHash
	Written   []byte   // the pages written, as AppendExtents writes them
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

// Room is how many bytes of inline changes and of pages written fit together
// after so many log runs and freelists.
func Room(pageSize, logs, lists int) int {
	return min(pageSize, maxArea) - page.ExtensionOffset - fixedSize - logs*runSize - lists*listSize - len(Hash{})
}

// used is the bytes of e that count against Room.
func (e *Extension) used() (logs, variable int) {
	if e.Free != nil {
		logs, variable = len(e.Free.Logs), len(e.Free.Inline)
	}
	if e.Trailing != nil {
		variable += len(e.Trailing.Written)
	}
	return logs, variable
}

// Encode writes e after the meta of a meta page, which must be there already.
// h makes checksums with e.Key.
func Encode(buf []byte, e *Extension, h *Hasher) error {
	logs, variable := e.used()
	if logs > MaxLogs || len(e.Lists) > MaxLists || variable > Room(len(buf), logs, len(e.Lists)) {
		return fmt.Errorf("an extension of %d log runs, %d freelists and %d bytes does not fit", logs, len(e.Lists), variable)
	}
	b := buf[page.ExtensionOffset:]
	clear(b)
	copy(b, magic)
	b[8], b[9], b[11] = version, byte(logs), byte(len(e.Lists))
	size := fixedSize + len(e.Lists)*listSize + logs*runSize + variable + len(Hash{})
	order.PutUint32(b[12:], uint32(size))
	copy(b[16:32], e.Database[:])
	copy(b[32:48], e.Key[:])
	order.PutUint64(b[48:], uint64(e.Tx))
	order.PutUint32(b[164:], e.File)
	if e.Sum.Known {
		b[10] |= flagSum
		order.PutUint64(b[sumAt:], e.Sum.N)
	}
	at := fixedSize
	for _, l := range e.Lists {
		order.PutUint64(b[at:], uint64(l.Start))
		order.PutUint64(b[at+8:], l.N)
		at += listSize
	}
	if f := e.Free; f != nil {
		b[10] |= flagFreeSet
		order.PutUint64(b[56:], f.Count)
		putRun(b[64:], f.Snapshot)
		for _, r := range f.Logs {
			putRun(b[at:], r)
			at += runSize
		}
		at += copy(b[at:], f.Inline)
	}
	if t := e.Trailing; t != nil {
		b[10] |= flagTrailing
		putTrailing(b, t)
		at += copy(b[at:], t.Written)
	}
	sum := h.Sum(OfMeta, 0, covered(buf, at))
	copy(b[at:], sum[:])
	return nil
}

// covered is what the checksum covers of a meta page whose extension has n bytes
// before it: the meta, too.
func covered(buf []byte, n int) []byte {
	return buf[:page.ExtensionOffset+n]
}

func putTrailing(b []byte, t *Trailing) {
	order.PutUint64(b[96:], uint64(t.Base))
	order.PutUint64(b[104:], uint64(t.Root))
	order.PutUint64(b[112:], t.Sequence)
	order.PutUint64(b[120:], uint64(t.HighWater))
	if t.BaseSum.Known {
		b[10] |= flagBaseSum
		order.PutUint64(b[baseSumAt:], t.BaseSum.N)
	}
	copy(b[128:144], t.Key[:])
	copy(b[144:160], t.Hash[:])
	order.PutUint32(b[160:], uint32(len(t.Written)))
}

func putRun(b []byte, r Run) {
	order.PutUint64(b, uint64(r.Start))
	order.PutUint32(b[8:], r.Pages)
	order.PutUint32(b[12:], r.Bytes)
	copy(b[16:32], r.Hash[:])
}

// Decode reads the extension of a meta page. It returns ErrNone if there is
// none, and another error if it is not to be believed. The result refers to buf.
func Decode(buf []byte) (*Extension, error) {
	if len(buf) < page.ExtensionOffset+sumAt+len(Hash{}) {
		return nil, ErrNone
	}
	b := buf[page.ExtensionOffset:]
	if string(b[:len(magic)]) != magic {
		return nil, ErrNone
	}
	size := uint64(order.Uint32(b[12:]))
	if size > uint64(len(b)) || size < uint64(sumAt+len(Hash{})) {
		return nil, fmt.Errorf("extension of %d bytes", size)
	}
	fixed, end := fixedSize, int(size)-len(Hash{})
	if b[8] == version-1 {
		fixed = sumAt
	}
	e := &Extension{Database: [16]byte(b[16:32]), Key: [16]byte(b[32:48]), Tx: page.TxID(order.Uint64(b[48:])), File: order.Uint32(b[164:])}
	h, err := NewHasher(e.Key)
	if err != nil && b[10]&flagTrailing != 0 {
		return nil, fmt.Errorf("%w: %w", ErrNoChecksum, err)
	}
	if err != nil {
		return nil, err
	}
	if h.Sum(OfMeta, 0, covered(buf, end)) != Hash(b[end:size]) {
		return nil, errors.New("the extension's checksum does not hold")
	}
	if b[8] != version && b[8] != version-1 { // flags, size, key and checksum are in their places in every version
		why := ErrVersion
		if b[10]&flagTrailing == 0 {
			why = ErrPlainVersion
		}
		return nil, fmt.Errorf("%w: its extension is of version %d, this program knows %d", why, b[8], version)
	}
	logs, lists, written := int(b[9]), int(b[11]), uint64(order.Uint32(b[160:]))
	start := fixed + lists*listSize + logs*runSize // of what is variable
	if logs > MaxLogs || lists > MaxLists || size < uint64(start+len(Hash{})) ||
		written > size-uint64(start+len(Hash{})) {
		return nil, fmt.Errorf("extension of %d bytes with %d log runs, %d freelists, %d bytes of pages written", size, logs, lists, written)
	}
	if fixed == fixedSize && b[10]&flagSum != 0 {
		e.Sum = page.Sum{N: order.Uint64(b[sumAt:]), Known: true}
	}
	at := fixed
	for range lists {
		e.Lists = append(e.Lists, page.Extent{Start: page.ID(order.Uint64(b[at:])), N: order.Uint64(b[at+8:])})
		at += listSize
	}
	if b[10]&flagFreeSet != 0 {
		e.Free = &FreeSet{Count: order.Uint64(b[56:]), Snapshot: getRun(b[64:]), Logs: getRuns(b[at:], logs), Inline: b[start : end-int(written) : end-int(written)]}
	}
	if b[10]&flagTrailing != 0 {
		e.Trailing = getTrailing(b)
		if fixed == fixedSize && b[10]&flagBaseSum != 0 {
			e.Trailing.BaseSum = page.Sum{N: order.Uint64(b[baseSumAt:]), Known: true}
		}
		e.Trailing.Written = b[end-int(written) : end : end]
	}
	return e, nil
}

// getRuns reads n runs.
func getRuns(b []byte, n int) (runs []Run) {
	for i := range n {
		runs = append(runs, getRun(b[i*runSize:]))
	}
	return runs
}

func getTrailing(b []byte) *Trailing {
	return &Trailing{
		Base:      page.TxID(order.Uint64(b[96:])),
		Root:      page.ID(order.Uint64(b[104:])),
		Sequence:  order.Uint64(b[112:]),
		HighWater: page.ID(order.Uint64(b[120:])),
		Key:       [16]byte(b[128:144]),
		Hash:      Hash(b[144:160]),
	}
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
