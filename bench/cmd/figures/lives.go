package main

import (
	"encoding/json"
	"fmt"

	"holdfast/bench/age"
)

// lmdb is drawn where it takes part.
var lmdb = engine{"LMDB", "LMDB", "c"}

// drawLives draws how fast commits are and what they write, by the days that the stores have lived.
func drawLives(data []byte) ([]byte, error) {
	var r age.Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	pic := picture{
		Title:   fmt.Sprintf("%s days of a build worker's database", thousands(r.Config.Days)),
		Caption: source{r.Command, r.Date, r.Machine}.caption(),
	}
	for _, p := range []struct {
		title, id string
		unit      float64
	}{
		{"durable commits a second", age.Rate, 1},
		{"written by a durable commit, KiB", age.Written, 1 << 10},
	} {
		c := panel{title: p.title, x: "days"}
		for _, e := range []engine{ours, stock, lmdb, pebble, sqlite} {
			if s := lifeOf(&r, e, p.id, p.unit); len(s.points) > 1 {
				c.series = append(c.series, s)
			}
		}
		if len(c.series) == 0 || c.series[0].class != ours.class {
			return nil, fmt.Errorf("%w: %s", errNothing, p.title)
		}
		pic.panels = append(pic.panels, c)
	}
	return render(pic)
}

// lifeOf is a measure of a store over the days.
func lifeOf(r *age.Result, e engine, id string, unit float64) series {
	line := series{title: e.title, class: e.class}
	for _, life := range r.Lives {
		if life.Peer != e.column {
			continue
		}
		for _, s := range life.Stretches {
			if c, ok := s.Samples.Cell(id); ok {
				line.points = append(line.points, point{float64(s.Day), c.Median / unit})
			}
		}
	}
	return line
}
