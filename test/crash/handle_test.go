package crash

import (
	"errors"
	"math/rand/v2"
	"time"

	"holdfast/internal/vfs"
)

var (
	errDead     = errors.New("the power is off")
	errInjected = errors.New("failed on purpose")
)

// handle is the file as the database has it open. It counts the calls that
// change the file, lets one of them fail, and all of them once it is dead.
type handle struct {
	vfs.File
	r    *run
	dead bool     // guarded by r.mu, as is
	by   vfs.Kind // behind which it died
}

// before says whether a call is to fail.
func (h *handle) before(kind vfs.Kind) error {
	r := h.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.dead {
		return errDead
	}
	r.calls++
	hit := r.calls == r.step.Fail
	if kind == vfs.KindSync {
		r.flushes++
		hit = hit || r.flushes == r.step.FailSync
	}
	if hit && r.failed == "" {
		r.failed, r.failing = kind.String(), kind == vfs.KindSync
		return errInjected
	}
	return nil
}

// after is what a call returns that gave err. Another, one that makes the file
// longer, may have met the end meanwhile: nothing of this one need be on the disk
// that was chosen then.
func (h *handle) after(kind vfs.Kind, err error) error {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if err == nil && h.dead && h.by != kind {
		return errDead
	}
	return err
}

func (h *handle) isDead() bool {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	return h.dead
}

// half of a write that fails is written.
func (h *handle) half(p []byte, off int64) error {
	_, err := h.File.WriteAt(p[:len(p)/2], off)
	return errors.Join(errInjected, err)
}

// isMeta tells whether a write at off is that of a meta, which makes a commit of what was written before.
func (h *handle) isMeta(off int64) bool { return off < 2*int64(h.r.script.PageSize) }

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	switch err := h.before(vfs.KindWrite); err {
	case nil:
		n, err := h.File.WriteAt(p, off)
		if h.isMeta(off) {
			h.r.set(func() { h.r.leftExposed = h.r.leftExposed || h.r.noSync })
		}
		return n, h.after(vfs.KindWrite, err)
	case errInjected:
		h.r.set(func() { h.r.failedMeta = h.isMeta(off) })
		return 0, h.half(p, off)
	default:
		return 0, err
	}
}

func (h *handle) WriteVec(bufs [][]byte, off int64) error {
	switch err := h.before(vfs.KindWrite); err {
	case nil:
		return h.after(vfs.KindWrite, h.File.WriteVec(bufs, off))
	case errInjected:
		return h.half(bufs[0], off)
	default:
		return err
	}
}

func (h *handle) Truncate(size int64) error {
	if err := h.before(vfs.KindTruncate); err != nil {
		return err
	}
	return h.after(vfs.KindTruncate, h.File.Truncate(size))
}

func (h *handle) Grow(size int64) error {
	if err := h.before(vfs.KindGrow); err != nil {
		return err
	}
	return h.File.Grow(size)
}

// DropCache is nothing that a dead process does.
func (h *handle) DropCache(off, n int64) error {
	if h.isDead() {
		return errDead
	}
	return h.File.DropCache(off, n)
}

// gathering is how long Sync waits for edits at most. The one that has the writer lock may wait for this flush, so that it
// can use the pages that the flush frees, and the others for the writer lock.
const gathering = 50 * time.Millisecond

// Sync waits, where transactions run at once, until all have done their edits: so
// some are prepared when the next group is formed.
func (h *handle) Sync() error {
	h.r.mu.Lock()
	late := false
	timer := time.AfterFunc(gathering, func() {
		h.r.set(func() { late = true })
		h.r.wake.Broadcast()
	})
	for !h.dead && !late && h.r.edited < h.r.together {
		h.r.wake.Wait()
	}
	timer.Stop()
	h.r.mu.Unlock()
	switch err := h.before(vfs.KindSync); err {
	case nil:
	case errInjected:
		h.r.disk.FailSync(rand.New(rand.NewPCG(h.r.step.Seed, 4)), errInjected)
	default:
		return err
	}
	if h.r.lies {
		return nil
	}
	return h.after(vfs.KindSync, h.File.Sync())
}
