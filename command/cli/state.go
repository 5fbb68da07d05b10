package cli

import (
	"fmt"

	"holdfast"
	"holdfast/internal/page"
)

// StateReport is what a file says of its newest state.
type StateReport struct {
	Transaction  int  `json:"transaction"`
	Label        int  `json:"txid"` // as bbolt counts
	Slot         int  `json:"slot"`
	BboltBehind  bool `json:"bbolt_behind"`
	Unfinished   bool `json:"last_flush_unfinished"`
	Unreadable   bool `json:"meta_unreadable"`
	Unflushed    bool `json:"unflushed"`
	FreeRecorded bool `json:"free_pages_recorded"`
}

// NewStateReport is what s says, for JSON.
func NewStateReport(s holdfast.FileState) StateReport {
	return StateReport{
		Transaction: s.Tx, Label: s.Label, Slot: s.Slot,
		BboltBehind: s.BboltBehind, Unfinished: s.Unfinished, Unreadable: s.Unreadable, Unflushed: s.Unflushed, FreeRecorded: s.FreeRecorded,
	}
}

// NewestFree is newest with the number of free pages; nil: it would take a scan.
func (d *Database) NewestFree() (m page.Meta, free *uint64, err error) {
	slots, err := d.Metas()
	if err != nil {
		return m, nil, err
	}
	err = d.View(func(tx *holdfast.Tx) error {
		m = d.Newest(slots, tx)
		return nil
	})
	if err != nil {
		return m, nil, err
	}
	free, err = d.freePages(m)
	return m, free, err
}

// freePages is how many pages are free in the newest state, whose meta m is; nil: it would take a scan.
func (d *Database) freePages(m page.Meta) (*uint64, error) {
	var list FreelistHeader
	var err error
	if m.Freelist != page.NoFreelist {
		if list, err = d.Freelist(m); err != nil {
			return nil, err
		}
	}
	switch state := d.FileState(); {
	case state.FreeRecorded:
		list.Free = uint64(state.FreePages)
	case m.Freelist == page.NoFreelist:
		return nil, nil
	}
	return &list.Free, nil
}

// Newest is the meta of the state of tx, which is the newest or, in a database that is in use, was so when tx began. The current
// slot's own may be of the state before; then the newest has no freelist page.
func (d *Database) Newest(slots page.Slots, tx *holdfast.Tx) page.Meta {
	m := slots.Meta[d.FileState().Slot]
	if d.FileState().BboltBehind || d.InUse() {
		m.Freelist = page.NoFreelist
	}
	if d.InUse() { // the slot may be written while it is read
		m.PageSize = uint32(d.Info().PageSize)
	}
	root := tx.Cursor().Bucket()
	m.Root, m.Sequence = root.RootPage(), root.Sequence()
	m.HighWater = page.ID(tx.Size() / int64(d.Info().PageSize))
	return m
}

// FreelistHeader is what the header of a freelist page says.
type FreelistHeader struct {
	Free  uint64 // pages that it lists
	Pages uint64 // that it takes itself
}

// Freelist reads the header of the freelist page that m names.
func (d *Database) Freelist(m page.Meta) (FreelistHeader, error) {
	buf := make([]byte, page.HeaderSize+8) // with the count of a long one
	if _, err := d.File.ReadAt(buf, int64(m.Freelist)*int64(m.PageSize)); err != nil {
		return FreelistHeader{}, err
	}
	h := page.DecodeHeader(buf)
	if h.Flags != page.FlagFreelist {
		return FreelistHeader{}, page.Corruptf(m.Freelist, "the meta names it as freelist, but it is of type %s", page.TypeName(h.Flags))
	}
	list := FreelistHeader{Pages: uint64(h.Overflow) + 1}
	list.Free, _ = page.FreelistBody(buf)
	if list.Free > uint64(m.HighWater) {
		return FreelistHeader{}, page.Corruptf(m.Freelist, "the freelist has %d pages, more than the file", list.Free)
	}
	return list, nil
}

// LastFlush is what may have become of the last flush, which a file cannot tell.
const LastFlush = "a crash cut it short, before its commits had returned (with Periodic they may have), or it was damaged since, and its commits are lost: if there was no crash, take it for damage (docs/recovering.md)"

// NotFlushed is told of a file that could not be flushed before it was read. What was written last may be in
// the system's cache only.
const NotFlushed = "the file could not be flushed before it was read, as on a read-only file system: a power failure may take back what was written to it last"

// MaxFaults is the number of faults at which the engine ends a check.
const MaxFaults = 10_000

// FaultReport is a fault that was found on a page.
type FaultReport struct {
	Page   uint64 `json:"page"`
	Reason string `json:"reason"`
}

// Notes say what is odd about the metas of a file and yet no fault: a crash can leave
// them so.
func (d *Database) Notes(slots page.Slots) (notes []string) {
	if d.InUse() { // one is written all the time
		return nil
	}
	torn := false
	for slot, err := range slots.Err {
		if err != nil {
			torn = true
			notes = append(notes, fmt.Sprintf("meta page %d is not whole (%s), the other one is used: the last flush is not there: %s", slot, err, LastFlush))
		}
	}
	switch s := d.FileState(); {
	case s.Unfinished:
		notes = append(notes, "the last flush is not whole: "+LastFlush)
	case s.Unreadable && !torn:
		notes = append(notes, fmt.Sprintf("what Holdfast wrote into meta page %d cannot be read; if it was for a last flush: %s", s.Slot, LastFlush))
	}
	return notes
}
