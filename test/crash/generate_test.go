package crash

import (
	"fmt"
	"math/rand/v2"
)

// generate makes the script up that seed stands for.
func generate(seed uint64) Script {
	g := &generator{r: rand.New(rand.NewPCG(seed, 2)), page: 512 << (seed % 4)}
	if seed/4%3 == 1 {
		g.vacuums = &generator{r: rand.New(rand.NewPCG(seed, 3)), page: g.page}
		g.vacuumFirst(seed / 12 % 4)
	}
	for range 3 + g.r.IntN(3) {
		g.session()
	}
	return Script{PageSize: g.page, Steps: g.steps}
}

type generator struct {
	r     *rand.Rand
	page  int
	steps []Step
	hit   bool // the session may have ended early

	vacuums *generator // what makes vacuums up, and is asked for nothing else; nil: there are none
}

func (g *generator) oneIn(n int) bool { return g.r.IntN(n) == 0 }

func (g *generator) add(s Step) {
	switch s.Kind {
	case "open", "close", "tx", "sync", "vacuum":
		s.Seed = 1 + uint64(g.r.Uint32()>>8)
	}
	g.steps = append(g.steps, s)
}

// session opens the database, runs some transactions and mostly closes it;
// then, perhaps, bbolt has the file.
func (g *generator) session() {
	g.hit = false
	g.add(g.strike(Step{Kind: "open", NoFreelistSync: g.oneIn(2), NoSync: g.oneIn(8), Strict: g.oneIn(4), Periodic: g.oneIn(3)}, 6))
	if v := g.vacuums; v != nil {
		g.steps[len(g.steps)-1].Ahead = !v.oneIn(8)
	}
	for n := 3 + g.r.IntN(6); n > 0 && !g.hit; n-- {
		if v := g.vacuums; v != nil && v.oneIn(6) {
			v.vacuum(true)
			g.take(v)
		}
		switch g.r.IntN(12) {
		case 0, 1, 2:
			g.add(Step{Kind: "reader"})
		case 3, 4:
			g.add(Step{Kind: "release"})
		case 5, 6:
			g.add(Step{Kind: "nosync", NoSync: g.oneIn(2)})
		case 7:
			g.add(g.strike(Step{Kind: "sync"}, 2))
		}
		if g.oneIn(5) {
			first := Step{Kind: "tx", Together: true, Rollback: g.oneIn(6), Edits: g.edits()}
			if g.oneIn(3) {
				first = g.strike(first, 1)
			}
			g.add(first)
			for range 2 + g.r.IntN(3) {
				g.add(Step{Kind: "tx", Together: true, Rollback: g.oneIn(6), Edits: g.edits()})
			}
			continue
		}
		if g.oneIn(10) { // the meta's flush, and nobody closes the file
			g.add(Step{Kind: "tx", FailSync: 1 + g.r.IntN(2), Die: true, Edits: g.edits()})
			continue
		}
		g.add(g.strike(Step{Kind: "tx", Rollback: g.oneIn(6), Edits: g.edits()}, 4))
	}
	switch {
	case g.hit:
	case g.oneIn(6):
		g.lost()
	case g.oneIn(3):
		g.add(Step{Kind: "close", FailSync: 1 + g.r.IntN(2)})
	default:
		g.add(g.strike(Step{Kind: "close"}, 4))
	}
	if g.page >= 1024 && g.oneIn(3) {
		for range 1 + g.r.IntN(3) {
			g.add(Step{Kind: "stock", NoFreelistSync: g.oneIn(2), Edits: g.edits()})
		}
	}
}

// lost has a flush fail behind commits without any.
func (g *generator) lost() {
	g.add(Step{Kind: "nosync", NoSync: true})
	for range 1 + g.r.IntN(4) {
		g.add(Step{Kind: "tx", Edits: g.edits()})
	}
	if g.oneIn(4) { // the process ends, and the flush of the next is the one
		g.add(Step{Kind: "tx", Kill: 1 + g.r.IntN(3), Edits: g.edits()})
		g.add(Step{Kind: "open", FailSync: 1})
		return
	}
	if g.oneIn(3) {
		g.add(Step{Kind: "sync", FailSync: 1})
		return
	}
	g.add(Step{Kind: "nosync"})
	g.add(Step{Kind: "tx", FailSync: 1 + g.r.IntN(2), Edits: g.edits()})
	g.add(Step{Kind: "close", FailSync: 1 + g.r.IntN(2)})
}

// strike has one in so many steps hit by something.
func (g *generator) strike(s Step, oneIn int) Step {
	if !g.oneIn(oneIn) {
		return s
	}
	at := 1 + g.r.IntN(5)
	if s.Kind == "sync" { // a single call
		at = 1
	}
	switch g.r.IntN(5) {
	case 0, 4:
		s.Cut, s.Disk = at, 1+g.r.IntN(8)
	case 1:
		s.Kill = at
	case 2:
		s.Fail = at
		return s
	default:
		s.FailSync, s.Die = 1+g.r.IntN(min(at, 2)), g.oneIn(2)
		return s
	}
	g.hit = s.Kind == "tx" || s.Kind == "sync"
	return s
}

func (g *generator) edits() []Edit {
	var edits []Edit
	for range 1 + g.r.IntN(3) {
		path := fmt.Sprintf("b%d", g.r.IntN(3))
		if g.oneIn(12) {
			edits = append(edits, Edit{Op: "drop", Path: path})
			continue
		}
		edits = g.inBucket(edits, path, 0)
	}
	return edits
}

func (g *generator) inBucket(edits []Edit, path string, depth int) []Edit {
	edits = append(edits, Edit{Op: "bucket", Path: path})
	for range g.r.IntN(10) {
		e := Edit{Path: path, Key: g.r.IntN(60), N: 1}
		switch g.r.IntN(8) {
		case 0:
			e.Op = "del"
		case 1:
			e.Op, e.N = "del", 1+g.r.IntN(20)
		case 2:
			e = Edit{Op: "seq", Path: path}
		case 3:
			if depth < 2 {
				edits = g.nested(edits, path, depth)
			}
			continue
		default:
			e.Op, e.Letter = "put", byte('a'+g.r.IntN(26))
			e.Size = g.r.IntN(60)
			if g.oneIn(12) {
				e.Size = g.r.IntN(5 * g.page)
			} else if g.oneIn(5) {
				e.N = 1 + g.r.IntN(20)
			}
		}
		edits = append(edits, e)
	}
	return edits
}

func (g *generator) nested(edits []Edit, path string, depth int) []Edit {
	path = fmt.Sprintf("%s/n%d", path, g.r.IntN(3))
	if g.oneIn(4) {
		return append(edits, Edit{Op: "drop", Path: path})
	}
	return g.inBucket(edits, path, depth+1)
}
