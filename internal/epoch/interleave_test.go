package epoch

import "testing"

// A step machine of the protocol, explored exhaustively. Readers acquire and
// release once each, on any shard. The writer publishes state 1, sweeps state 0
// up to twice, closes, and waits for what is left. Every step is one atomic
// operation.

// fault is a rule of the protocol that is broken on purpose.
type fault int

const (
	noFault          fault = iota
	undoElsewhere          // an Acquire takes its count back on the other shard
	releaseElsewhere       // a Release subtracts on the other shard
	noRecheck              // an Acquire does not look whether the state is still current
	sweepFirst             // the writer sweeps before it switches
	oneShard               // the writer reads one shard only
	silentUndo             // an Acquire that takes its count back does not wake the waiter
	silentRelease          // a Release does not wake the waiter
	wakeFirst              // a Release looks for a waiter before it subtracts
	closeLast              // the waiter reads the shards before Close clears the state
)

const (
	modelStates = 2
	modelShards = 2
	maxReaders  = 3
	closed      = -1 // current after Close
)

type readerAt int

const (
	atDone readerAt = iota
	atLoad
	atAdd
	atRecheck
	atUndo
	atHold
	atPeekEarly // wakeFirst: looks for a waiter and subtracts then
	atPeek      // has subtracted: is somebody waiting?
)

type reader struct {
	at           readerAt
	state, shard int
	again        bool // it was an undo: load again after atPeek
}

type writerAt int

const (
	atPublish writerAt = iota
	atSweep
	atClose
	atDrain
	atWait
	atEnd
)

type writer struct {
	at     writerAt
	shard  int // to be read next
	passes int // sweeps done
}

// machine is one state of everything. It is comparable, so that a map knows
// which were seen.
type machine struct {
	current int
	count   [modelStates][modelShards]int
	retired [modelStates]bool
	token   bool
	readers [maxReaders]reader
	writer  writer
}

func newMachine(readers int, f fault) machine {
	var m machine
	for i := range readers {
		m.readers[i].at = atLoad
	}
	if f == sweepFirst {
		m.writer.at = atSweep
	}
	return m
}

// violation names a broken promise.
type violation string

const (
	retiredWhileHeld violation = "a reader holds a retired state"
	waitHangs        violation = "wait never returns"
	neverRetired     violation = "a state is not retired at the end"
)

// violation is the promise that is broken in m, of which nobody can step any
// further if stuck.
func (m machine) violation(stuck bool) violation {
	for _, r := range m.readers {
		if r.at == atHold && m.retired[r.state] {
			return retiredWhileHeld
		}
	}
	switch {
	case !stuck:
		return ""
	case m.writer.at != atEnd:
		return waitHangs
	case m.retired != [modelStates]bool{true, true}:
		return neverRetired
	}
	return ""
}

// next lists the machines that one step of anybody leads to.
func (m machine) next(f fault) []machine {
	out := m.writerStep(f)
	for i := range m.readers {
		out = append(out, m.readerStep(i, f)...)
	}
	return out
}

func (m machine) readerStep(i int, f fault) []machine {
	r := &m.readers[i]
	switch r.at {
	case atDone:
		return nil
	case atLoad:
		if m.current == closed {
			*r = reader{}
		} else {
			r.at, r.state = atAdd, m.current
		}
	case atAdd:
		other := m
		for shard, n := range []*machine{&m, &other} {
			n.count[r.state][shard]++
			n.readers[i].at, n.readers[i].shard = atRecheck, shard
		}
		return []machine{m, other}
	case atRecheck:
		r.at = atUndo
		if m.current == r.state || f == noRecheck {
			r.at = atHold
		}
	case atUndo:
		r.again = true
		m.subtract(r, f == undoElsewhere)
	case atHold:
		if f == wakeFirst {
			m.peek(true)
			r.at = atPeekEarly
		} else {
			m.subtract(r, f == releaseElsewhere)
		}
	case atPeekEarly:
		m.count[r.state][r.shard]--
		*r = reader{}
	case atPeek:
		m.peek(!(f == silentUndo && r.again || f == silentRelease && !r.again))
		r.leave()
	}
	return []machine{m}
}

func (m *machine) subtract(r *reader, elsewhere bool) {
	shard := r.shard
	if elsewhere {
		shard = 1 - shard
	}
	m.count[r.state][shard]--
	if m.count[r.state][shard] == 0 {
		r.at = atPeek
	} else {
		r.leave()
	}
}

func (m *machine) peek(wake bool) {
	m.token = m.token || wake && m.current == closed
}

// leave ends an undo or a release.
func (r *reader) leave() {
	next := reader{}
	if r.again {
		next.at = atLoad
	}
	*r = next
}

func (m machine) writerStep(f fault) []machine {
	w := &m.writer
	switch w.at {
	case atPublish:
		m.current = 1
		w.at = atSweep
		if f == sweepFirst {
			w.at = atClose
		}
	case atSweep:
		got := m.scan(0, f)
		if got == scanBusy {
			w.passes++
		}
		if got == scanRetired || w.passes == 2 {
			w.at, w.passes = atClose, 0
			switch f {
			case sweepFirst:
				w.at = atPublish
			case closeLast:
				w.at = atDrain
			}
		}
	case atClose:
		m.current = closed
		w.at = atDrain
		if f == closeLast {
			w.at = atEnd
		}
	case atDrain:
		m.drainStep(f)
	case atWait:
		if !m.token {
			return nil
		}
		m.token = false
		w.at = atDrain
	case atEnd:
		return nil
	}
	return []machine{m}
}

// drainStep is one step of waiting for the oldest state that is left.
func (m *machine) drainStep(f fault) {
	for s := range modelStates {
		if m.retired[s] {
			continue
		}
		if m.scan(s, f) == scanBusy {
			m.writer.at = atWait
		}
		return
	}
	m.writer.at = atEnd
	if f == closeLast {
		m.writer.at = atClose
	}
}

// What reading one shard has led to.
type scanned int

const (
	scanMore    scanned = iota // zero, and there are more shards
	scanBusy                   // not zero: the pass is over
	scanRetired                // all zero: the state is retired
)

// scan reads the next shard of a state.
func (m *machine) scan(state int, f fault) scanned {
	w := &m.writer
	if m.count[state][w.shard] != 0 {
		w.shard = 0
		return scanBusy
	}
	w.shard++
	if w.shard < modelShards && f != oneShard {
		return scanMore
	}
	w.shard = 0
	m.retired[state] = true
	return scanRetired
}

// explore visits every machine that can be reached, though not what follows a
// violation. It returns how many there are, and the violations.
func explore(readers int, f fault) (int, map[violation]bool) {
	start := newMachine(readers, f)
	seen := map[machine]bool{start: true}
	todo := []machine{start}
	found := map[violation]bool{}
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next := m.next(f)
		if v := m.violation(len(next) == 0); v != "" {
			found[v] = true
			continue
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), found
}

func TestEveryInterleaving(t *testing.T) {
	for readers := 1; readers <= maxReaders; readers++ {
		if testing.Short() && readers == maxReaders {
			break
		}
		n, found := explore(readers, noFault)
		if len(found) > 0 {
			t.Errorf("%d readers: %v", readers, found)
		}
		t.Logf("%d readers: %d states", readers, n)
	}
}

// Each rule is needed: without it a promise is broken, and the one that the
// rule is there for.
func TestEveryFaultIsFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault fault
		want  violation
	}{
		{"undo on another shard", undoElsewhere, retiredWhileHeld},
		{"release on another shard", releaseElsewhere, waitHangs},
		{"no second look", noRecheck, retiredWhileHeld},
		{"sweep before the switch", sweepFirst, retiredWhileHeld},
		{"one shard read", oneShard, retiredWhileHeld},
		{"undo does not wake", silentUndo, waitHangs},
		{"release does not wake", silentRelease, waitHangs},
		{"wake before subtracting", wakeFirst, waitHangs},
		{"wait before close", closeLast, retiredWhileHeld},
	} {
		if _, found := explore(2, c.fault); !found[c.want] {
			t.Errorf("%s: found %v, want %s", c.name, found, c.want)
		}
	}
}
