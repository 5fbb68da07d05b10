package pager

import (
	"time"

	"holdfast/internal/commit"
)

// SyncUnflushed is Sync if commits without a flush have been made since the last one that was
// flushed, and nothing otherwise.
func (p *Pager) SyncUnflushed() error {
	p.commit.Lock()
	pending := p.unsynced > 0 || p.visible != nil
	p.commit.Unlock()
	if !pending {
		return nil
	}
	return p.Sync()
}

// Sync returns when everything that was committed before is durable, also for
// bbolt: the newest meta names the newest state.
func (p *Pager) Sync() error {
	p.commit.Lock()
	if p.closed.Load() {
		p.commit.Unlock()
		return ErrDatabaseNotOpen
	}
	if p.opts.ReadOnly { // there is no leader, and Close must not come between
		defer p.commit.Unlock()
		return p.flush()
	}
	if err := p.checkLength(); err != nil {
		p.commit.Unlock()
		return err
	}
	again := p.visible != nil // which must be durable before a plain meta names it
	pr := p.barrier(true)
	p.commit.Unlock()
	if err := pr.Finish(); err != nil || !again {
		return err
	}
	p.commit.Lock()
	if p.closed.Load() {
		p.commit.Unlock()
		return ErrDatabaseNotOpen
	}
	pr = p.barrier(true)
	p.commit.Unlock()
	return pr.Finish()
}

// barrier queues a barrier; plain: for bbolt to find the state too. The caller
// holds commit.
func (p *Pager) barrier(plain bool) *Prepared {
	pr := &Prepared{Entry: commit.Entry{Plain: plain}, p: p}
	p.commit.Bar(pr)
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
	p.commit.Lock()
	p.flushing = false
	if p.closed.Load() || p.visible == nil {
		p.commit.Unlock()
		return
	}
	// If writing has stopped, by this or before, the barrier fails as its flush would,
	// and who begins to read gets what is durable: what is visible never will be.
	if err := p.checkLength(); err != nil && p.stoppedBy() == nil {
		p.logf("%v", err)
	}
	pr := p.barrier(false)
	p.commit.Unlock()
	if err := pr.Finish(); err != nil {
		p.logf("flush %s: %v", p.file.Name(), err)
	}
}

// What Options are unless they are set.
const (
	settleDelay   = 50 * time.Millisecond
	periodicDelay = 100 * time.Millisecond
	periodicBytes = 16 << 20
)

// plainLater sees to it that the newest state gets a plain meta when nothing has
// been committed for a while. The timer is not armed anew with each commit: it
// looks how long ago the last one was when it runs out. The caller holds commit.
func (p *Pager) plainLater() {
	p.lastWrite = time.Now()
	if !p.trailing || p.plainFailed || p.opts.Settle < 0 || p.closed.Load() || p.stoppedBy() != nil {
		return
	}
	if p.plainTimer == nil {
		p.plainTimer = time.AfterFunc(p.opts.Settle, p.plainNow)
	} else if !p.armed {
		p.plainTimer.Reset(p.opts.Settle)
	}
	p.armed = true
}

// plainNow is called by the timer.
func (p *Pager) plainNow() {
	p.commit.Lock()
	p.armed = false
	if p.closed.Load() || p.commit.Busy() || !p.trailing || p.visible != nil { // the leader arms it again
		p.commit.Unlock()
		return
	}
	if left := p.opts.Settle - time.Since(p.lastWrite); left > 0 {
		p.armed = true
		p.plainTimer.Reset(left)
		p.commit.Unlock()
		return
	}
	pr := p.barrier(true)
	p.commit.Unlock()
	if err := pr.Finish(); err != nil {
		p.logf("settle %s: %v", p.file.Name(), err)
	}
}
