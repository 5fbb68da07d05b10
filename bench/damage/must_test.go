package damage

import "holdfast/internal/page"

// must tells whether it has to be noticed that field f of a sound file, of role
// r, was changed from was to v, and nothing else.
//
// What the format leaves nobody to notice, as long as pages have no checksum:
//
//   - the bytes of values, of sequences, and of keys that stay in order;
//   - a leaf with fewer elements, or more, if what lies there looks like some;
//   - elements that are shorter, longer or elsewhere within their page;
//   - a bucket of no page that is a value from now on;
//   - an older version of a page in its place, if its keys are in order there;
//   - a damaged meta: the other one is opened, as after a crash;
//   - in a file without a freelist page, a reference to a page that is free: which
//     pages are free is what the references say.
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
	case leafPos, leafKeySize, leafValueSize:
		return s.outside(f, v, f.at-4*int(r-leafFlags)+4, 3)
	case branchPos, branchKeySize:
		return s.outside(f, v, f.at-4*int(r-branchPos), 2)
	case branchChild:
		return s.mustRefer(v)
	case bucketRoot:
		return v == 0 || s.mustRefer(v)
	case inlineHead:
		return f.part < 2 // id and flags
	case listHead, listNumber:
		return true
	}
	return false
}

// mustRefer tells whether a reference to page v has to be noticed, where it
// referred to another page.
func (s *sample) mustRefer(v uint64) bool {
	return s.kind.synced || v >= uint64(s.meta.HighWater) || s.used[page.ID(v)]
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

// outside tells whether the numbers of an element, of which n lie from first
// on: position, and sizes of key and value, reach out of the page if the one of
// f is v.
func (s *sample) outside(f field, v uint64, first, n int) bool {
	end := uint64(first)
	if n == 3 {
		end -= 4 // a leaf's element begins with its flags
	}
	for i := range n {
		if at := first + 4*i; at == f.at {
			end += v
		} else {
			end += s.get(at, 4)
		}
	}
	p, err := s.image.Page(f.page)
	return err == nil && end > uint64(s.at(f.page)+len(p.Bytes()))
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
