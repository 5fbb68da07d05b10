package pager

import (
	"time"

	"holdfast/internal/commit"
)

// SyncUnflushed is Sync if commits without a flush have been made since the last one that was
// flushed, and nothing otherwise.
func (p *Pager) SyncUnflushed() error {
	p.pipeline.Lock()
	pending := p.unsynced > 0 || p.visible != nil
	p.pipeline.Unlock()
	if !pending {
		return nil
	}
	return p.Sync()
}

// Sync returns when everything that was committed before is durable, also for
// bbolt: the newest meta names the newest state.
func (p *Pager) Sync() error {
	p.pipeline.Lock()
	if p.closed.Load() {
		p.pipeline.Unlock()
		return ErrDatabaseNotOpen
	}
	if p.opts.ReadOnly { // there is no leader, and Close must not come between
		defer p.pipeline.Unlock()
		return p.flush()
	}
	if err := p.checkLength(); err != nil {
		p.pipeline.Unlock()
		return err
	}
	again := p.visible != nil // which must be durable before a plain meta names it
	pr := p.barrier(true)
	p.pipeline.Unlock()
	if err := pr.Finish(); err != nil || !again {
		return err
	}
	p.pipeline.Lock()
	if p.closed.Load() {
		p.pipeline.Unlock()
		return ErrDatabaseNotOpen
	}
	pr = p.barrier(true)
	p.pipeline.Unlock()
	return pr.Finish()
}

// barrier queues a barrier; plain: for bbolt to find the state too. The caller
// holds the pipeline's lock.
func (p *Pager) barrier(plain bool) *Prepared {
	pr := &Prepared{Entry: commit.Entry{Plain: plain}, p: p}
	p.pipeline.Bar(pr)
	return pr
}

// flushLater sees to it that what is visible is soon durable. The caller holds
// commit.
func (p *Pager) flushLater() {
	if p.flushing || p.closed.Load() {
		return
	}
	p.flushing = true
	if p.flusher == nil {
		p.flusher = time.AfterFunc(p.opts.PeriodicDelay, p.flushVisible)
	} else {
		p.flusher.Reset(p.opts.PeriodicDelay)
	}
}

// flushVisible is called by the timer.
func (p *Pager) flushVisible() {
	p.pipeline.Lock()
	p.flushing = false
	if p.closed.Load() || p.visible == nil {
		p.pipeline.Unlock()
		return
	}
	p.byTimer.Add(1)
	defer p.byTimer.Done()
	// If writing has stopped, by this or before, the barrier fails as its flush would,
	// and who begins to read gets what is durable: what is visible never will be.
	if err := p.checkLength(); err != nil && p.stoppedBy() == nil {
		p.logf("%v", err)
	}
	pr := p.barrier(false)
	p.pipeline.Unlock()
	if err := pr.Finish(); err != nil {
		p.logf("flush %s: %v", p.file.Name(), err)
	}
}
