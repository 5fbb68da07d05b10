package damage

import (
	"bytes"

	"holdfast/internal/page"
)

// must tells whether it has to be noticed that field f of a sound file, of role
// r, was changed from was to v, and nothing else.
//
// What the format leaves nobody to notice where pages have no seals (see
// mustBySeal for those that have):
//
//   - the bytes of values, of sequences, and of keys that stay in order;
//   - a leaf with fewer elements, or more, if what lies there looks like some;
//   - elements that are shorter, longer or elsewhere within their page;
//   - a bucket of no page that is a value from now on;
//   - an older version of a page in its place, if its keys are in order there;
//   - a damaged meta: the other one is opened, as after a crash;
//   - in a file without a freelist page, a reference to a page that is free, or to
//     one below the right one: which pages are free is what the references say.
func (s *sample) must(r role, f field, was, v uint64) bool {
	switch r {
	case headID, headFlags:
		return true
	case headCount:
		return f.branch && (v == 0 || v < was && s.kind.synced)
	case headOverflow:
		return v < was || s.kind.synced || uint64(f.page)+v >= uint64(s.meta.HighWater) || s.overlaps(f.page, v)
	case leafFlags:
		if v&^uint64(page.BucketFlag) != 0 || !f.bucket {
			return true
		}
		return f.top || !f.inline && s.kind.synced
	case leafPos, leafKeySize, leafValueSize, branchPos, branchKeySize:
		return v > was+s.behind(r, f)
	case branchChild:
		return s.mustRefer(was, v)
	case bucketRoot:
		return v == 0 || s.mustRefer(was, v)
	case inlineHead:
		return f.part < 2 // id and flags
	case listHead, listNumber:
		return true
	}
	return false
}

// mustRefer tells whether a reference to page v has to be noticed, where it
// referred to page was; 0: to none.
func (s *sample) mustRefer(was, v uint64) bool {
	if s.kind.synced || v >= uint64(s.meta.HighWater) {
		return true
	}
	return s.used[page.ID(v)] && !s.below(page.ID(was), page.ID(v))
}

// below tells whether page v is one of those below page id, or part of one: the
// others become free, and v is used once as before.
func (s *sample) below(id, v page.ID) bool {
	p, err := s.image.Page(id)
	if err != nil {
		return false
	}
	if v >= id && v < id+page.ID(p.Pages()) {
		return true
	}
	for i := range p.Count() {
		child := page.ID(0)
		if !p.IsLeaf() {
			child = p.Child(i)
		} else if e, err := p.Leaf(i); err == nil && e.IsBucket() {
			if b, _, err := page.DecodeBucket(e.Value); err == nil {
				child = b.Root
			}
		}
		if child != 0 && s.below(child, v) {
			return true
		}
	}
	return false
}

// overlaps tells whether a run from id on with that many overflow pages meets
// a used page that was not its own.
func (s *sample) overlaps(id page.ID, overflow uint64) bool {
	own, err := s.image.Page(id)
	if err != nil {
		return false
	}
	for i := own.Pages(); i <= overflow; i++ {
		if s.used[id+page.ID(i)] {
			return true
		}
	}
	return false
}

// behind is the number of bytes between the end of the element whose position or
// size f is and the end of its page; 0 if f is another field.
func (s *sample) behind(r role, f field) uint64 {
	var end, first int
	switch r {
	case leafPos, leafKeySize, leafValueSize:
		first = f.at - 4*int(r-leafPos)
		end = first - 4 + int(s.get(first, 4)+s.get(first+4, 4)+s.get(first+8, 4))
	case branchPos, branchKeySize:
		first = f.at - 4*int(r-branchPos)
		end = first + int(s.get(first, 4)+s.get(first+4, 4))
	default:
		return 0
	}
	p, err := s.image.Page(f.page)
	if err != nil {
		return 0
	}
	return uint64(s.at(f.page) + len(p.Bytes()) - end)
}

// mustMeta is the same for a field of the meta that wins, or of both.
func (s *sample) mustMeta(name string, v uint64, both bool) bool {
	hw := uint64(s.meta.HighWater)
	switch name {
	case "magic", "version", "checksum":
		return both
	case "page size":
		return true
	case "root":
		return s.kind.synced || v >= hw || v < uint64(page.FirstDataPage)
	case "freelist":
		return v != uint64(page.NoFreelist)
	case "high-water mark":
		if s.kind.synced || v > uint64(len(s.data)/s.kind.pageSize) {
			return true
		}
		for id := range s.used {
			if uint64(id) >= v {
				return true
			}
		}
	}
	return false
}

// mustBySeal tells whether data, the damaged file, has a page in use that was
// sealed and is not what was sealed. If the metas are damaged too, another state
// may be opened; if the page's length is, its seal is elsewhere.
func (s *sample) mustBySeal(data []byte) bool {
	metas := s.at(page.FirstDataPage)
	if len(data) < s.end() || !bytes.Equal(data[:metas], s.data[:metas]) {
		return false
	}
	heads := s.heads
	if s.kind.synced {
		heads = append(heads[:len(heads):len(heads)], s.meta.Freelist)
	}
	for _, id := range heads {
		from := s.at(id)
		h := page.DecodeHeader(s.data[from:])
		to := s.at(id + page.ID(h.Overflow) + 1)
		if page.CheckSeal(s.data[from:to], id) != page.Sealed || page.DecodeHeader(data[from:]).Overflow != h.Overflow {
			continue
		}
		if page.CheckSeal(data[from:to], id) == page.WrongSeal {
			return true
		}
	}
	return false
}
