package page

import (
	"hash/crc32"
	"math"
	"math/bits"
)

// A page run is sealed by its last 8 bytes, where its content leaves them free:
// a checksum, and the same checksum again, XOR sealMark. docs/format.md has the
// table.
//
// Nothing else in a page tells that it has a seal, and pages that bbolt wrote
// have none, so a seal has to be known by itself, also if it is damaged. Hence
// the same number twice, in two forms that are equally far apart when both are
// hurt: XOR with a constant keeps distances, so k flipped bits of a seal leave its
// halves at most k bits from fitting each other. (A mark that is scattered, as by
// a multiplication, would be half wrong after one flipped bit, and the page would
// count as one without a seal: unverified.) What is left:
//
//   - damage in the content only: the halves fit each other, and it is wrong;
//   - damage in one half of the seal, however large: the other half fits the
//     content, which nothing else does but by a chance of 2^-32, and it is wrong;
//   - damage in the content and up to sealSlack bits of the seal: wrong;
//   - damage in the content and in more of the seal, as of a sector that was
//     zeroed at the end of a page: taken for a page without a seal.
//
// The constant has set bits in each byte, the highest of each byte among them,
// so that what programs leave in memory is not a seal: zeros and any other row of
// equal words or bytes (whose halves differ in none of the constant's 18 bits),
// text (whose highest bits are equal), small numbers. Of chance bytes one run in
// 8 million passes for a wrong seal with a slack of 2 bits; bbolt leaves zeros.

// SealSize is the bytes that a seal takes.
const SealSize = 8

const (
	sealMark  = 0xA5E996D3
	sealSlack = 2 // bits
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SealState is what the seal of a page run says.
type SealState int

// States of a seal.
const (
	Unsealed  SealState = iota // there is none: bbolt wrote the run, or it is full
	Sealed                     // it fits the content
	WrongSeal                  // it does not: one of them has changed
)

// CheckSeal looks at the seal of the run that lies at page id. It reads all of
// it.
func CheckSeal(run []byte, id ID) SealState {
	at := len(run) - SealSize
	if at < HeaderSize {
		return Unsealed
	}
	first, second := order.Uint32(run[at:]), order.Uint32(run[at+4:])
	if first == 0 && second == 0 || !hasSealRoom(run) {
		return Unsealed
	}
	second ^= sealMark
	sum := sealSum(run[:at], at, id)
	switch {
	case first == sum && second == sum:
		return Sealed
	case first == sum || second == sum || bits.OnesCount32(first^second) <= sealSlack:
		return WrongSeal
	}
	return Unsealed
}

// SealOf is the seal that the run at page id should have; false if one of its
// elements leaves no room for one. It is meant for pages that are sound.
func SealOf(run []byte, id ID) (seal [SealSize]byte, ok bool) {
	at := len(run) - SealSize
	if at < HeaderSize || contentEnd(run) > uint64(at) {
		return seal, false
	}
	putSeal(seal[:], sealSum(run[:at], at, id))
	return seal, true
}

// Seal seals a run whose content ends at end and after that is zero, if that leaves
// room. Meanwhile others may read the content.
func Seal(run []byte, id ID, end int) {
	if at := len(run) - SealSize; end <= at {
		putSeal(run[at:], sealSum(run[:at], end, id))
	}
}

func putSeal(b []byte, sum uint32) {
	order.PutUint32(b, sum)
	order.PutUint32(b[4:], sum^sealMark)
}

// sealSum is the checksum of content, which is zero from end on, and, after it, of id.
// The page's own number in its header is not enough: it would be copied along with the
// page.
func sealSum(content []byte, end int, id ID) uint32 {
	return sumWithID(sumWithZeros(content, end), id)
}

// sumWithID is the checksum sum of what was summed, then id.
func sumWithID(sum uint32, id ID) uint32 {
	var b [8]byte
	order.PutUint64(b[:], uint64(id))
	sum = ^sum
	for _, v := range b { // crc32.Update would move b to the heap
		sum = castagnoli[byte(sum)^v] ^ sum>>8
	}
	return ^sum
}

// hasSealRoom tells whether the last bytes of the run are not content. It goes by
// the last element, as the encoder puts it last, directly after the one
// before. One that is elsewhere, or ends beyond the run, is damage and says nothing.
//
// This is the one place where damage can hide a seal: in the length of the last
// element, by so much that it ends within the last 8 bytes. Were a seal looked for
// there all the same, a user could put what looks like one at the end of a value
// that fills a page, and that page could not be read any more.
func hasSealRoom(run []byte) bool {
	h := DecodeHeader(run)
	size, n := uint64(len(run)), uint64(h.Count)
	var end uint64
	switch {
	case h.Flags == FlagFreelist:
		end = freelistEnd(run, n)
	case h.Flags != FlagLeaf && h.Flags != FlagBranch || n == 0:
		return true
	case HeaderSize+n*LeafElementSize > size:
		return true
	default:
		p := Page{buf: run, leaf: h.Flags == FlagLeaf}
		before := HeaderSize + n*LeafElementSize
		if n > 1 {
			_, before = p.bounds(int(n) - 2)
		}
		var start uint64
		if start, end = p.bounds(int(n) - 1); start != before {
			return true
		}
	}
	return end <= size-SealSize || end > size
}

// contentEnd is where the content of a run ends: MaxUint64 if that cannot be told.
func contentEnd(run []byte) uint64 {
	h := DecodeHeader(run)
	n := uint64(h.Count)
	end := HeaderSize + n*LeafElementSize
	switch {
	case h.Flags == FlagFreelist:
		return freelistEnd(run, n)
	case h.Flags != FlagLeaf && h.Flags != FlagBranch || end > uint64(len(run)):
		return math.MaxUint64
	}
	p := Page{buf: run, leaf: h.Flags == FlagLeaf}
	for i := range int(n) {
		_, to := p.bounds(i)
		end = max(end, to)
	}
	return end
}

// bounds is where element i begins and ends, as it says itself.
func (p Page) bounds(i int) (start, end uint64) {
	at := HeaderSize + i*LeafElementSize
	b := p.buf[at : at+LeafElementSize]
	if !p.leaf {
		start = uint64(at) + uint64(order.Uint32(b))
		return start, start + uint64(order.Uint32(b[4:]))
	}
	start = uint64(at) + uint64(order.Uint32(b[4:]))
	return start, start + uint64(order.Uint32(b[8:])) + uint64(order.Uint32(b[12:]))
}

// freelistEnd is where the last of the numbers ends; count is that of the header.
func freelistEnd(run []byte, count uint64) uint64 {
	at := uint64(HeaderSize)
	if count == freelistBig && at+freelistIDBytes <= uint64(len(run)) {
		count, at = order.Uint64(run[at:]), at+freelistIDBytes
	}
	if count > uint64(len(run)) {
		return math.MaxUint64
	}
	return at + count*freelistIDBytes
}

// WrongSealError is the error of page id, whose seal is wrong.
func WrongSealError(id ID) *CorruptError {
	return Corruptf(id, "its checksum does not match its content: the disk damaged the page (see docs/recovering.md), or a tool changed it in place, "+
		"as \"bbolt surgery\" does; only then is \"holdfast reseal FILE\" right")
}
