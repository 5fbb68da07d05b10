package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"holdfast/bench/axis"
)

// A picture has panels of lines, side by side, or groups of bars, one below the other.
type picture struct {
	Title, Caption string
	panels         []panel
	groups         []group

	// What is drawn, in the order in which it is.
	Height int
	Lines  []line
	Paths  []path
	Bars   []rect
	Texts  []text
}

type point struct{ x, y float64 }

type series struct {
	title, class string
	points       []point
}

// panel is a chart with lines. Both axes begin at zero, or are logarithmic.
type panel struct {
	title, x    string
	logarithmic bool
	series      []series
}

// group is some bars with a title.
type group struct {
	Title string
	bars  []bar
}

type bar struct {
	label, class string
	value        float64
}

func (g *group) add(label, class string, value float64) {
	g.bars = append(g.bars, bar{label, class, value})
}

// The marks of a picture, in pixels.
type (
	line struct{ X1, Y1, X2, Y2 float64 }
	path struct {
		Class, D string
		Dots     []point2
	}
	point2 struct{ X, Y float64 }
	rect   struct {
		Class      string
		X, Y, W, H float64
	}
	text struct {
		Class, Anchor, Text string
		X, Y                float64
	}
)

const (
	width       = 880
	plotTop     = 84.0
	plotHeight  = 170.0
	axisSpace   = 76.0  // left of a plot, for the numbers
	labelSpace  = 170.0 // right of a plot, for the names of its lines
	labelHeight = 16.0  // at least between two names
)

// layout puts the marks of all panels or groups in their places.
func (p *picture) layout() {
	each := float64(width) / float64(max(len(p.panels), 1))
	for i := range p.panels {
		p.plot(&p.panels[i], float64(i)*each+axisSpace, float64(i+1)*each-labelSpace)
	}
	p.Height = int(plotTop+plotHeight) + 72
	if len(p.groups) > 0 {
		p.Height = int(p.rows()) + 36
	}
}

// plot draws the lines of a panel between left and right.
func (p *picture) plot(c *panel, left, right float64) {
	var xs, ys []float64
	for _, s := range c.series {
		for _, at := range s.points {
			xs, ys = append(xs, at.x), append(ys, at.y)
		}
	}
	x := axis.Scale{High: slices.Max(xs), A: left, B: right, Logarithmic: c.logarithmic}
	y := axis.Scale{High: slices.Max(ys) * 1.05, A: plotTop + plotHeight, B: plotTop, Logarithmic: c.logarithmic}
	if c.logarithmic {
		x.Low, y.Low = slices.Min(xs), axis.Decade(slices.Min(ys), math.Floor)
		y.High = axis.Decade(slices.Max(ys), math.Ceil)
	}
	for _, v := range y.Ticks() {
		p.Lines = append(p.Lines, line{left, y.At(v), right, y.At(v)})
		p.Texts = append(p.Texts, text{"number", "end", number(v), left - 8, y.At(v) + 4})
	}
	marks := axis.Scale{High: x.High}.Ticks()
	if c.logarithmic {
		slices.Sort(xs)
		marks = slices.Compact(xs)
	}
	for _, v := range marks {
		p.Texts = append(p.Texts, text{"number", "middle", number(v), x.At(v), plotTop + plotHeight + 20})
	}
	p.Texts = append(p.Texts, text{"name", "start", c.title, left - 30, plotTop - 20},
		text{"number", "middle", c.x, axis.Round((left + right) / 2), plotTop + plotHeight + 40})
	var labels []text
	for _, s := range c.series {
		drawn := path{Class: s.class}
		for i, at := range s.points {
			verb := "L"
			if i == 0 {
				verb = "M"
			}
			dot := point2{x.At(at.x), y.At(at.y)}
			drawn.D += fmt.Sprintf("%s%g %g", verb, dot.X, dot.Y)
			drawn.Dots = append(drawn.Dots, dot)
		}
		p.Paths = append(p.Paths, drawn)
		labels = append(labels, text{"name " + s.class, "start", s.title, right + 10, drawn.Dots[len(drawn.Dots)-1].Y + 4})
	}
	p.Texts = append(p.Texts, apart(labels)...)
}

// apart moves labels so far up that none lies on another.
func apart(labels []text) []text {
	slices.SortStableFunc(labels, func(a, b text) int { return cmp.Compare(b.Y, a.Y) })
	for i := 1; i < len(labels); i++ {
		labels[i].Y = min(labels[i].Y, labels[i-1].Y-labelHeight)
	}
	return labels
}

// rows draws the groups of bars and returns where they end.
func (p *picture) rows() float64 {
	const left, right, rowHeight = 310.0, width - 70.0, 19.0
	longest := 0.0
	for _, g := range p.groups {
		for _, b := range g.bars {
			longest = max(longest, b.value)
		}
	}
	y := plotTop - 16
	for _, g := range p.groups {
		p.Texts = append(p.Texts, text{"name", "start", g.Title, 20, y})
		for _, b := range g.bars {
			y += rowHeight
			long := axis.Round(max(b.value/longest*(right-left), 1))
			p.Bars = append(p.Bars, rect{b.class, left, y - 11, long, 13})
			p.Texts = append(p.Texts, text{"number", "end", b.label, left - 10, y},
				text{"name " + b.class, "start", fmt.Sprintf("%.3g", b.value), left + long + 8, y})
		}
		y += 28
	}
	return y - 20
}

func number(v float64) string {
	if v >= 1000 && v == math.Trunc(v) {
		return thousands(int(v))
	}
	return strconv.FormatFloat(axis.Round(v), 'g', -1, 64)
}
