package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// source says how a data file was made.
type source struct {
	Command, Date, Machine string
}

// caption is the last line of a picture. Versions of peers are left to the data file.
func (s source) caption() string {
	machine, _, _ := strings.Cut(s.Machine, ", github.com")
	return fmt.Sprintf("%s, %s; %s", s.Command, s.Date, machine)
}

// benchmarks is what bench-commit prints with -json, as far as it is drawn.
type benchmarks struct {
	source
	Groups []struct {
		Table struct {
			Rows []benchRow
		}
	}
}

type benchRow struct {
	Workload string
	Cells    map[string]struct{ Median float64 }
}

// rows are those of all tables.
func (b *benchmarks) rows() (all []benchRow) {
	for _, g := range b.Groups {
		all = append(all, g.Table.Rows...)
	}
	return all
}

// points are those of an engine in the rows whose workload begins with a number, the
// x of the point, and ends with the words after.
func (b *benchmarks) points(engine, after string) (points []point) {
	for _, r := range b.rows() {
		var n float64
		if _, err := fmt.Sscanf(r.Workload, "%g", &n); err != nil || !strings.HasSuffix(r.Workload, after) {
			continue
		}
		if c, ok := r.Cells[engine]; ok {
			points = append(points, point{n, c.Median})
		}
	}
	return points
}

// The engines that are drawn: the name in the data, the name in the picture, the class of its colour.
var (
	ours       = engine{"holdfast", "Holdfast", "a"}
	stock      = engine{"stock", "bbolt", "b"}
	stockMap   = engine{"stock NoFreelistSync+map", "bbolt, NoFreelistSync", "c"}
	pebble     = engine{"Pebble", "Pebble", "d"}
	sqlite     = engine{"SQLite WAL", "SQLite (WAL)", "e"}
	milli      = float64(time.Millisecond)
	errNothing = errors.New("it has none of the rows that are drawn")
)

type engine struct{ column, title, class string }

func (b *benchmarks) series(after string, unit float64, engines ...engine) (all []series) {
	for _, e := range engines {
		s := series{title: e.title, class: e.class, points: b.points(e.column, after)}
		for i := range s.points {
			s.points[i].y /= unit
		}
		all = append(all, s)
	}
	return all
}

func parse(data []byte) (*benchmarks, error) {
	var b benchmarks
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, err
	}
	if len(b.points(ours.column, "")) < 2 {
		return nil, errNothing
	}
	return &b, nil
}

// drawAge draws what a commit costs, by the free pages in the file.
func drawAge(data []byte) ([]byte, error) {
	b, err := parse(data)
	if err != nil {
		return nil, err
	}
	panels := []panel{
		{title: "written to change one key, MiB", series: b.series("bytes written by one", 1<<20, ours, stock, stockMap)},
		{title: "time of a durable one-key commit, ms", series: b.series("time of a commit", milli, ours, stock, stockMap)},
	}
	for i := range panels {
		panels[i].x = "thousands of free pages in the file"
		for _, s := range panels[i].series {
			for j := range s.points {
				s.points[j].x /= 1000
			}
		}
	}
	return render(picture{
		Title:   "What a commit costs in a file that has been used for long",
		Caption: b.caption(),
		panels:  panels,
	})
}

// drawWriters draws durable commits a second, by the number of writers.
func drawWriters(data []byte) ([]byte, error) {
	b, err := parse(data)
	if err != nil {
		return nil, err
	}
	return render(picture{
		Title:   "Durable one-key commits a second, by the number of writers",
		Caption: b.caption(),
		panels: []panel{{
			x: "goroutines that commit at once", logarithmic: true,
			series: b.series("commits", 1, ours, stock, pebble, sqlite),
		}},
	})
}

// steps is the data of bench-step.
type steps struct {
	source
	Few, Many int
	Rows      []stepRow
}

type stepRow struct {
	Runtime               string
	Clients, Foreign      int
	MedianFew, MedianMany time.Duration
}

// drawSteps draws the own time of a step, by snapshots in the store and mounts on the machine.
func drawSteps(data []byte) ([]byte, error) {
	var s steps
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	few, many := thousands(s.Few), thousands(s.Many)
	p := picture{Title: "Time of a build step that runs true, ms", Caption: s.caption()}
	for _, r := range []struct {
		runtime, class, title, few, many string
	}{
		{"native", "a", "Holdfast", few + " snapshots", many + " snapshots"},
		{"runc", "d", "Holdfast with runc", few + " snapshots", many + " snapshots"},
		{"runc alone", "b", "runc run, without Holdfast", "", ""},
	} {
		g := group{Title: r.title}
		for _, row := range s.Rows {
			if row.Runtime != r.runtime || row.Clients > 1 {
				continue
			}
			mounts := ""
			if row.Foreign > 0 {
				mounts = thousands(row.Foreign) + " other mounts"
			}
			g.add(join(r.few, mounts), r.class, float64(row.MedianFew)/milli)
			if row.MedianMany > 0 {
				g.add(join(r.many, mounts), r.class, float64(row.MedianMany)/milli)
			}
		}
		if len(g.bars) == 0 {
			return nil, errNothing
		}
		p.groups = append(p.groups, g)
	}
	return render(p)
}

func join(snapshots, mounts string) string {
	switch {
	case snapshots == "" && mounts == "":
		return "no other mounts"
	case snapshots == "" || mounts == "":
		return snapshots + mounts
	}
	return snapshots + ", " + mounts
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
