package extension

import (
	"encoding/binary"
	"errors"
	"iter"

	"holdfast/internal/page"
)

// A change of a free set is two lists of extents, ascending: pages that were
// taken out, and pages that were put in. Each list is its length, and for each
// extent the distance from the end of the one before and its length, all as
// unsigned varints. Records are such changes, one behind the other.

var errRecord = errors.New("free-space record cannot be read")

// AppendChange appends the change of one transaction to records.
func AppendChange(b []byte, taken, put []page.Extent) []byte {
	return AppendExtents(AppendExtents(b, taken), put)
}

// Extents calls visit for each extent of a list that is all of b. They ascend and
// lie below the high-water mark.
func Extents(b []byte, highWater page.ID, visit func(page.Extent) error) error {
	rest, err := readExtents(b, highWater, visit)
	if err == nil && len(rest) > 0 {
		err = errRecord
	}
	return err
}

// AppendExtents appends a list of extents, ascending, to b.
func AppendExtents(b []byte, extents []page.Extent) []byte {
	b = binary.AppendUvarint(b, uint64(len(extents)))
	var last page.ID
	for _, e := range extents {
		b = binary.AppendUvarint(b, uint64(e.Start-last))
		b = binary.AppendUvarint(b, e.N)
		last = e.End()
	}
	return b
}

// Changes calls take and put for the extents of all records in b, in the order
// in which they happened. Extents lie below the high-water mark.
func Changes(b []byte, highWater page.ID, take, put func(page.Extent) error) error {
	for len(b) > 0 {
		var err error
		if b, err = readExtents(b, highWater, take); err != nil {
			return err
		}
		if b, err = readExtents(b, highWater, put); err != nil {
			return err
		}
	}
	return nil
}

func readExtents(b []byte, highWater page.ID, visit func(page.Extent) error) ([]byte, error) {
	n, b, err := readUvarint(b)
	if err != nil {
		return nil, err
	}
	var last page.ID
	for ; n > 0; n-- {
		var gap, length uint64
		if gap, b, err = readUvarint(b); err != nil {
			return nil, err
		}
		if length, b, err = readUvarint(b); err != nil {
			return nil, err
		}
		if gap >= uint64(highWater-last) || length == 0 || length > uint64(highWater-last)-gap {
			return nil, errRecord
		}
		e := page.Extent{Start: last + page.ID(gap), N: length}
		if err := visit(e); err != nil {
			return nil, err
		}
		last = e.End()
	}
	return b, nil
}

func readUvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errRecord
	}
	return v, b[n:], nil
}

// A snapshot is one byte that names its form, and the set: as extents (a change
// that puts all of it in), or as a bitmap, a bit for each page below the
// high-water mark, lowest first.
const (
	asExtents = 0
	asBitmap  = 1
)

// MaxSnapshot bounds the size of a snapshot, in bytes.
func MaxSnapshot(highWater page.ID) uint64 { return 1 + (uint64(highWater)+7)/8 }

// AppendSnapshot appends a snapshot of the set, ascending runs below the
// high-water mark, to b, in the smaller form.
func AppendSnapshot(b []byte, set iter.Seq[page.Extent], highWater page.ID) []byte {
	limit := len(b) + int(MaxSnapshot(highWater))
	start := len(b)
	n := uint64(0)
	for range set {
		n++
	}
	b = append(b, asExtents, 0) // nothing is taken out
	b = binary.AppendUvarint(b, n)
	var last page.ID
	for e := range set {
		b = binary.AppendUvarint(b, uint64(e.Start-last))
		b = binary.AppendUvarint(b, e.N)
		last = e.End()
		if len(b) > limit {
			return appendBitmap(b[:start], set, highWater)
		}
	}
	return b
}

func appendBitmap(b []byte, set iter.Seq[page.Extent], highWater page.ID) []byte {
	b = append(b, asBitmap)
	start := len(b)
	b = append(b, make([]byte, (highWater+7)/8)...)
	for e := range set {
		for id := e.Start; id < e.End(); id++ {
			b[start+int(id/8)] |= 1 << (id % 8)
		}
	}
	return b
}

// Snapshot calls put for each extent of a snapshot, ascending.
func Snapshot(b []byte, highWater page.ID, put func(page.Extent) error) error {
	if len(b) == 0 {
		return errRecord
	}
	form, b := b[0], b[1:]
	switch form {
	case asExtents:
		none := func(page.Extent) error { return errRecord }
		rest, err := readExtents(b, highWater, none)
		if err == nil {
			rest, err = readExtents(rest, highWater, put)
		}
		if err == nil && len(rest) > 0 {
			err = errRecord
		}
		return err
	case asBitmap:
		return bits(b, highWater, put)
	}
	return errRecord
}

func bits(b []byte, highWater page.ID, put func(page.Extent) error) error {
	var run page.Extent
	for i := 0; i < len(b); i++ {
		if b[i] == 0 && run.N == 0 {
			continue
		}
		for bit := range page.ID(8) {
			id := page.ID(i)*8 + bit
			set := b[i]&(1<<bit) != 0
			if set && id >= highWater {
				return errRecord
			}
			switch {
			case set && run.N > 0:
				run.N++
			case set:
				run = page.Extent{Start: id, N: 1}
			case run.N > 0:
				if err := put(run); err != nil {
					return err
				}
				run = page.Extent{}
			}
		}
	}
	if run.N > 0 {
		return put(run)
	}
	return nil
}

// A log run is chunks, each at the beginning of a page: the length of its records
// in 4 bytes, then these. The rest of its last page is zero.
const chunkHeader = 4

// ChunkPages is how many pages a chunk of n bytes of records takes.
func ChunkPages(n, pageSize int) int { return (chunkHeader + n + pageSize - 1) / pageSize }

// AppendChunk appends a chunk with records to a log, in whole pages.
func AppendChunk(log, records []byte, pageSize int) []byte {
	end := len(log) + ChunkPages(len(records), pageSize)*pageSize
	log = order.AppendUint32(log, uint32(len(records)))
	log = append(log, records...)
	return append(log, make([]byte, end-len(log))...)
}

// Log calls take and put for the records of all chunks of a log. See Changes.
func Log(log []byte, pageSize int, highWater page.ID, take, put func(page.Extent) error) error {
	for len(log) > 0 {
		if len(log) < chunkHeader {
			return errRecord
		}
		n := uint64(order.Uint32(log))
		if n > uint64(len(log)-chunkHeader) {
			return errRecord
		}
		if err := Changes(log[chunkHeader:chunkHeader+n], highWater, take, put); err != nil {
			return err
		}
		next := ChunkPages(int(n), pageSize) * pageSize
		if next > len(log) {
			return errRecord
		}
		log = log[next:]
	}
	return nil
}
