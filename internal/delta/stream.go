package delta

import (
	"bytes"

	"holdfast/internal/page"
)

// stream gives the elements of some leaves of a tree, in the order of their keys.
type stream struct {
	*keys
	side   Side
	leaves []page.ID // to come
	p      page.Page // that it stands on; of an inline bucket the only one
	i      int       // its element that comes next
	room   int       // bytes of the page for elements that come

	// Where it stands.
	end  bool
	key  []byte
	e    page.Element
	some bool // it stood on another one before
}

// begin goes to the first element.
func (s *stream) begin() error {
	if s.p.Valid() {
		s.room = len(s.p.Bytes())
	}
	return s.next()
}

// next goes to the next element.
func (s *stream) next() error {
	for !s.p.Valid() || s.i == s.p.Count() {
		if len(s.leaves) == 0 {
			s.end, s.key = true, nil
			return nil
		}
		p, err := s.page(s.side, s.leaves[0])
		if err != nil {
			return err
		}
		s.leaves, s.p, s.i, s.room = s.leaves[1:], p, 0, len(p.Bytes())
	}
	e, err := s.p.Leaf(s.i)
	if err != nil {
		return err
	}
	// On a damaged page elements may share their bytes.
	if s.room -= len(e.Key) + len(e.Value); s.room < 0 {
		return page.Corruptf(s.p.ID(), "the elements in the page take more bytes than it has")
	}
	if s.some && bytes.Compare(s.key, e.Key) >= 0 {
		return page.Corruptf(s.p.ID(), "element %d: its key is not greater than the one before", s.i)
	}
	if e.IsBucket() && s.p.ID() == 0 {
		return page.Corruptf(0, "inline bucket holds a bucket")
	}
	s.some, s.key, s.e = true, e.Key, e
	s.i++
	return nil
}

func (s *stream) bucket() bool { return s.e.IsBucket() }

// length is that of the value.
func (s *stream) length() int { return len(s.e.Value) }

// value is the value, if it is wanted: then its page is verified.
func (s *stream) value(wanted bool) ([]byte, error) {
	if !wanted {
		return nil, nil
	}
	p, err := s.states[s.side].Source.Verify(s.p)
	if err != nil {
		return nil, err
	}
	s.p = p
	return s.e.Value, nil
}

// content is what the bucket on which the stream stands holds.
func (s *stream) content() (page.Bucket, content, error) {
	value, err := s.value(true)
	if err != nil {
		return page.Bucket{}, content{}, err
	}
	b, inline, err := page.DecodeBucket(value)
	if err != nil {
		return b, content{}, page.Corruptf(s.p.ID(), "element %d: %v", s.i-1, err)
	}
	return b, content{root: b.Root, inline: inline}, nil
}
