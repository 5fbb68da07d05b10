package mount

import (
	"context"
	"fmt"
	"time"
)

// This file unmounts: each unmount is tried until the kernel has let the mount go, and listed meanwhile.

// depart begins the unmount of an entry.
func (m *Manager) depart(e *entry) {
	m.unidle(e)
	e.state = leaving
	go m.unmount(e, m.register(e.plan.String()))
}

// unmount unmounts the master of an entry, and goes on until the kernel has let it go.
func (m *Manager) unmount(e *entry, p *pending) {
	unmade := false
	p.soon = e.master.left
	done := m.persist(p, func() { close(e.parked) }, func(thorough bool) error {
		if !unmade {
			if err := m.kernel.unmake(e.master); err != nil {
				return err
			}
			unmade = true
		}
		if e.plan.upper == "" {
			return nil
		}
		return m.released(e, thorough, time.Since(p.Since) >= m.opt.ParkAfter)
	})
	if !done {
		return
	}
	if e.plan.upper != "" {
		if err := m.records.dropUpper(e.name); err != nil {
			m.log.Error("a record of a mount stays", "mount", e.plan.String(), "reason", err)
		}
	}
	for _, h := range e.lowers {
		h.Release() // before the entry is off the lists: who sees it gone sees these idle
	}
	m.mu.Lock()
	m.unclaim(e)
	m.unlist(e)
	m.mu.Unlock()
	close(e.gone)
}

// released tells whether the file system of an overlay has left the kernel. If it lasts, late, it is worth
// looking for who has it.
func (m *Manager) released(e *entry, thorough, late bool) error {
	gone, known := m.kernel.left(e.master)
	if gone {
		return nil
	}
	if known {
		return m.inUse(e, late)
	}
	if gone := m.kernel.gone(e.master.dev); gone || m.reused(e.master.dev, e) {
		return nil
	}
	if thorough || !m.kernel.quick() {
		stays, err := m.kernel.stays(e.master.dev, e.name, e.plan.upper)
		if err != nil || !stays {
			return err
		}
	}
	return m.inUse(e, late)
}

func (m *Manager) inUse(e *entry, look bool) error {
	return fmt.Errorf("its file system is still in use%s: %w", m.kernel.inUseBy(e.name, look), ErrBusy)
}

// reused tells whether the number of a file system that an entry had, or none of this
// run if it is nil, is that of another entry by now.
func (m *Manager) reused(dev uint64, by *entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.all {
		if other != by && other.state == mounted && !other.entrusted && other.master.dev == dev {
			return true
		}
	}
	return false
}

// Times between tries: they double, up to soonDelay until it is parked, and up to lastDelay
// after that.
const (
	firstDelay = time.Millisecond
	soonDelay  = 50 * time.Millisecond
	lastDelay  = 30 * time.Second
)

// thoroughEach is how many tries there are to one that spares no effort to find out whether the
// thing is gone.
const thoroughEach = 4

// Pending is an unmount that is under way.
type Pending struct {
	What    string
	Since   time.Time
	Tries   int   // that have failed
	Err     error // of the last of them
	Running bool  // the system call has not returned
	Parked  bool  // it is reported, and tried again at ever longer intervals
}

type pending struct {
	Pending
	kick  chan struct{}   // has it tried at once
	soon  <-chan struct{} // closed when it can be done; nil: not known
	tried chan struct{}   // closed, and made anew, with each try that has ended
}

// register notes an unmount that is about to begin. The caller holds the mutex.
func (m *Manager) register(what string) *pending {
	p := &pending{
		Pending: Pending{What: what, Since: time.Now()},
		kick:    make(chan struct{}, 1), tried: make(chan struct{}),
	}
	m.pending[p] = struct{}{}
	return p
}

// persist tries something until it succeeds, and returns false if the manager was closed before.
// When it is parked, parked is called, and thorough is true with each try from then on, and now and
// then before.
func (m *Manager) persist(p *pending, parked func(), try func(thorough bool) error) bool {
	most := soonDelay
	for delay := firstDelay; ; delay = min(2*delay, most) {
		late := time.Since(p.Since) >= m.opt.ParkAfter
		thorough := late || p.Tries%thoroughEach == thoroughEach-1
		m.mu.Lock()
		p.Running = true
		m.mu.Unlock()
		err := try(thorough)

		m.mu.Lock()
		p.Running = false
		close(p.tried)
		p.tried = make(chan struct{})
		if err == nil {
			delete(m.pending, p)
			m.mu.Unlock()
			return true
		}
		p.Tries++
		p.Err = err
		park := late && !p.Parked
		if park {
			p.Parked, most = true, lastDelay
			m.counters.parked++
		}
		m.mu.Unlock()
		if park {
			m.log.Warn("an unmount is parked and will be tried again", "what", p.What, "reason", err)
			parked()
		}
		select {
		case <-time.After(delay):
		case <-p.kick:
		case <-p.soon:
			p.soon = nil
		case <-m.stop:
			return false
		}
	}
}

// Pending lists the unmounts that are under way, and why those that were tried have failed.
func (m *Manager) Pending() []Pending {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Pending, 0, len(m.pending))
	for p := range m.pending {
		list = append(list, p.Pending)
	}
	return list
}

// Retry has all pending unmounts tried at once, and waits until each was.
func (m *Manager) Retry(ctx context.Context) error {
	m.mu.Lock()
	var tried []<-chan struct{}
	for p := range m.pending {
		tried = append(tried, p.tried)
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
	m.mu.Unlock()
	for _, t := range tried {
		select {
		case <-t:
		case <-ctx.Done():
			return fmt.Errorf("mount: waiting for unmounts: %w", ctx.Err())
		}
	}
	return nil
}

// closed tells whether a channel is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// either returns a channel that is closed when one of two is.
func either(a, b <-chan struct{}) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		select {
		case <-a:
		case <-b:
		}
	}()
	return c
}
