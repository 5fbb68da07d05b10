package mount

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
