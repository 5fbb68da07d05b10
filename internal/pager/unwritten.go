package pager

import (
	"bytes"

	"holdfast/internal/plant"
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
	if plant.On(plant.SlotNotReadBack) {
		return true
	}
	now := make([]byte, len(p.images[slot]))
	if _, err := p.file.ReadAt(now, int64(slot)*int64(p.pageSize)); err != nil {
		return false
	}
	return bytes.Equal(now, p.images[slot])
}

// abortUnwritten ends a group for whose meta there was no room: its members, and all that
// stands on them, have not happened, as if their pages had not been written. The caller
// holds commit.
func (p *Pager) abortUnwritten(g *group, err error) {
	p.absorb(g)
	if g.listed && !plant.On(plant.DirtyOfUnwritten) {
		if p.visible == nil {
			p.dirty.clear()
		} else { // they are those of the group: a flush comes next, which clears them
			p.dirty.unknown = true
		}
	}
	if len(g.members) > 0 {
		p.abortFrom(g, g.members[0].state.Tx, err) // and the barriers are tried without them
		return
	}
	p.unsettled, p.noRoom = true, true
	for _, pr := range g.barriers {
		pr.end(err)
	}
	g.drop()
}

// absorb notes that the first of a group's two flushes has made durable what was visible. The
// caller holds commit.
func (p *Pager) absorb(g *group) {
	if g.absorbed {
		p.overwritten(1-g.slot, *p.visible, true)
		p.holdDurable(*p.states.Current(), true)
	}
}
