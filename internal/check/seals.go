package check

import "holdfast/internal/page"

// Seals counts pages by their seals. A page counts once with its overflow pages.
type Seals struct {
	Sealed   uint64 // the seal fits the content
	Unsealed uint64 // there is no seal
	Wrong    uint64 // it does not fit
}

// seal looks at the seal of a page run. The content is looked at all the same:
// what else is wrong with it says what happened to the page.
func (c *checker) seal(run []byte, id page.ID, p path, by reference) {
	if c.in.Seals == nil {
		return
	}
	c.count(page.CheckSeal(run, id), id, c.where(p)+by.String())
}

// listSeal looks at the seal of freelist page id, which can be read.
func (c *checker) listSeal(id page.ID) {
	if c.in.Seals == nil {
		return
	}
	if state, err := c.in.Image.FreelistSeal(id); err == nil {
		c.count(state, id, "")
	}
}

func (c *checker) count(state page.SealState, id page.ID, where string) {
	switch state {
	case page.Sealed:
		c.in.Seals.Sealed++
	case page.Unsealed:
		c.in.Seals.Unsealed++
	case page.WrongSeal:
		c.in.Seals.Wrong++
		c.err(page.WrongSealError(id), where)
	}
}
