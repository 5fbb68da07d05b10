package pager_test

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// tree is the pages of a state: a root, and leaves below it, most of which it shares
// with the state before. A part is who wrote it, and in how many pages.
type tree struct {
	root part
	kids [3]part
}

type part struct{ by, pages int }

// text fills the pages of a part.
func (p part) text() string {
	return strings.Repeat(fmt.Sprintf("%07d ", p.by), (p.pages*momentPage-momentFrame)/8)
}

// momentFrame is more than what a page has besides the text: its header, its
// elements and their keys, the pages of three kids, and a seal.
const momentFrame = 128

// allocator is a transaction, or its Stream.
type allocator interface {
	Allocate(n uint64, hot bool) (page.ID, []byte, error)
	Seal(end int)
}

// edit makes a transaction that writes the root and some of what is below, in pages
// from a.
func (h *history) edit(w *pager.WriteTx, a allocator) (page.ID, error) {
	old, err := w.Page(w.Base().Meta.Root)
	if err != nil {
		return 0, err
	}
	n, kids, err := parseRoot(old)
	if err != nil {
		return 0, err
	}
	h.last++
	next := *h.trees[n]
	h.trees[h.last] = &next
	if err := w.Free(old.ID(), old.Pages()); err != nil {
		return 0, err
	}
	for i := range kids {
		if kids[i] != 0 && !h.oneIn(3) {
			continue
		}
		if kids[i] != 0 {
			if err := w.Free(kids[i], uint64(next.kids[i].pages)); err != nil {
				return 0, err
			}
		}
		next.kids[i] = part{h.last, 1 + h.rng.IntN(3)}
		if h.big {
			next.kids[i].pages += h.rng.IntN(12)
		}
		if kids[i], err = next.kids[i].write(a, nil); err != nil {
			return 0, err
		}
	}
	next.root = part{h.last, 1 + h.rng.IntN(5)}
	list := make([]byte, 0, 8*len(kids))
	for _, id := range kids {
		list = binary.LittleEndian.AppendUint64(list, uint64(id))
	}
	return next.root.write(a, list)
}

// write writes a part; list, if there is one, is where the kids are.
func (p part) write(w allocator, list []byte) (page.ID, error) {
	id, buf, err := w.Allocate(uint64(p.pages), list != nil)
	if err != nil {
		return 0, err
	}
	enc := page.NewLeaf(buf, id, 2, uint32(p.pages-1))
	enc.Leaf(0, []byte("kids"), list)
	enc.Leaf(0, []byte("text"), []byte(p.text()))
	w.Seal(enc.End())
	return id, nil
}

// parseRoot is the number of the transaction that a root is of, and where the kids
// are.
func parseRoot(root page.Page) (n int, kids [3]page.ID, err error) {
	if root.Count() == 0 { // of a new file
		return 0, kids, nil
	}
	list, err := root.Leaf(0)
	if err != nil || len(list.Value) != 8*len(kids) {
		return 0, kids, fmt.Errorf("page %d is not a root of ours, %w", root.ID(), err)
	}
	for i := range kids {
		kids[i] = page.ID(binary.LittleEndian.Uint64(list.Value[8*i:]))
	}
	text, err := root.Leaf(1)
	if err != nil {
		return 0, kids, err
	}
	first, _, _ := strings.Cut(string(text.Value), " ")
	n, err = strconv.Atoi(first)
	return n, kids, err
}

// scanTree gives the pages of a state.
func scanTree(s *pager.State, used func(page.Extent) error) error {
	root, err := s.Page(s.Meta.Root)
	if err != nil {
		return err
	}
	_, kids, err := parseRoot(root)
	if err != nil {
		return err
	}
	err = used(page.Extent{Start: root.ID(), N: root.Pages()})
	for _, id := range kids {
		if id == 0 || err != nil {
			continue
		}
		var kid page.Page
		if kid, err = s.Page(id); err == nil {
			err = used(page.Extent{Start: id, N: kid.Pages()})
		}
	}
	return err
}

// isIn is an error unless the page, with those behind it, is the part.
func (p part) isIn(in page.Page) error {
	if in.Count() != 2 || in.Pages() != uint64(p.pages) {
		return fmt.Errorf("page %d has %d elements in %d pages", in.ID(), in.Count(), in.Pages())
	}
	el, err := in.Leaf(1)
	if err == nil && string(el.Value) != p.text() {
		err = fmt.Errorf("page %d is not what %d wrote", in.ID(), p.by)
	}
	return err
}
