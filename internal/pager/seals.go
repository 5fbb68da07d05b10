package pager

import "holdfast/internal/page"

// rememberSeals prepares the newest generation for verifying seals, as far as
// that was not done through the one before, which may be nil.
func (p *Pager) rememberSeals(before *generation) {
	if p.opts.NoSeals || p.foreign != nil { // see Foreign
		return
	}
	var seen *page.Verified
	if before != nil {
		seen = before.verified
	}
	p.gen.verified = page.NewVerified(len(p.gen.mapping.Data())/p.pageSize, seen, &p.counts.SealsVerified)
}

// Verify verifies the values of a page that is Unverified.
func (s *State) Verify(pg page.Page) (page.Page, error) { return s.image.Verify(pg) }

// Verify verifies the values of a page that is Unverified. One that is not in the
// file yet never is.
func (w *WriteTx) Verify(pg page.Page) (page.Page, error) { return w.base.image.Verify(pg) }

// image is the pages below highWater through the newest mapping.
func (p *Pager) image(highWater page.ID) page.Image {
	return page.NewImage(p.gen.mapping.Data(), p.pageSize, highWater).Verifying(p.gen.verified)
}
