package mount

import "fmt"

// dirUse is what an overlay uses a directory for.
type dirUse int

const (
	usedBelow dirUse = iota // as a lower layer
	usedAbove               // as upper or work directory
)

// inode names a directory whatever its path.
type inode struct{ dev, ino uint64 }

// dirID is a directory that an overlay uses.
type dirID struct {
	dev, ino uint64
	use      dirUse
	path     string
}

// claim are the entries that use a directory: one above, or any number below. A claim of
// an earlier run has no entries, and a reason.
type claim struct {
	above   *entry
	below   map[*entry]int
	foreign string
}

// takenError tells that a directory is used otherwise.
type takenError struct {
	path string
	by   string
	wait <-chan struct{} // closed when it is worth another try; nil: it is held
}

func (t *takenError) Error() string {
	return fmt.Sprintf("%s is used by %s: %s", t.path, t.by, ErrBusy)
}

func (t *takenError) Unwrap() error { return ErrBusy }

// claim takes the directories of an overlay for it: all, or none if one of them is used
// otherwise (M5). An idle mount in the way is unmounted.
func (m *Manager) claim(e *entry, dirs []dirID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range dirs {
		if err := m.claimOne(e, d); err != nil {
			e.dirs = dirs[:i]
			m.unclaim(e)
			return err
		}
	}
	e.dirs = dirs
	return nil
}

func (m *Manager) claimOne(e *entry, d dirID) error {
	at := inode{d.dev, d.ino}
	c := m.claims[at]
	if c == nil {
		c = &claim{below: map[*entry]int{}}
		m.claims[at] = c
	}
	var other *entry
	switch {
	case c.foreign != "":
		return &takenError{path: d.path, by: c.foreign}
	case c.above != nil:
		other = c.above
	case d.use == usedAbove && len(c.below) > 0:
		for other = range c.below {
			break
		}
	case d.use == usedAbove:
		c.above = e
		return nil
	default:
		c.below[e]++
		return nil
	}
	taken := &takenError{path: d.path, by: other.plan.String()}
	switch {
	case other.idle != nil:
		m.depart(other)
		taken.wait = either(other.gone, other.parked)
	case other.state == leaving && !closed(other.parked):
		taken.wait = either(other.gone, other.parked)
	}
	return taken
}

// unclaim gives the directories of an entry back.
func (m *Manager) unclaim(e *entry) {
	for _, d := range e.dirs {
		at := inode{d.dev, d.ino}
		c := m.claims[at]
		if c.above == e {
			c.above = nil
		}
		if c.below[e]--; c.below[e] <= 0 {
			delete(c.below, e)
		}
		if c.above == nil && len(c.below) == 0 && c.foreign == "" {
			delete(m.claims, at)
		}
	}
	e.dirs = nil
}
