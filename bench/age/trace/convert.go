package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A Cycle are the transactions of a cycle as ReadLog returns them.
type Cycle struct {
	Make, Remove []Tx
}

// leastFresh is how many bytes a name has at least that can be another in each cycle: shorter ones would meet.
const leastFresh = 8

// Convert makes a trace of the second of two cycles, in which the program did the same with other content. Names that are also in the first
// one are Fixed, and so are those of which less than eight bytes could be another, such as a number; the others are Fresh. The keys of
// etcd's bucket "key" are Revisions, by so many apart as those of the two cycles.
func Convert(program string, first, second Cycle) (*Trace, error) {
	t := &Trace{Program: program}
	known := map[string]bool{}
	for _, n := range names(first) {
		known[n.Text] = true
	}
	class := func(n Name) Name {
		if n.Class = Fresh; known[n.Text] || len(n.Text)-strings.LastIndexAny(n.Text, ":/")-1 < leastFresh {
			n.Class = Fixed
		}
		return n
	}
	convert := func(part []Tx) (all []Tx) {
		for _, tx := range part {
			var converted Tx
			for _, e := range tx {
				c := Entry{Op: e.Op, Size: e.Size}
				for _, b := range e.Bucket {
					c.Bucket = append(c.Bucket, class(b))
				}
				if isRevision(e) {
					c.Key = Name{Revision, e.Key.Text}
				} else if e.Key.Text != "" {
					c.Key = class(e.Key)
				}
				converted = append(converted, c)
			}
			all = append(all, converted)
		}
		return all
	}
	t.Make, t.Remove = convert(second.Make), convert(second.Remove)
	if len(t.Make) == 0 || len(t.Remove) == 0 {
		return nil, fmt.Errorf("%s: %d transactions make something, %d remove it: nothing was logged", program, len(t.Make), len(t.Remove))
	}
	var err error
	t.Revisions, err = revisions(first, second)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return t, nil
}

// names are all that occur in a cycle, some of them often.
func names(c Cycle) (all []Name) {
	for _, part := range [][]Tx{c.Make, c.Remove} {
		for _, tx := range part {
			for _, e := range tx {
				all = append(append(all, e.Bucket...), e.Key)
			}
		}
	}
	return all
}

// isRevision tells whether the key is a revision of etcd: eight bytes, an underscore, eight bytes; and a t if a key was deleted.
func isRevision(e Entry) bool {
	k := e.Key.Text
	return e.Bucket[len(e.Bucket)-1].Text == "key" && (len(k) == 17 || len(k) == 18 && k[17] == 't') && k[8] == '_'
}

// revisions is by how much revisions grew from the first cycle to the second.
func revisions(first, second Cycle) (uint64, error) {
	low, _, ok := span(first)
	lowAfter, highAfter, okAfter := span(second)
	switch {
	case !ok && !okAfter:
		return 0, nil
	case ok != okAfter:
		return 0, errors.New("one of the cycles has revisions of etcd")
	case lowAfter <= low || highAfter-lowAfter >= lowAfter-low:
		return 0, fmt.Errorf("a cycle has revisions from %d to %d, which would be those of another: the one before began with %d", lowAfter, highAfter, low)
	}
	return lowAfter - low, nil
}

// span are the lowest and the highest revision that was put in a cycle.
func span(c Cycle) (low, high uint64, ok bool) {
	for _, part := range [][]Tx{c.Make, c.Remove} {
		for _, tx := range part {
			for _, e := range tx {
				if e.Op != Put || !isRevision(e) {
					continue
				}
				n := binary.BigEndian.Uint64([]byte(e.Key.Text))
				if !ok {
					low, high, ok = n, n, true
				}
				low, high = min(low, n), max(high, n)
			}
		}
	}
	return low, high, ok
}
