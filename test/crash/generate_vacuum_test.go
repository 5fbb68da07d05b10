package crash

import "fmt"

// vacuumFirst has the history begin with a vacuum to which nothing happens. One in
// four has it in a strict session and one in four in a periodic one, whatever else is
// drawn: so each run of many histories has many of each.
func (g *generator) vacuumFirst(class uint64) {
	g.add(Step{Kind: "open", Strict: class == 0, Periodic: class == 1, Ahead: true})
	g.vacuums.vacuum(false)
	g.take(g.vacuums)
	g.add(Step{Kind: "close"})
}

// take takes the steps that another generator has made up.
func (g *generator) take(from *generator) {
	g.steps = append(g.steps, from.steps...)
	from.steps = nil
}

// vacuum fills some buckets, empties them for the greater part, and has the file made
// shorter while others read and write. It may be struck by something.
func (g *generator) vacuum(struck bool) {
	var fill, empty []Edit
	for range 1 + g.r.IntN(3) {
		path := fmt.Sprintf("b%d", g.r.IntN(3))
		if g.oneIn(3) {
			path = fmt.Sprintf("%s/n%d", path, g.r.IntN(3))
		}
		n := 20 + g.r.IntN(60)
		fill = append(fill, Edit{Op: "put", Path: path, Key: 1, N: n, Size: g.r.IntN(g.page * 2 / 3), Letter: byte('a' + g.r.IntN(26))})
		switch g.r.IntN(4) {
		case 0: // every third stays
			for k := 1; k < n; k += 3 {
				empty = append(empty, Edit{Op: "del", Path: path, Key: k, N: 2})
			}
		case 1:
			empty = append(empty, Edit{Op: "drop", Path: path})
		default:
			empty = append(empty, Edit{Op: "del", Path: path, Key: 1 + g.r.IntN(10), N: n * 2 / 3})
		}
	}
	g.add(Step{Kind: "tx", Edits: fill})
	if g.oneIn(4) {
		g.add(Step{Kind: "reader"})
	}
	g.add(Step{Kind: "tx", Edits: empty})
	if g.oneIn(4) {
		g.add(Step{Kind: "reader"})
	}
	s := Step{Kind: "vacuum", Pages: 1 + g.r.IntN(8), Together: g.oneIn(4)}
	if struck {
		s = g.strikeVacuum(s)
	}
	g.add(s)
	for range g.r.IntN(5) {
		switch g.r.IntN(6) {
		case 0:
			g.during(Step{Kind: "reader"})
		case 1:
			g.during(Step{Kind: "release"})
		case 2:
			g.during(Step{Kind: "sync"})
		default:
			g.during(Step{Kind: "tx", Rollback: g.oneIn(6), Edits: g.edits()})
		}
	}
	if g.oneIn(4) { // and once more, of a file that is dense, or was left half way
		g.add(Step{Kind: "vacuum", Pages: 1 + g.r.IntN(8)})
	}
}

func (g *generator) during(s Step) {
	s.During = true
	g.add(s)
}

// strikeVacuum has a vacuum hit by something. Transactions that fail and begin at
// the same time give numbers anew, by which nobody could tell them apart.
func (g *generator) strikeVacuum(s Step) Step {
	at := 1 + g.r.IntN(40)
	switch g.r.IntN(8) {
	case 0, 1:
		s.Cut, s.Disk = at, 1+g.r.IntN(8)
	case 2:
		s.Kill = at
	case 3:
		if !s.Together {
			s.Fail = at
		}
	case 4:
		s.FailSync, s.Die = 1+g.r.IntN(12), g.oneIn(2)
	}
	return s
}
