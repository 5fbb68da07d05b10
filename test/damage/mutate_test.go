package damage

import (
	"fmt"
	"hash/fnv"
	"math"

	"holdfast/internal/page"
)

// chooser is where a mutation's choices come from: chance, or a fuzzer's bytes.
type chooser interface {
	IntN(n int) int // in [0, n)
}

// mutation is what was done to a file.
type mutation struct {
	kind string
	text string
	must bool // whoever opens, walks and checks the file has to notice
}

// mutator changes data, the content of s or what became of it, and may return
// it shorter. What it looks up in s it looks up in the sound file.
type mutator struct {
	kind string
	do   func(s *sample, data []byte, c chooser) ([]byte, mutation)
}

var mutators = []mutator{
	{"bit flipped", flipBit},
	{"bytes", setBytes},
	{"pages swapped", swapPages},
	{"page over another", copyPage},
	{"page zeroed", zeroPage},
	{"page older", olderPage},
	{"end cut off", truncate},
	{"page header", setField(headID, headFlags, headCount, headOverflow)},
	{"leaf element", setField(leafFlags, leafPos, leafKeySize, leafValueSize)},
	{"branch element", setField(branchPos, branchKeySize, branchChild)},
	{"key", setField(keyBytes)},
	{"bucket", setField(bucketRoot, bucketSequence, inlineHead, inlineField)},
	{"freelist", setField(listHead, listNumber)},
	{"meta", setMeta},
	{"extension", setExtension},
}

// mutate damages a copy of s in one way, or in several.
func (s *sample) mutate(c chooser) ([]byte, mutation) {
	data := clone(s.data)
	var m mutation
	if c.IntN(12) != 0 {
		data, m = s.one(data, c)
	} else {
		all := mutation{kind: "several"}
		for range 2 + c.IntN(4) {
			data, m = s.one(data, c)
			all.text += m.text + "; "
		}
		m = all
	}
	m.must = (m.must || s.mustBySeal(data)) && !s.unfinished(data)
	return data, m
}

func (s *sample) one(data []byte, c chooser) ([]byte, mutation) {
	which := mutators[c.IntN(len(mutators))]
	if len(data) < s.kind.pageSize*2 { // another cut it off
		which = mutators[1]
	}
	data, m := which.do(s, data, c)
	if m.kind == "" {
		m.kind = which.kind
	}
	return data, m
}

func flipBit(s *sample, data []byte, c chooser) ([]byte, mutation) {
	if len(data) == 0 {
		return data, mutation{text: "no bytes left"}
	}
	at, bit := c.IntN(min(len(data), s.end())), c.IntN(8)
	data[at] ^= 1 << bit
	return data, mutation{kind: "bit flipped", text: fmt.Sprintf("bit %d of byte %d (page %d)", bit, at, at/s.kind.pageSize)}
}

// end is the offset behind the last page.
func (s *sample) end() int { return s.at(s.meta.HighWater) }

func setBytes(s *sample, data []byte, c chooser) ([]byte, mutation) {
	if len(data) == 0 {
		return data, mutation{text: "no bytes left"}
	}
	at, n := c.IntN(min(len(data), s.end())), 1+c.IntN(8)
	for i := at; i < min(at+n, len(data)); i++ {
		data[i] = byte(c.IntN(256))
	}
	return data, mutation{text: fmt.Sprintf("%d bytes at %d (page %d)", n, at, at/s.kind.pageSize)}
}

// somePage is a page: a tree's more often than not, since most can be free.
func (s *sample) somePage(c chooser) page.ID {
	switch c.IntN(6) {
	case 0:
		return page.ID(c.IntN(int(s.meta.HighWater)))
	case 1:
		if s.kind.synced {
			return s.meta.Freelist
		}
	case 2:
		return s.meta.Root
	}
	return s.heads[c.IntN(len(s.heads))]
}

// vital tells whether page id begins with a header by which it is known.
func (s *sample) vital(id page.ID) bool {
	if s.kind.synced && id == s.meta.Freelist {
		return true
	}
	for _, head := range s.heads {
		if head == id {
			return true
		}
	}
	return false
}

// bytesOf is page id in data, cut off where data ends.
func (s *sample) bytesOf(data []byte, id page.ID) []byte {
	from := min(s.at(id), len(data))
	return data[from:min(from+s.kind.pageSize, len(data))]
}

func swapPages(s *sample, data []byte, c chooser) ([]byte, mutation) {
	a, b := s.somePage(c), s.somePage(c)
	was := clone(s.bytesOf(data, a))
	copy(s.bytesOf(data, a), s.bytesOf(data, b))
	copy(s.bytesOf(data, b), was)
	// Without the meta that wins, the other one's state is opened.
	must := a != b && min(a, b) >= page.FirstDataPage && (s.vital(a) || s.vital(b))
	return data, mutation{text: fmt.Sprintf("pages %d and %d", a, b), must: must}
}

func copyPage(s *sample, data []byte, c chooser) ([]byte, mutation) {
	a, b := s.somePage(c), s.somePage(c)
	copy(s.bytesOf(data, b), s.bytesOf(data, a))
	return data, mutation{text: fmt.Sprintf("page %d over page %d", a, b), must: a != b && s.vital(b)}
}

func zeroPage(s *sample, data []byte, c chooser) ([]byte, mutation) {
	id := s.somePage(c)
	clear(s.bytesOf(data, id))
	return data, mutation{text: fmt.Sprintf("page %d", id), must: s.vital(id)}
}

// olderPage puts the former content of a page in its place, as a disk does that
// lost a write. No page says how old it is.
func olderPage(s *sample, data []byte, c chooser) ([]byte, mutation) {
	if len(s.older) == 0 {
		return flipBit(s, data, c)
	}
	older := s.older[c.IntN(len(s.older))]
	id := s.somePage(c)
	for range 100 { // one of those that changed
		if string(s.bytesOf(older, id)) != string(s.bytesOf(s.data, id)) && s.at(id) < len(older) {
			break
		}
		id = page.ID(c.IntN(int(s.meta.HighWater)))
	}
	copy(s.bytesOf(data, id), s.bytesOf(older, id))
	return data, mutation{text: fmt.Sprintf("page %d", id)}
}

func truncate(s *sample, data []byte, c chooser) ([]byte, mutation) {
	n := c.IntN(len(data))
	if c.IntN(3) == 0 {
		n = min(s.at(page.ID(c.IntN(int(s.meta.HighWater)))), len(data))
	}
	return data[:n], mutation{text: fmt.Sprintf("at byte %d of %d", n, len(data)), must: n > 0 && n < s.end()} // an empty file is a new database
}

// edge is a value that may be too large, too small, or not where it belongs.
func (s *sample) edge(was uint64, size int, c chooser) uint64 {
	ps, hw := uint64(s.kind.pageSize), uint64(s.meta.HighWater)
	edges := []uint64{
		0, 1, 2, 3, was + 1, was - 1, was + 8, was * 2, was / 2, was ^ 1<<c.IntN(8*size), ^was,
		0x10, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, math.MaxInt64, 1 << 63, math.MaxUint64, math.MaxUint64 - 1,
		ps, ps - 1, ps + 1, ps - 16, ps / 16, hw, hw - 1, hw + 1, uint64(s.meta.Root), uint64(s.meta.Freelist),
		uint64(s.heads[c.IntN(len(s.heads))]), uint64(c.IntN(int(hw))),
	}
	v := edges[c.IntN(len(edges))]
	if size < 8 {
		v &= 1<<(8*size) - 1
	}
	return v
}

// setField sets a field of one of the roles to an edge value.
func setField(of ...role) func(s *sample, data []byte, c chooser) ([]byte, mutation) {
	return func(s *sample, data []byte, c chooser) ([]byte, mutation) {
		r := of[c.IntN(len(of))]
		fields := s.fields[r]
		if len(fields) == 0 { // no freelist
			return flipBit(s, data, c)
		}
		f := fields[c.IntN(len(fields))]
		if f.at+f.size > len(data) { // another cut it off
			return flipBit(s, data, c)
		}
		if r == keyBytes || r == valueBytes {
			at := f.at + c.IntN(f.size)
			data[at] ^= byte(1 + c.IntN(255))
			return data, mutation{text: fmt.Sprintf("%s of page %d, at %d", roleNames[r], f.page, at)}
		}
		was := s.get(f.at, f.size)
		v := s.edge(was, f.size, c)
		if n := s.behind(r, f); n != 0 && c.IntN(4) == 0 { // up to the page's last byte, or one more
			v = was + n + uint64(c.IntN(2))
		}
		set(data[f.at:], f.size, v)
		return data, mutation{
			text: fmt.Sprintf("%s of page %d, at %d: %d becomes %d", roleNames[r], f.page, f.at, was, v),
			must: v != was && s.must(r, f, was, v),
		}
	}
}

// Offsets in a meta behind the page header, with sizes and names.
var metaFields = []struct {
	off, size int
	name      string
}{
	{0, 4, "magic"},
	{4, 4, "version"},
	{8, 4, "page size"},
	{12, 4, "flags"},
	{16, 8, "root"},
	{24, 8, "sequence"},
	{32, 8, "freelist"},
	{40, 8, "high-water mark"},
	{48, 8, "txid"},
	{56, 8, "checksum"},
}

// setMeta sets a field of one meta, or of both, which get a right checksum.
func setMeta(s *sample, data []byte, c chooser) ([]byte, mutation) {
	f := metaFields[c.IntN(len(metaFields))]
	slots := []int{c.IntN(2)}
	if c.IntN(2) == 0 {
		slots = []int{0, 1}
	}
	was := s.get(s.slot*s.kind.pageSize+page.HeaderSize+f.off, f.size)
	v := s.edge(was, f.size, c)
	for _, slot := range slots {
		b := data[slot*s.kind.pageSize+page.HeaderSize:]
		set(b[f.off:], f.size, v)
		if f.name != "checksum" {
			h := fnv.New64a()
			_, _ = h.Write(b[:56])
			set(b[56:], 8, h.Sum64())
		}
	}
	m := mutation{text: fmt.Sprintf("meta %v: %s %d becomes %d; meta %d wins", slots, f.name, was, v, s.slot)}
	winner := len(slots) == 2 || slots[0] == s.slot
	m.must = v != was && winner && s.mustMeta(f.name, v, len(slots) == 2)
	return data, m
}
