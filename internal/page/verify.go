package page

import (
	"sync/atomic"
)

// maxEagerPages is the length of a leaf, in pages, up to which its seal is
// verified when the leaf is met. That of a longer one is verified when a value of
// it is read, so that a caller that skips a large value need not read it.
const maxEagerPages = 8

// Verified remembers whose seals were looked at, so that each is at the first
// read of its page only: a bit for each page run, by its first page. Safe for
// concurrent use.
//
// A bit stays set when its page is freed and written anew. We wrote it, through
// the same cache that the mapping shows, from memory in which it was right; what
// happens to it on the disk is found at its first read after the next opening, as
// with a page that stays in use. Each opening begins with no bit.
type Verified struct {
	bits   []atomic.Uint32
	passes *atomic.Int64
}

// NewVerified is for the pages below pages. What before, which may be nil,
// remembers of them is taken over: the pages of a file that is mapped again are
// the same. passes counts the seals that are looked at.
func NewVerified(pages int, before *Verified, passes *atomic.Int64) *Verified {
	v := &Verified{bits: make([]atomic.Uint32, (pages+31)/32), passes: passes}
	if before != nil {
		for i := range min(len(v.bits), len(before.bits)) {
			v.bits[i].Store(before.bits[i].Load())
		}
	}
	return v
}

// Reset forgets all, and makes v one for the pages below pages. Nothing may use it meanwhile.
func (v *Verified) Reset(pages int) {
	words := (pages + 31) / 32
	if cap(v.bits) < words {
		v.bits = make([]atomic.Uint32, words+words/8)
	} else {
		clear(v.bits[:cap(v.bits)])
	}
	v.bits = v.bits[:words]
}

func (v *Verified) set(id ID) { v.bits[id/32].Or(1 << (id % 32)) }

// Verifying is the image with seals verified, as v, which covers all its pages,
// remembers; with nil they are not.
func (m Image) Verifying(v *Verified) Image {
	m.verified, m.bits = v, nil
	if v != nil {
		m.bits = v.bits
	}
	return m
}

// isVerified tells whether nothing is left to do about the seal of page id.
func (m *Image) isVerified(id ID) bool {
	word := uint64(id) / 32 // without seals there are no bits
	return word >= uint64(len(m.bits)) || m.bits[word].Load()>>(id%32)&1 != 0
}

// firstPage is page id, if there is such a page, once its seal was verified, or
// put off.
func (m *Image) firstPage(id ID) (Page, error) {
	p, err := m.UnsealedPage(id)
	if err != nil {
		return p, err
	}
	if p.leaf && uint64(len(p.buf)) > maxEagerPages*m.pageSize {
		p.unverified = true
		return p, nil
	}
	return m.verify(p, id)
}

// Verify makes of an unverified page a verified one: it reads all of it.
func (m *Image) Verify(p Page) (Page, error) {
	if !p.unverified {
		return p, nil
	}
	id := p.ID()
	if p.unverified = false; m.isVerified(id) {
		return p, nil
	}
	return m.verify(p, id)
}

// verify verifies p, the page id, of which isVerified has just said no.
func (m *Image) verify(p Page, id ID) (Page, error) {
	m.verified.passes.Add(1)
	if CheckSeal(p.buf, id) == WrongSeal {
		return Page{}, WrongSealError(id)
	}
	m.verified.set(id)
	return p, nil
}

// Unverified tells whether the seal of the page, a leaf, is to be verified with
// Image.Verify before a value of it is used. Keys may be.
func (p Page) Unverified() bool { return p.unverified }
