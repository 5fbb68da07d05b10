package page

import (
	"cmp"
	"iter"
)

// A freelist page lists page numbers, ascending, 8 bytes each. From
// freelistBig on the header's count is freelistBig and the first 8 bytes are
// the true count.
const (
	freelistBig     = 0xFFFF
	freelistIDBytes = 8
)

// FreelistSize is the bytes that a freelist page of n numbers takes, header included.
func FreelistSize(n uint64) uint64 {
	if n >= freelistBig {
		n++
	}
	return HeaderSize + n*freelistIDBytes
}

// EncodeFreelist fills run, which begins at page id and is at least
// FreelistSize(n) bytes long, with the n pages of the extents, which must ascend.
// seal says that it gets a seal.
func EncodeFreelist(run []byte, id ID, overflow uint32, n uint64, extents iter.Seq[Extent], seal bool) {
	h := Header{ID: id, Flags: FlagFreelist, Count: uint16(min(n, freelistBig)), Overflow: overflow}
	EncodeHeader(run, h)
	at := HeaderSize
	if n >= freelistBig {
		order.PutUint64(run[at:], n)
		at += freelistIDBytes
	}
	for e := range extents {
		for p := e.Start; p < e.End(); p++ {
			order.PutUint64(run[at:], uint64(p))
			at += freelistIDBytes
		}
	}
	finish(run, at, id, seal)
}

// FreelistBody divides a freelist page, of which run has the header at least: n is how many
// numbers it says that it has, numbers is where they stand, as much of that as run has. They
// need not fit into it.
func FreelistBody(run []byte) (n uint64, numbers []byte) {
	n, numbers = uint64(DecodeHeader(run).Count), run[HeaderSize:]
	if n != freelistBig {
		return n, numbers
	}
	if len(numbers) < freelistIDBytes {
		return n, nil
	}
	return order.Uint64(numbers), numbers[freelistIDBytes:]
}

// FreelistNumber is number i of those that FreelistBody gives, which must have it.
func FreelistNumber(numbers []byte, i uint64) ID {
	return ID(order.Uint64(numbers[i*freelistIDBytes:]))
}

// Freelist reads freelist page id of the image. It returns the free pages as
// ascending extents and the number of pages of the list itself. Numbers must
// ascend and be data pages below the high-water mark. Its seal is verified if the
// image's are.
func (m *Image) Freelist(id ID) (free []Extent, pages uint64, err error) {
	ids, pages, err := m.FreelistIDs(id)
	if err != nil {
		return nil, 0, err
	}
	if m.verified != nil {
		if state, err := m.FreelistSeal(id); err != nil || state == WrongSeal {
			return nil, 0, cmp.Or(err, error(WrongSealError(id)))
		}
	}
	var last ID
	for p := range ids {
		if p < FirstDataPage || p >= m.highWater {
			return nil, 0, Corruptf(id, "the freelist names page %d, which is not a page of this database: they are %d to %d", p, FirstDataPage, m.highWater-1)
		}
		if p <= last { // 0 at first, which is not a data page
			return nil, 0, Corruptf(id, "freelist is not in ascending order: %d follows %d", p, last)
		}
		if k := len(free); k > 0 && free[k-1].End() == p {
			free[k-1].N++
		} else {
			free = append(free, Extent{Start: p, N: 1})
		}
		last = p
	}
	return free, pages, nil
}

// FreelistIDs yields the numbers on freelist page id as they stand there, and
// the number of pages of the list itself.
func (m *Image) FreelistIDs(id ID) (ids iter.Seq[ID], pages uint64, err error) {
	run, h, err := m.freelistRun(id)
	if err != nil {
		return nil, 0, err
	}
	n, body := FreelistBody(run)
	if n > uint64(len(body)/freelistIDBytes) {
		return nil, 0, Corruptf(id, "freelist of %d numbers does not fit into its %d page(s)", n, uint64(h.Overflow)+1)
	}
	return func(yield func(ID) bool) {
		for ; n > 0; n-- {
			if !yield(ID(order.Uint64(body))) {
				return
			}
			body = body[freelistIDBytes:]
		}
	}, uint64(h.Overflow) + 1, nil
}

// FreelistSeal looks at the seal of freelist page id.
func (m *Image) FreelistSeal(id ID) (SealState, error) {
	run, _, err := m.freelistRun(id)
	if err != nil {
		return Unsealed, err
	}
	return CheckSeal(run, id), nil
}

func (m *Image) freelistRun(id ID) ([]byte, Header, error) {
	h, err := m.Header(id)
	if err != nil {
		return nil, h, err
	}
	if h.ID != id {
		return nil, h, wrongNumber(id, h)
	}
	if h.Flags != FlagFreelist {
		return nil, h, Corruptf(id, "has unexpected type/flags: %x (%s), want freelist", h.Flags, TypeName(h.Flags))
	}
	run, err := m.Run(id, uint64(h.Overflow)+1)
	return run, h, err
}
