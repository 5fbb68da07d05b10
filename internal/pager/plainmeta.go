package pager

import "time"

// What Options are unless they are set.
const (
	plainDelay    = 50 * time.Millisecond
	periodicDelay = 100 * time.Millisecond
	periodicBytes = 16 << 20
)

// plainLater sees to it that the newest state gets a plain meta when nothing has
// been committed for a while. The timer is not armed anew with each commit: it
// looks how long ago the last one was when it runs out. The caller holds the pipeline's lock.
func (p *Pager) plainLater() {
	p.lastWrite = time.Now()
	if !p.trailing || p.plainFailed || p.opts.PlainDelay < 0 || p.closed.Load() || p.stoppedBy() != nil {
		return
	}
	if p.plainTimer == nil {
		p.plainTimer = time.AfterFunc(p.opts.PlainDelay, p.plainNow)
	} else if !p.armed {
		p.plainTimer.Reset(p.opts.PlainDelay)
	}
	p.armed = true
}

// plainNow is called by the timer.
func (p *Pager) plainNow() {
	p.pipeline.Lock()
	p.armed = false
	if p.closed.Load() || p.pipeline.Busy() || !p.trailing || p.visible != nil { // the leader arms it again
		p.pipeline.Unlock()
		return
	}
	if left := p.opts.PlainDelay - time.Since(p.lastWrite); left > 0 {
		p.armed = true
		p.plainTimer.Reset(left)
		p.pipeline.Unlock()
		return
	}
	pr := p.barrier(true)
	p.pipeline.Unlock()
	if err := pr.Finish(); err != nil {
		p.logf("write the plain meta of %s: %v", p.file.Name(), err)
	}
}
