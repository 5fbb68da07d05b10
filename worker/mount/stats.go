package mount

import (
	"cmp"
	"slices"
	"time"

	"holdfast"
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

// Stats returns the figures.
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

// Mounted is a mount of a manager.
type Mounted struct {
	What    string    // its kind, and of what
	Holders int       // handles that are not released
	Idle    time.Time // since when it has none; zero: it has some
	Leaving bool      // it is being unmounted
}

// Mounted lists what is mounted, idle mounts last.
func (m *Manager) Mounted() []Mounted {
	m.mu.Lock()
	list := make([]Mounted, 0, len(m.all))
	for e := range m.all {
		one := Mounted{What: e.plan.String(), Holders: e.refs, Leaving: e.state == leaving}
		if e.refs == 0 {
			one.Idle = e.since
		}
		list = append(list, one)
	}
	m.mu.Unlock()
	slices.SortFunc(list, func(a, b Mounted) int {
		return cmp.Or(cmp.Compare(b.Holders, a.Holders), cmp.Compare(a.What, b.What))
	})
	return list
}

// Database is the file of records, for its figures. It must not be written through it, nor closed.
func (m *Manager) Database() *holdfast.DB { return m.records.db }
