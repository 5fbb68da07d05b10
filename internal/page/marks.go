package page

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// Marks remember what callers found out about values in the file, as long as the pages of these are not
// written again. There is one for each opening, and it is for readers of states: see "Marks" in docs/design.md. The zero value is
// ready. Safe for concurrent use.
//
// A mark is one word, a keyed hash of what was found out, of where the value lies, of its length, and of how often the
// pages about its first one had been written. Written changes the last, so that no mark need be looked for. A mark takes the
// place of another: all that is lost then is what it remembered.
type Marks struct {
	tables atomic.Pointer[markTables] // nil: nothing is marked yet
}

// markTables takes no memory where nothing was written to it: it is long, and the system gives it page by page.
type markTables struct {
	written [writtenGroups]atomic.Uint64 // by the number of the group, modulo
	marks   [markSlots]atomic.Uint64
	first   [firstSlots]atomic.Uint64 // see First
}

const (
	markSlots     = 1 << 18 // with values of 64 KiB, 8 GiB of the file have one for each
	firstSlots    = 1 << 16
	groupPages    = 16
	writtenGroups = 1 << 15 // 2 GiB of the file, with pages of 4 KiB, have one for each group
)

// Mark is the place for what was found out about one value. The zero value remembers nothing.
type Mark struct {
	place *atomic.Uint64
	word  uint64
}

// Set remembers it, provided that what was found out was read after At.
func (m Mark) Set() {
	if m.place != nil {
		m.place.Store(m.word)
	}
}

// IsSet tells whether Set was called for the same, and the pages were not written since.
func (m Mark) IsSet() bool { return m.place != nil && m.place.Load() == m.word }

// markSeed is secret, so no one can make two values with equal marks.
var markSeed = maphash.MakeSeed()

// maxFound is how many bytes say at most what was found out.
const maxFound = 40

// First tells whether it is called for page id for the first time, or for the first time after another page that takes its place.
func (m *Marks) First(id ID) bool {
	slot := &m.load().first[uint64(id)*0x9e3779b97f4a7c15>>48%firstSlots]
	if slot.Load() == uint64(id) {
		return false
	}
	slot.Store(uint64(id))
	return true
}

func (m *Marks) load() *markTables {
	t := m.tables.Load()
	if t == nil {
		m.tables.CompareAndSwap(nil, new(markTables))
		t = m.tables.Load()
	}
	return t
}

// At is the mark of the value of length bytes that begins with byte at of the file, on page first. found says what is to be,
// or was, found out about it, in maxFound bytes at most. The caller holds a state to which the value belongs.
func (m *Marks) At(at uint64, length int, first ID, found []byte) Mark {
	if length <= 0 || len(found) > maxFound {
		return Mark{}
	}
	t := m.load()
	var b [24 + maxFound]byte
	binary.LittleEndian.PutUint64(b[:], at)
	binary.LittleEndian.PutUint64(b[8:], uint64(length))
	binary.LittleEndian.PutUint64(b[16:], t.written[first/groupPages%writtenGroups].Load())
	n := 24 + copy(b[24:], found)
	// Values of about one length that do not overlap have places of their own.
	place := at >> (bits.Len(uint(length)) - 1) % markSlots
	return Mark{&t.marks[place], maphash.Bytes(markSeed, b[:n]) | 1}
}

// Written forgets the marks of values that begin on the n pages from first on. It is called when they have been written, well or
// not, before a state that has them is published.
func (m *Marks) Written(first ID, n uint64) {
	t := m.tables.Load()
	if t == nil || n == 0 {
		return // a reader that marked one of the pages held a state which had it, before the writer took it
	}
	from, to := uint64(first)/groupPages, (uint64(first)+n-1)/groupPages
	for g := from; g <= to && g-from < writtenGroups; g++ {
		t.written[g%writtenGroups].Add(1)
	}
}
