package damage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// role is what a field of a file says.
type role int

// The fields of pages and of what is in them.
const (
	headID role = iota
	headFlags
	headCount
	headOverflow
	leafFlags
	leafPos
	leafKeySize
	leafValueSize
	branchPos
	branchKeySize
	branchChild
	keyBytes
	valueBytes
	bucketRoot
	bucketSequence
	inlineHead  // header of an inline bucket's page
	inlineField // in an element of an inline bucket
	listHead
	listNumber
	roles
)

var roleNames = [roles]string{
	"header: id", "header: flags", "header: count", "header: overflow",
	"leaf element: flags", "leaf element: pos", "leaf element: ksize", "leaf element: vsize",
	"branch element: pos", "branch element: ksize", "branch element: child",
	"key", "value", "bucket: root", "bucket: sequence", "inline page: header", "inline page: element",
	"freelist: header", "freelist: numbers",
}

// field is a place in a file.
type field struct {
	at, size int
	page     page.ID // whose it is
	part     int     // of a header: 0 id, 1 flags, 2 count, 3 overflow
	top      bool    // of an element that is a top-level bucket
	bucket   bool    // of an element that is a bucket
	inline   bool    // of an element that is an inline bucket
	branch   bool    // of a branch page
}

// headerParts are the fields of a page's header: id, flags, count, overflow.
var headerParts = []struct{ off, size int }{{0, 8}, {8, 2}, {10, 2}, {12, 4}}

// analyse finds out where in a sound file things are.
func (s *sample) analyse() error {
	ps := s.kind.pageSize
	slots := page.DecodeSlots(s.data, s.data[ps:])
	best, err := slots.Best()
	if err != nil {
		return err
	}
	s.slot, s.meta = best, slots.Meta[best]
	if err := s.trail(); err != nil {
		return err
	}
	s.image = page.NewImage(s.data, ps, s.meta.HighWater)
	s.used, s.free, s.fields = map[page.ID]bool{0: true, 1: true}, map[page.ID]bool{}, map[role][]field{}
	if err := s.tree(s.meta.Root, true); err != nil {
		return err
	}
	if (s.meta.Freelist != page.NoFreelist) != s.kind.synced {
		return fmt.Errorf("its freelist is page %d", s.meta.Freelist)
	}
	if s.kind.synced {
		if err := s.list(); err != nil {
			return err
		}
	} else {
		for id := range s.meta.HighWater {
			if !s.used[id] {
				s.free[id] = true
			}
		}
	}
	for r := range roles {
		if r < listHead && len(s.fields[r]) == 0 {
			return fmt.Errorf("there is no %s", roleNames[r])
		}
	}
	return nil
}

// trail goes on to the state of a trailing extension.
func (s *sample) trail() error {
	ext, err := extension.Decode(s.data[s.at(page.ID(s.slot)):][:s.kind.pageSize])
	if trailing := err == nil && ext.Trailing != nil; trailing != s.kind.trailing {
		return fmt.Errorf("its meta is trailing: %t, want %t (%w)", trailing, s.kind.trailing, err)
	} else if !trailing {
		return nil
	}
	t := ext.Trailing
	s.meta.Root, s.meta.Sequence, s.meta.HighWater = t.Root, t.Sequence, t.HighWater
	return extension.Extents(t.Written, t.HighWater, func(e page.Extent) error {
		for id := e.Start; id < e.End(); id++ {
			s.listed = append(s.listed, id)
		}
		return nil
	})
}

// unfinished tells whether data, the damaged file, is one whose last flush was cut
// short, by all that it shows: the state before that is opened.
func (s *sample) unfinished(data []byte) bool {
	if !s.kind.trailing {
		return false
	}
	metas := s.at(page.FirstDataPage)
	if len(data) < s.end() || !bytes.Equal(data[:metas], s.data[:metas]) {
		return true
	}
	return slices.ContainsFunc(s.listed, func(id page.ID) bool { return !bytes.Equal(s.bytesOf(data, id), s.bytesOf(s.data, id)) })
}

func (s *sample) add(r role, f field) { s.fields[r] = append(s.fields[r], f) }

func (s *sample) at(id page.ID) int { return int(id) * s.kind.pageSize }

func (s *sample) claim(id page.ID, n uint64) {
	for i := range page.ID(n) {
		s.used[id+i] = true
	}
}

// header notes the fields of a page's header.
func (s *sample) header(id page.ID, branch bool) {
	for i, h := range headerParts {
		s.add(headID+role(i), field{at: s.at(id) + h.off, size: h.size, page: id, branch: branch})
	}
}

func (s *sample) tree(id page.ID, top bool) error {
	p, err := s.image.Page(id)
	if err != nil {
		return err
	}
	s.claim(id, p.Pages())
	s.heads = append(s.heads, id)
	s.header(id, !p.IsLeaf())
	if err := s.packed(p); err != nil {
		return err
	}
	for i := range p.Count() {
		e := s.at(id) + page.HeaderSize + i*page.LeafElementSize
		if p.IsLeaf() {
			if err := s.leaf(p, i, e, top); err != nil {
				return err
			}
			continue
		}
		key, child, err := p.Branch(i)
		if err != nil {
			return err
		}
		s.add(branchPos, field{at: e, size: 4, page: id})
		s.add(branchKeySize, field{at: e + 4, size: 4, page: id})
		s.add(branchChild, field{at: e + 8, size: 8, page: id})
		s.add(keyBytes, field{at: e + int(s.get(e, 4)), size: len(key), page: id, branch: true})
		if err := s.separates(key, child); err != nil {
			return err
		}
		if err := s.tree(child, top); err != nil {
			return err
		}
	}
	return nil
}

// packed makes sure that keys and values lie one behind the other from the last
// element on, as both engines always lay them out.
func (s *sample) packed(p page.Page) error {
	data := s.at(p.ID()) + page.HeaderSize + p.Count()*page.LeafElementSize
	for i := range p.Count() {
		at := s.at(p.ID()) + page.HeaderSize + i*page.LeafElementSize
		pos, size := 0, s.get(at+4, 4) // of a branch
		if p.IsLeaf() {
			pos, size = 4, s.get(at+8, 4)+s.get(at+12, 4)
		}
		if at+int(s.get(at+pos, 4)) != data {
			return fmt.Errorf("element %d of page %d is not behind the one before", i, p.ID())
		}
		data += int(size)
	}
	return nil
}

// separates makes sure that a branch names a page by its first key, as both
// engines always do: bbolt finds pages by it when it writes.
func (s *sample) separates(key []byte, child page.ID) error {
	p, err := s.image.Page(child)
	if err != nil {
		return err
	}
	first, err := p.Key(0)
	if err == nil && string(first) != string(key) {
		return fmt.Errorf("the first key of page %d is %q, its branch says %q", child, first, key)
	}
	return err
}

// leaf notes the fields of element i of leaf p, which is at e in the file.
func (s *sample) leaf(p page.Page, i, e int, top bool) error {
	el, err := p.Leaf(i)
	if err != nil {
		return err
	}
	f := field{at: e, size: 4, page: p.ID(), top: top, bucket: el.IsBucket()}
	value := e + int(s.get(e+4, 4)) + len(el.Key)
	var b page.Bucket
	var inline page.Page
	if f.bucket {
		if b, inline, err = page.DecodeBucket(el.Value); err != nil {
			return err
		}
		f.inline = b.Root == 0
	}
	for r := leafFlags; r <= leafValueSize; r++ {
		f.at = e + 4*int(r-leafFlags)
		s.add(r, f)
	}
	f.at, f.size = value-len(el.Key), len(el.Key)
	s.add(keyBytes, f)
	if !f.bucket {
		if len(el.Value) > 0 {
			f.at, f.size = value, len(el.Value)
			s.add(valueBytes, f)
		}
		return nil
	}
	f.at, f.size = value, 8
	s.add(bucketRoot, f)
	s.add(bucketSequence, field{at: value + 8, size: 8, page: p.ID()})
	if b.Root != 0 {
		return s.tree(b.Root, false)
	}
	at := value + page.BucketHeaderSize
	for i, h := range headerParts {
		s.add(inlineHead, field{at: at + h.off, size: h.size, part: i, page: p.ID()})
	}
	for j := range inline.Count() {
		for off := 0; off < page.LeafElementSize; off += 4 {
			s.add(inlineField, field{at: at + page.HeaderSize + j*page.LeafElementSize + off, size: 4, page: p.ID()})
		}
	}
	return nil
}

// list notes the fields of the freelist page, rewritten in the form for long
// lists if the sample wants that.
func (s *sample) list() error {
	id := s.meta.Freelist
	free, pages, err := s.image.Freelist(id)
	if err != nil {
		return err
	}
	var numbers []page.ID
	for _, e := range free {
		for id := e.Start; id < e.End(); id++ {
			s.free[id] = true
			numbers = append(numbers, id)
		}
	}
	s.claim(id, pages)
	at := s.at(id)
	if s.kind.bigForm {
		if page.FreelistSize(uint64(len(numbers)))+8 > pages*uint64(s.kind.pageSize) {
			return fmt.Errorf("%d numbers and their count do not fit into %d pages", len(numbers), pages)
		}
		s.set(at+10, 2, 0xFFFF)
		s.set(at+page.HeaderSize, 8, uint64(len(numbers)))
		for i, n := range numbers {
			s.set(at+page.HeaderSize+8*(i+1), 8, uint64(n))
		}
	}
	for _, h := range headerParts {
		s.add(listHead, field{at: at + h.off, size: h.size, page: id})
	}
	first := at + page.HeaderSize
	if s.get(at+10, 2) == 0xFFFF {
		s.add(listHead, field{at: first, size: 8, page: id})
		first += 8
	} else if s.kind.big {
		return fmt.Errorf("it has only %d free pages", len(numbers))
	}
	for i := range numbers {
		s.add(listNumber, field{at: first + 8*i, size: 8, page: id})
	}
	return nil
}

// get and set are a number of size bytes at a place of the file.
func (s *sample) get(at, size int) uint64 { return get(s.data[at:], size) }

func (s *sample) set(at, size int, v uint64) { set(s.data[at:], size, v) }

func get(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func set(b []byte, size int, v uint64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
}
