package pager

import "time"

// What Options are unless they are set.
const (
	plainDelay    = 50 * time.Millisecond // and with faster commits
	periodicDelay = 100 * time.Millisecond
	periodicBytes = 16 << 20
)

// plainDelayMost is how long the newest state waits at most for its plain meta.
const plainDelayMost = time.Second

// plainLater sees to it that the newest state gets a plain meta when nothing has
// been committed for a while. The timer is not armed anew with each commit: it
// looks how long ago the last one was when it runs out. The caller holds the pipeline's lock.
func (p *Pager) plainLater() {
	now := time.Now()
	p.pace.wrote(now.Sub(p.lastWrite))
	p.lastWrite = now
	if !p.trailing || p.plainFailed || p.opts.PlainDelay < 0 || p.closed.Load() || p.stoppedBy() != nil {
		return
	}
	if p.plainTimer == nil {
		p.plainTimer = time.AfterFunc(p.plainWait(), p.plainNow)
	} else if !p.armed {
		p.plainTimer.Reset(p.plainWait())
	}
	p.armed = true
}

// plainWait is how long after the last commit the newest state gets a plain meta.
func (p *Pager) plainWait() time.Duration {
	if p.opts.PlainDelay == 0 {
		return p.pace.delay()
	}
	return p.opts.PlainDelay
}

// pace is how fast groups of commits follow each other. A program that commits every 100 ms, as etcd does, would pay for a
// second flush with each of them if the plain meta came after 50.
type pace struct {
	gap time.Duration // the longest of late: each new one takes an eighth of it away
}

// wrote tells that a group was written so long after the one before.
func (p *pace) wrote(since time.Duration) {
	if since > plainDelayMost {
		p.gap = 0 // a new start, not a pace
		return
	}
	p.gap = max(since, p.gap-p.gap/8)
}

// delay is twice the pace, within limits.
func (p *pace) delay() time.Duration { return min(max(plainDelay, 2*p.gap), plainDelayMost) }

// plainNow is called by the timer.
func (p *Pager) plainNow() {
	p.pipeline.Lock()
	p.armed = false
	if p.closed.Load() || p.pipeline.Busy() || !p.trailing || p.visible != nil { // the leader arms it again
		p.pipeline.Unlock()
		return
	}
	if left := p.plainWait() - time.Since(p.lastWrite); left > 0 {
		p.armed = true
		p.plainTimer.Reset(left)
		p.pipeline.Unlock()
		return
	}
	p.byTimer.Add(1)
	defer p.byTimer.Done()
	// Nothing else looks before the meta is written. The next commit finds out for itself: the file may be long again then.
	if size, err := p.file.Size(); err != nil || size < p.fileSize {
		p.pipeline.Unlock()
		p.logf("no plain meta is written to %s, which has %d bytes, and had %d: %v", p.file.Name(), size, p.fileSize, err)
		return
	}
	pr := p.barrier(true)
	p.pipeline.Unlock()
	if err := pr.Finish(); err != nil {
		p.logf("write the plain meta of %s: %v", p.file.Name(), err)
	}
}
