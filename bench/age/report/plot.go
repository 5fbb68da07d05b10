package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"holdfast/bench/age"
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
	y := axis{0, high * 1.05, p.Bottom, p.Top, p.Logarithmic}
	if high == 0 {
		y.high = 1
	}
	if p.Logarithmic {
		y.low, y.high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	}
	for _, v := range y.ticks() {
		p.Rows = append(p.Rows, mark{y.at(v), suite.FormatValue(v, m.Unit)})
	}
	x := axis{0, slices.Max(days), p.Left, p.Right, false}
	for _, v := range x.ticks() {
		p.Columns = append(p.Columns, mark{x.at(v), fmt.Sprint(v)})
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

func newLine(at int, life age.PeerLife, m age.Measure, x, y axis) line {
	l := line{Class: at % classes, Peer: life.Peer}
	for _, s := range life.Stretches {
		c, ok := s.Samples.Cell(m.ID)
		if !ok {
			continue
		}
		d := dot{x.at(float64(s.Day)), y.at(c.Median), fmt.Sprintf("day %d: %s", s.Day, text(c, m.Unit))}
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

// axis gives the places from a to b of values from low to high.
type axis struct {
	low, high, a, b float64
	logarithmic     bool
}

func (x axis) at(v float64) float64 {
	low, high := x.low, x.high
	if x.logarithmic {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return math.Round((x.a+(v-low)/(high-low)*(x.b-x.a))*10) / 10
}

// ticks are the powers of ten, or four or so round numbers.
func (x axis) ticks() (all []float64) {
	if x.logarithmic {
		for v := x.low; v <= x.high*1.001; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10(x.high/3)))
	for _, factor := range []float64{5, 2} {
		if x.high/(step*factor) >= 3 {
			step *= factor
			break
		}
	}
	for i := 0.0; i*step <= x.high; i++ {
		all = append(all, i*step)
	}
	return all
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
