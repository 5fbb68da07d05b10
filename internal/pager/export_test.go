package pager

// Waiting tells whether so many transactions and barriers wait for the next group.
func (p *Pager) Waiting(n int) bool {
	p.commit.Lock()
	defer p.commit.Unlock()
	return len(p.queue)+len(p.barriers) == n
}

// FlushVisible does what the timer of Periodic does.
func (p *Pager) FlushVisible() { p.flushVisible() }

// Closing tells whether Close has begun.
func (p *Pager) Closing() bool { return p.closed.Load() }
