package mount

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// counters count since the manager was opened.
type counters struct {
	made, shared, evicted, expired, parked uint64
}

// Stats are the figures of a manager.
type Stats struct {
	Mounts int // all of those that follow
	Held   int
	Idle   int
	Going  int // being unmounted

	Pending int // unmounts under way, attachments included
	Parked  int // those of them that have failed for some time

	Descriptors int // that the mounts take
	KernelBytes int // that they take of the kernel's memory, about

	Made    uint64 // mounts, ever
	Shared  uint64 // acquisitions of one that was there
	Evicted uint64 // idle mounts that made room
	Expired uint64 // idle mounts that became too old
	Parks   uint64 // unmounts that were parked

	// Searches is how often the mounts of all processes were read to find who has a file system.
	// That takes as long as there are mounts on the machine.
	Searches uint64
}

// Stats returns the figures of the moment.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Stats{
		Mounts: len(m.all), Idle: m.idle.Len(), Pending: len(m.pending),
		Descriptors: len(m.all), KernelBytes: len(m.all) * KernelBytesPerMount,
		Made: m.counters.made, Shared: m.counters.shared, Evicted: m.counters.evicted,
		Expired: m.counters.expired, Parks: m.counters.parked, Searches: m.kernel.searches.Load(),
	}
	for e := range m.all {
		if e.state == leaving {
			s.Going++
		}
	}
	s.Held = s.Mounts - s.Idle - s.Going
	for p := range m.pending {
		if p.Parked {
			s.Parked++
		}
	}
	return s
}

// Features lists which features of the kernel are used, and what is done without the others.
func (m *Manager) Features() []FeatureState { return m.kernel.features.list() }

// Host is the mount namespace that the process is in.
func (m *Manager) Host() *Namespace { return m.kernel.host }

// StepNamespace is the small namespace in which programs are started. It is made with the first
// call. A file system that is mounted in the host's namespace later does not show in it.
func (m *Manager) StepNamespace() (*Namespace, error) {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("mount: %w", ErrClosed)
	}
	return m.kernel.stepNamespace()
}

// next gives a number that this run gives once.
func (m *Manager) next() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serial++
	return m.serial
}

// Close refuses further use, unmounts what is idle, and waits until all is released and
// unmounted. If ctx ends first it returns an error that says what is left, and closes nevertheless; the next Open
// finds what is left then as after a crash. Further calls do nothing.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.dropIdle()
	if m.timer != nil {
		m.timer.Stop()
	}
	m.mu.Unlock()
	left := m.drain(ctx)
	close(m.stop)
	m.kernel.close()
	err := left
	if left == nil {
		err = m.records.dropRun(m.run)
	}
	err = errors.Join(err, m.records.db.Close())
	if err == nil {
		err = m.kernel.removeTmpfs()
	}
	if err != nil {
		return fmt.Errorf("mount: closing: %w", err)
	}
	return nil
}

// drain waits until nothing is mounted or pending.
func (m *Manager) drain(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s := m.Stats()
		if s.Mounts == 0 && s.Pending == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d mounts are held and %d are being unmounted: %w", s.Held, s.Going, ctx.Err())
		}
	}
}
