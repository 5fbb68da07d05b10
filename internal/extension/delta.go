package extension

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"holdfast/internal/page"
)

// A change of a free set is two lists of extents, ascending: pages that were
// taken out, and pages that were put in. Each list is its length, and for each
// extent the distance from the end of the one before and its length, all as
// unsigned varints. Records are such changes, one after the other.

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

// MaxExtents bounds the size of a snapshot of at most n extents below the high-water
// mark, in bytes.
func MaxExtents(n uint64, highWater page.ID) uint64 {
	each := uint64(bits.Len64(uint64(highWater))+6) / 7 // the most that a distance or a length takes
	return 1 + 1 + binary.MaxVarintLen64 + n*2*each
}

// AppendExtentsSnapshot appends a snapshot of a set, given as ascending runs, to b.
func AppendExtentsSnapshot(b []byte, set []page.Extent) []byte {
	return AppendChange(append(b, asExtents), nil, set)
}

// AppendBitsSnapshot appends a snapshot of a set to b. The caller appends its bits: one
// for each page below the high-water mark, the lowest of a byte first.
func AppendBitsSnapshot(b []byte) []byte { return append(b, asBitmap) }

// Snapshot calls put for each extent of a snapshot, ascending and below the high-water
// mark, or putBits for its bits, as they are: some may be beyond that mark.
func Snapshot(b []byte, highWater page.ID, put func(page.Extent) error, putBits func([]byte) error) error {
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
		return putBits(b)
	}
	return errRecord
}

// Bits calls put for the runs of pages whose bits are set in the bits of a snapshot.
func Bits(set []byte, put func(page.Extent) error) error {
	var run page.Extent
	for i, b := range set {
		if b == 0 && run.N == 0 {
			continue
		}
		for bit := range page.ID(8) {
			switch {
			case b>>bit&1 == 0 && run.N > 0:
				if err := put(run); err != nil {
					return err
				}
				run.N = 0
			case b>>bit&1 == 0:
			case run.N > 0:
				run.N++
			default:
				run = page.Extent{Start: page.ID(i)*8 + bit, N: 1}
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
