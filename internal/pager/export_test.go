package pager

import (
	"slices"

	"holdfast/internal/page"
)

// Waiting tells whether so many transactions and barriers wait for the next group.
func (p *Pager) Waiting(n int) bool {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	return p.pipeline.Waiting() == n
}

// Awaited tells whether a caller waits for a transaction that another caller is to finish.
func (p *Pager) Awaited() bool {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	waits := func(pr *Prepared) bool { return pr.Awaited() }
	return slices.ContainsFunc(p.pipeline.Queue(), waits) || slices.ContainsFunc(p.pipeline.InFlight(), waits)
}

// FlushVisible does what the timer of Periodic does.
func (p *Pager) FlushVisible() { p.flushVisible() }

// PlainNow does what the timer of the plain meta does.
func (p *Pager) PlainNow() { p.plainNow() }

// Closing tells whether Close has begun.
func (p *Pager) Closing() bool { return p.closed.Load() }

// NoFlush has Allocate never flush: the caller is within a flush, and would wait for itself.
func (w *WriteTx) NoFlush() { w.asked = true }

// Rise raises the high-water mark by n pages, which are free.
func (w *WriteTx) Rise(n uint64) error {
	w.p.pipeline.Lock()
	defer w.p.pipeline.Unlock()
	id, err := w.space.Rise(n)
	if err != nil {
		return err
	}
	return w.space.Free(page.Extent{Start: id, N: n})
}

// Settles tells whether the timer would write the plain meta of the newest state.
func (p *Pager) Settles() bool {
	p.pipeline.Lock()
	defer p.pipeline.Unlock()
	return p.trailing && !p.plainFailed
}
