package mount

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// retire makes an entry that has no holder idle, or has it leave.
func (m *Manager) retire(e *entry) {
	if e.plan.writable() || e.plan.served || e.key == "" || m.opt.IdleAge < 0 || m.closed {
		m.depart(e)
		return
	}
	e.since = time.Now()
	e.idle = m.idle.PushBack(e)
	for m.idle.Len() > m.opt.IdleMax {
		m.counters.evicted++
		m.depart(m.idle.Front().Value.(*entry))
	}
	m.arm()
}

func (m *Manager) unidle(e *entry) {
	if e.idle != nil {
		m.idle.Remove(e.idle)
		e.idle = nil
	}
}

// arm sets the timer to when the mount that is idle longest is too old.
func (m *Manager) arm() {
	first := m.idle.Front()
	if first == nil || m.timer != nil {
		return
	}
	left := m.opt.IdleAge - time.Since(first.Value.(*entry).since)
	m.timer = time.AfterFunc(max(left, 0), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.timer = nil
		m.expire(time.Now())
		m.arm()
	})
}

// expire has those leave that have been idle for IdleAge.
func (m *Manager) expire(now time.Time) {
	for first := m.idle.Front(); first != nil; first = m.idle.Front() {
		e := first.Value.(*entry)
		if now.Sub(e.since) < m.opt.IdleAge {
			return
		}
		m.counters.expired++
		m.depart(e)
	}
}

// DropIdle unmounts everything that is not held, and waits until it is gone or parked.
// What only an idle overlay holds goes too.
func (m *Manager) DropIdle(ctx context.Context) error {
	for {
		m.mu.Lock()
		m.dropIdle()
		var wait <-chan struct{}
		for e := range m.all {
			if e.state == leaving && !closed(e.parked) {
				wait = either(e.gone, e.parked)
				break
			}
		}
		m.mu.Unlock()
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("mount: waiting for idle mounts to go: %w", ctx.Err())
		}
	}
}

// Trim unmounts what is idle, longest first, until there are at most so many mounts or none is idle, and
// returns how many it has begun to unmount. It does not wait for them.
func (m *Manager) Trim(most int) (dropped int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := 0
	for e := range m.all {
		if e.state != leaving {
			left++
		}
	}
	for ; left > most; left-- {
		first := m.idle.Front()
		if first == nil {
			break
		}
		m.depart(first.Value.(*entry))
		dropped++
	}
	return dropped
}

func (m *Manager) dropIdle() {
	for first := m.idle.Front(); first != nil; first = m.idle.Front() {
		m.depart(first.Value.(*entry))
	}
}

// index notes an entry under what it stands on, and under the directories of that.
func (m *Manager) index(e *entry) {
	for _, path := range e.plan.paths() {
		for _, p := range []string{filepath.Clean(path), filepath.Dir(filepath.Clean(path))} {
			if m.byPath[p] == nil {
				m.byPath[p] = map[*entry]struct{}{}
			}
			m.byPath[p][e] = struct{}{}
		}
	}
}

func (m *Manager) unindex(e *entry) {
	for _, path := range e.plan.paths() {
		for _, p := range []string{filepath.Clean(path), filepath.Dir(filepath.Clean(path))} {
			delete(m.byPath[p], e)
			if len(m.byPath[p]) == 0 {
				delete(m.byPath, p)
			}
		}
	}
}

// Forget unmounts what is idle and stands on a directory or file, or on something that
// lies directly in it, and waits until it is gone. It is for a caller that is to delete or move
// that. If any of it is held the error is ErrBusy. The path must be as in the specs.
func (m *Manager) Forget(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	for {
		wait, err := m.forget(path)
		if err != nil || wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("mount: %s: %w", path, ctx.Err())
		}
	}
}

// forget begins with one mount, and returns what to wait for, or nil if none is left.
func (m *Manager) forget(path string) (<-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := range m.byPath[path] {
		switch {
		case e.idle != nil:
			m.depart(e)
		case e.state == leaving:
			if closed(e.parked) {
				return nil, fmt.Errorf("mount: %s is on %s and still being unmounted: %w", e.plan, path, ErrBusy)
			}
		default:
			above := m.idleAbove(e)
			if above == nil {
				return nil, fmt.Errorf("mount: %s is on %s and held %d times: %w", e.plan, path, e.refs, ErrBusy)
			}
			e = above
			m.depart(e)
		}
		return either(e.gone, e.parked), nil
	}
	return nil, nil
}

// idleAbove finds an idle overlay that holds an entry as a lower layer.
func (m *Manager) idleAbove(e *entry) *entry {
	for el := m.idle.Front(); el != nil; el = el.Next() {
		over := el.Value.(*entry)
		for _, h := range over.lowers {
			if h.entry == e {
				return over
			}
		}
	}
	return nil
}
