package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"holdfast/bench/age"
	"holdfast/bench/axis"
	"holdfast/bench/suite"
)

// plot is a measure of all peers over the days, drawn.
type plot struct {
	Title, Alt    string
	Logarithmic   bool
	Width, Height float64
	Left, Right   float64 // of the axes
	Top, Bottom   float64
	Rows, Columns []mark
	Lines         []line
}

// mark is a number on an axis, at a place.
type mark struct {
	At   float64
	Text string
}

// line is that of a peer. Class is its number among the peers, which has a colour.
type line struct {
	Class      int
	Peer, Path string
	Dots       []dot
}

type dot struct {
	X, Y  float64
	Title string
}

const (
	plotWidth, plotHeight = 420, 250 // small, so that the text can be read on a phone
	logarithmicFrom       = 12       // the highest as a multiple of the lowest from which the scale is logarithmic
)

// newPlot draws a measure. There is none of what was not measured.
func newPlot(r *age.Result, m age.Measure) (plot, bool) {
	p := plot{Title: title(m), Width: plotWidth, Height: plotHeight, Left: 66, Right: plotWidth - 12, Top: 12, Bottom: plotHeight - 36}
	var values, days []float64
	for _, life := range r.Lives {
		for _, s := range life.Stretches {
			for _, id := range []string{m.ID, m.Floor} {
				if c, ok := s.Samples.Cell(id); ok {
					values, days = append(values, c.Median), append(days, float64(s.Day))
				}
			}
		}
	}
	if len(values) == 0 {
		return p, false
	}
	low, high := slices.Min(values), slices.Max(values)
	p.Logarithmic = low > 0 && high/low > logarithmicFrom
	y := axis.Scale{High: high * 1.05, A: p.Bottom, B: p.Top, Logarithmic: p.Logarithmic}
	if high == 0 {
		y.High = 1
	}
	if p.Logarithmic {
		y.Low, y.High = axis.Decade(low, math.Floor), axis.Decade(high, math.Ceil)
	}
	for _, v := range y.Ticks() {
		p.Rows = append(p.Rows, mark{y.At(v), suite.FormatValue(v, m.Unit)})
	}
	x := axis.Scale{High: slices.Max(days), A: p.Left, B: p.Right}
	for _, v := range x.Ticks() {
		p.Columns = append(p.Columns, mark{x.At(v), fmt.Sprint(v)})
	}
	var told []string
	for i, life := range r.Lives {
		if l := newLine(i, life, m, x, y); len(l.Dots) > 0 {
			p.Lines = append(p.Lines, l)
			told = append(told, fmt.Sprintf("%s, %s", l.Peer, l.Dots[0].Title+" to "+l.Dots[len(l.Dots)-1].Title))
		}
	}
	if l := newLine(0, floors(r, m), age.Measure{ID: m.Floor, Unit: m.Unit}, x, y); len(l.Dots) > 0 {
		l.Class = floorClass
		p.Lines = append(p.Lines, l)
	}
	p.Alt = p.Title + ". " + strings.Join(told, "; ")
	return p, true
}

// classes is how many colours there are for peers. The floor has one more.
const classes, floorClass = 9, 9

func newLine(at int, life age.PeerLife, m age.Measure, x, y axis.Scale) line {
	l := line{Class: at % classes, Peer: life.Peer}
	for _, s := range life.Stretches {
		c, ok := s.Samples.Cell(m.ID)
		if !ok {
			continue
		}
		d := dot{x.At(float64(s.Day)), y.At(c.Median), fmt.Sprintf("day %d: %s", s.Day, text(c, m.Unit))}
		verb := "L"
		if l.Path == "" {
			verb = "M"
		}
		l.Path += fmt.Sprintf("%s%g %g", verb, d.X, d.Y)
		l.Dots = append(l.Dots, d)
	}
	return l
}

// floors is the floor of a measure as the life of a store: all that was measured of it on each day.
func floors(r *age.Result, m age.Measure) age.PeerLife {
	life := age.PeerLife{Peer: "floor"}
	for _, of := range r.Lives {
		for i, s := range of.Stretches {
			if i == len(life.Stretches) {
				life.Stretches = append(life.Stretches, age.Stretch{Day: s.Day, Samples: age.Samples{}})
			}
			all := life.Stretches[i].Samples
			all[m.Floor] = append(all[m.Floor], s.Samples[m.Floor]...)
		}
	}
	return life
}

// best are the peers of a measure on the last day, the best one first.
func best(r *age.Result, m age.Measure) []string {
	type end struct {
		peer  string
		value float64
	}
	var all []end
	for _, life := range r.Lives {
		if _, last, ok := ends(life, m.ID); ok {
			all = append(all, end{life.Peer, last.Median})
		}
	}
	slices.SortStableFunc(all, func(a, b end) int {
		if m.More {
			a, b = b, a
		}
		return cmp.Compare(a.value, b.value)
	})
	var names []string
	for _, e := range all {
		names = append(names, e.peer)
	}
	return names
}
