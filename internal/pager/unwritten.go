package pager

import (
	"bytes"
	"holdfast/internal/vfs"
)

// metaImage is how many bytes of a meta page can be other than zero, at most: the meta and
// its extension.
const metaImage = 4096

// unwritten tells whether a write of a meta page that has failed, after n bytes, is none: there
// was no room for it, as where a file system writes each page to a new place, and the slot
// holds what it held before. docs/design.md argues what reading it back proves.
func (p *Pager) unwritten(slot, n int, err error) bool {
	if !vfs.IsFull(err) || n > 0 {
		return false
	}
	now := make([]byte, len(p.images[slot]))
	if _, err := p.file.ReadAt(now, int64(slot)*int64(p.pageSize)); err != nil {
		return false
	}
	return bytes.Equal(now, p.images[slot])
}
