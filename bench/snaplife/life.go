package snaplife

import (
	"crypto/sha256"
	"fmt"

	"holdfast/bench/age"
)

// What days are made of.
const (
	imageLayers = 5
	buildSteps  = 4
	buildCycles = 3
)

// Do is what an Op does.
type Do int

// What there is to do.
const (
	DoStep   Do = iota // prepares on Parent, mounts, writes the files of Name, unmounts, commits Name
	DoCycle            // prepares Name on Parent, asks for the mounts, removes it
	DoStart            // prepares Name on Parent, which stays active
	DoView             // views Parent as Name
	DoRemove           // removes Name
	DoSweep            // waits until what was removed is deleted
)

func (d Do) String() string {
	return [...]string{"step", "cycle", "start", "view", "remove", "sweep"}[d]
}

// Op is something that a worker asks of a snapshotter.
type Op struct {
	Do           Do
	Name, Parent string
}

// made are the snapshots of an image or of a build, in the order in which they are made.
type made struct {
	names []string
	on    *made // the image on which a build stands
	users int   // builds that stand on an image
}

func (m *made) top() string { return m.names[len(m.names)-1] }

// Life makes the operations of the days, one day after the other.
type Life struct {
	schedule age.Schedule
	day      int
	next     int     // build
	images   []*made // oldest first
	builds   []*made
}

// NewLife is a life that has not begun.
func NewLife(s age.Schedule) *Life { return &Life{schedule: s} }

// Live is how many builds are live.
func (l *Life) Live() int { return len(l.builds) }

// Image is the newest layer of the newest image. A day must have passed.
func (l *Life) Image() string { return l.images[len(l.images)-1].top() }

// layerName is a name as containerd has it, which tells nothing of the order in which layers were made.
func layerName(format string, args ...any) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, format, args...)))
}

// Day calls do with each operation of the next day.
func (l *Life) Day(do func(Op) error) error {
	l.day++
	image := &made{}
	if err := l.chain(image, "", imageLayers, fmt.Sprint("image ", l.day), do); err != nil {
		return err
	}
	l.images = append(l.images, image)
	for range l.schedule.Cycles {
		if err := l.build(image, do); err != nil {
			return err
		}
		if err := l.keep(l.schedule.Retention, do); err != nil {
			return err
		}
	}
	if l.day%l.schedule.Prune == 0 {
		if err := l.keep(l.schedule.Keep(), do); err != nil {
			return err
		}
	}
	var live []*made
	for i, image := range l.images {
		if image.users > 0 || i == len(l.images)-1 {
			live = append(live, image)
		} else if err := unmake(image, do); err != nil {
			return err
		}
	}
	l.images = live
	return do(Op{Do: DoSweep})
}

// chain makes committed snapshots, each on the one before.
func (l *Life) chain(m *made, parent string, length int, of string, do func(Op) error) error {
	for i := range length {
		name := layerName("%s layer %d", of, i)
		if err := do(Op{DoStep, name, parent}); err != nil {
			return err
		}
		m.names = append(m.names, name)
		parent = name
	}
	return nil
}

func (l *Life) build(image *made, do func(Op) error) error {
	b, of := &made{on: image}, fmt.Sprint("build ", l.next)
	l.next++
	if err := l.chain(b, image.top(), buildSteps, of, do); err != nil {
		return err
	}
	for i := range buildCycles {
		if err := do(Op{DoCycle, fmt.Sprint(of, " test ", i), b.names[len(b.names)-1-i%buildSteps]}); err != nil {
			return err
		}
	}
	container, view := of+" container", of+" view"
	if err := do(Op{DoStart, container, b.top()}); err != nil {
		return err
	}
	if err := do(Op{DoView, view, image.top()}); err != nil {
		return err
	}
	b.names = append(b.names, container, view)
	image.users++
	l.builds = append(l.builds, b)
	return nil
}

// keep removes the oldest builds until n are live.
func (l *Life) keep(n int, do func(Op) error) error {
	for len(l.builds) > n {
		b := l.builds[0]
		if err := unmake(b, do); err != nil {
			return err
		}
		b.on.users--
		l.builds = l.builds[1:]
	}
	return nil
}

// unmake removes what was made, the last first.
func unmake(m *made, do func(Op) error) error {
	for i := range m.names {
		if err := do(Op{Do: DoRemove, Name: m.names[len(m.names)-1-i]}); err != nil {
			return err
		}
	}
	return nil
}
