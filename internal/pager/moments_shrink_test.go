package pager_test

import (
	"errors"
	"fmt"
	"syscall"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// mapped is a file that knows what is mapped of it.
type mapped struct {
	vfs.File
	maps []vfs.Mapping
}

func (f *mapped) Map(length int64, opts vfs.MapOptions) (vfs.Mapping, error) {
	m, err := f.File.Map(length, opts)
	if err == nil {
		f.maps = append(f.maps, m)
	}
	return m, err
}

// killed is what the end of its process does to a file.
func (f *mapped) killed() {
	for _, m := range f.maps {
		_ = m.Close()
	}
	_ = f.Close()
}

// handle opens the disk. In histories in which the file becomes shorter it can be cut
// off below its mapping.
func (h *history) handle() *mapped {
	if h.shrinks {
		return &mapped{File: vfs.NewInject(h.disk.OpenAhead(16<<10), h.call)}
	}
	return &mapped{File: vfs.NewInject(h.disk.Open(), h.call)}
}

// stepShorter does one of the things by which a file becomes shorter.
func (h *history) stepShorter() {
	switch h.rng.IntN(6) {
	case 0:
		h.big = !h.big
		h.logf("long runs %t", h.big)
	case 1, 2:
		h.low = !h.low
		h.logf("place low %t", h.low)
		h.PlaceLow(h.low)
	case 3:
		h.failNext = "cut"
		h.logf("the next truncation is to fail")
	default:
		h.shrink()
	}
}

// lower has a transaction lower the high-water mark now and then.
func (h *history) lower(w *pager.WriteTx) bool {
	if !h.shrinks || !h.oneIn(3) {
		return false
	}
	if h.oneIn(3) {
		h.hold() // of more than what is left
	}
	before := w.HighWater()
	h.logf("lower, from %d", before)
	w.Lower()
	h.counts["lowered"]++
	if h.oneIn(6) {
		h.failNext = "page" // so that some of them are aborted
	}
	for _, r := range h.held {
		h.count("reader of what is lowered", r.snap.Value().Meta.HighWater > before)
	}
	return true
}

// shrink cuts off what is not needed.
func (h *history) shrink() {
	h.logf("shrink")
	all := h.queue
	h.leading = true
	h.cutFailed = false
	size, err := h.Shrink(nil)
	h.queue = h.queue[len(all):]
	h.ended(all) // some of them lead if nothing was to be cut off
	h.leading = false
	failed := h.cutFailed
	switch {
	case h.gone || h.stopped || h.foundFull(err):
	case failed && !errors.Is(err, syscall.EIO):
		h.fail("a truncation failed, and Shrink says %w", err)
	case err != nil && !failed:
		h.fail("shrink: %w", err)
	case err == nil && size > int64(len(h.disk.Bytes())):
		h.fail("shrink says that %d bytes are left, of %d", size, len(h.disk.Bytes()))
	}
	h.finish() // of what was prepared meanwhile
}

// cutOff is asked before the file is cut off.
func (h *history) cutOff(op vfs.Op) error {
	h.logf("  cut off at page %d", op.Len/momentPage)
	if h.failNext == "cut" {
		h.failNext, h.cutFailed = "", true
		return syscall.EIO
	}
	h.counts["cut off"]++
	h.count("prepared past the cut", len(h.queue) > 0 || h.editing != nil)
	return nil
}

// longEnough is an error if the file is shorter than what one of its slots says.
func longEnough(content []byte) error {
	slots := page.DecodeSlots(content[:momentPage], content[momentPage:2*momentPage])
	for slot, m := range slots.Meta {
		if high := int64(m.HighWater) * momentPage; slots.Err[slot] == nil && high > int64(len(content)) {
			return fmt.Errorf("the file has %d bytes, and the meta in slot %d wants %d", len(content), slot, high)
		}
	}
	return nil
}

// canCopy is an error if a reader of state s cannot copy the file up to its end.
func (h *history) canCopy(s *pager.State) error {
	buf := make([]byte, int64(s.Meta.HighWater)*momentPage)
	if _, err := h.file.ReadAt(buf, 0); err != nil {
		return fmt.Errorf("copy the file up to page %d: %w", s.Meta.HighWater, err)
	}
	return nil
}
