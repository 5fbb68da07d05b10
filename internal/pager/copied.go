package pager

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"

	"holdfast/internal/extension"
)

// foldIdentity is a file's identity as extensions have it; 0 stays 0.
func foldIdentity(id uint64) uint32 {
	if id == 0 {
		return 0
	}
	return cmp.Or(uint32(id)^uint32(id>>32), 1)
}

// isCopied tells whether the file is a copy of one that a program had open, or had not closed,
// when it was copied: an extension names the file in which it was written, until Close takes
// the name out. own is the extension of the winning slot, nil if there is none to be believed:
// then bbolt has written to the file, or that meta page is torn.
func (p *Pager) isCopied(own, other *extension.Extension) bool {
	if own == nil {
		own = other
	}
	return own != nil && own.File != 0 && p.identity != 0 && own.File != p.identity
}

// errNoSum says that a copy cannot be told from one that is whole.
var errNoSum = errors.New("the meta page is not whole that says what it should add up to")

// checkCopy looks at all of a state before it is believed, if the file is a copy of one that was
// in use. Many transactions may lie between the first page that the tool copied and the
// last, and only pages that fit each other all through the file are of one state. It is done once: the first
// meta page that is written names the copy.
func (p *Pager) checkCopy(s *State) error {
	if !p.found.copied || p.opts.Whole == nil {
		return nil
	}
	p.logf("%s is a copy of a file that was not closed: checking its %d pages", p.file.Name(), s.Meta.HighWater)
	var fault error
	func() {
		var unreadable error
		defer func() { fault = cmp.Or(fault, unreadable) }()
		defer s.image.CatchFault(debug.SetPanicOnFault(true), &unreadable)
		fault = p.opts.Whole(s, p.account())
	}()
	if fault == nil && p.found.unreadable && !p.found.sum.Known {
		fault = errNoSum
	}
	if fault == nil {
		return nil
	}
	return tornCopy(p.found.best, fmt.Sprintf("the file was copied, and not closed before, and what is in it does not fit together (%v)", fault))
}
