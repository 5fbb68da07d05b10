package pager

import (
	"bytes"
	"fmt"
	"os"

	"holdfast/internal/page"
)

// createIfNone makes a database of an empty file, and of one in which an earlier
// creation was interrupted. It returns the file's size.
func (p *Pager) createIfNone(size int64) (int64, error) {
	ps := p.opts.PageSize
	if ps == 0 {
		ps = os.Getpagesize()
	}
	valid := ps >= page.MinPageSize && ps <= page.MaxPageSize
	if valid {
		ps = page.NewPageSize(ps)
	}
	if size > 0 {
		if !valid || size <= int64(page.FirstDataPage)*int64(ps) || size > page.FirstPages*int64(ps) {
			return size, nil // not by create
		}
		// As with the metas of any file, what the cache shows may be all there is.
		if err := p.file.DropCache(0, size); err != nil {
			return size, err
		}
		interrupted, err := p.interrupted(size, ps)
		if err != nil || !interrupted {
			return size, err
		}
		p.logf("%s: its creation was interrupted; creating it anew", p.file.Name())
	}
	if !valid {
		return 0, fmt.Errorf("page size of %d bytes is outside of %d to %d", ps, page.MinPageSize, page.MaxPageSize)
	}
	content := page.NewFile(ps, !p.opts.NoSeals)
	metas := int(page.FirstDataPage) * ps
	if err := p.createPart(content[metas:], int64(metas)); err != nil {
		_ = p.file.Truncate(size) // so that the next to try finds what we found
		return 0, err
	}
	// The metas come last: a file with a valid meta is a whole database. For that
	// reason it is not cut off either once they may be in it.
	if err := p.createPart(content[:metas], 0); err != nil {
		return 0, err
	}
	return int64(len(content)), nil
}

// createPart writes a part of a new database, and flushes it.
func (p *Pager) createPart(part []byte, at int64) error {
	if _, err := p.file.WriteAt(part, at); err != nil {
		return err
	}
	p.counts.BytesWritten.Add(int64(len(part)))
	return p.flushOpening()
}

// sector is the smallest piece of a write that survives as a whole, in bytes.
const sector = 512

// interrupted tells whether a file of three or page.FirstPages pages is one whose
// creation a crash has cut short, so that nothing was ever stored in it: its
// metas are still zero, and each sector after them is zero or what create
// writes, in this version or in those that knew no seals. (Any commit makes a file longer.)
func (p *Pager) interrupted(size int64, ps int) (bool, error) {
	have := make([]byte, size)
	if _, err := p.file.ReadAt(have, 0); err != nil {
		return false, p.wrap("read", err)
	}
	sealed, unsealed := page.NewFile(ps, true), page.NewFile(ps, false)
	metas := int(page.FirstDataPage) * ps
	zero := make([]byte, sector)
	for at := 0; at < len(have); at += sector {
		piece := have[at:min(at+sector, len(have))]
		end := at + len(piece)
		created := at >= metas && (bytes.Equal(piece, sealed[at:end]) || bytes.Equal(piece, unsealed[at:end]))
		if !created && !bytes.Equal(piece, zero[:len(piece)]) {
			return false, nil
		}
	}
	return true, nil
}
