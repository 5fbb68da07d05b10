package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"holdfast/bench/age"
	"holdfast/bench/suite"
)

// Table is a measure of all peers, on the first and on the last day.
type Table struct {
	ID, Title string
	Columns   []string
	Rows      [][]string // the name of the peer first
}

// Tables are those of all measures that were measured.
func Tables(r *age.Result) (all []Table) {
	for _, m := range r.Measures {
		t := Table{ID: m.ID, Title: title(m)}
		for _, life := range r.Lives {
			first, last, ok := ends(life, m.ID)
			if !ok {
				continue
			}
			row := []string{life.Peer, text(first, m.Unit)}
			if m.Floor != "" {
				row = append(row, floor(life.Stretches[0], m))
			}
			row = append(row, text(last, m.Unit))
			if m.Floor != "" {
				row = append(row, floor(life.Stretches[len(life.Stretches)-1], m))
			}
			t.Rows = append(t.Rows, append(row, ratio(first, last)))
			t.Columns = columns(r.About.Peer, m, life)
		}
		if len(t.Rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

func title(m age.Measure) string {
	if m.More {
		return m.Title + " (more is better)"
	}
	return m.Title
}

func columns(peer string, m age.Measure, life age.PeerLife) (all []string) {
	last := fmt.Sprint("day ", life.Stretches[len(life.Stretches)-1].Day)
	all = []string{peer}
	for _, day := range []string{fmt.Sprint("day ", life.Stretches[0].Day), last} {
		all = append(all, day)
		if m.Floor != "" {
			all = append(all, "floor on it")
		}
	}
	return append(all, last+" / day 1")
}

// ends are the cells of a measure on the first and on the last day.
func ends(life age.PeerLife, id string) (first, last age.Cell, ok bool) {
	n := len(life.Stretches)
	if n < 2 {
		return first, last, false
	}
	first, one := life.Stretches[0].Samples.Cell(id)
	last, two := life.Stretches[n-1].Samples.Cell(id)
	return first, last, one && two
}

func floor(s age.Stretch, m age.Measure) string {
	c, _ := s.Samples.Cell(m.Floor)
	return suite.FormatValue(c.Median, m.Unit)
}

// text is the median, with the lowest and the highest value.
func text(c age.Cell, unit string) string {
	if c.Low == c.High {
		return suite.FormatValue(c.Median, unit)
	}
	return fmt.Sprintf("%s (%s–%s)", suite.FormatValue(c.Median, unit), suite.FormatValue(c.Low, unit), suite.FormatValue(c.High, unit))
}

// ratio is how many times the first the last is, and what it may be by the spread of both.
func ratio(first, last age.Cell) string {
	switch {
	case first.Median == 0 || first.Low == 0:
		return ""
	case first.Low == first.High && last.Low == last.High:
		return fmt.Sprintf("%.2f×", last.Median/first.Median)
	}
	return fmt.Sprintf("%.2f× (%.2f×–%.2f×)", last.Median/first.Median, last.Low/first.High, last.High/first.Low)
}

// Print writes where and how it was measured, and all tables, as Markdown.
func Print(w io.Writer, r *age.Result) {
	fmt.Fprintf(w, "%s; %s\n%s\n\n", r.Machine, r.Load, Story(r))
	for _, life := range r.Lives {
		fmt.Fprintf(w, "- `%s`: %s\n", life.Peer, life.Note)
	}
	for _, t := range Tables(r) {
		fmt.Fprintf(w, "\n%s\n\n| %s |\n|%s\n", t.Title, strings.Join(t.Columns, " | "), strings.Repeat(" --- |", len(t.Columns)))
		for _, row := range t.Rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
	}
}

// Story says in some sentences what the life was like.
func Story(r *age.Result) string {
	if len(r.Lives) == 0 || len(r.Lives[0].Stretches) == 0 {
		return r.About.Story
	}
	all := r.Lives[0].Stretches
	first, last := all[0], all[len(all)-1]
	of, holds := r.About.Cycles, r.About.Keys
	return r.About.Story + fmt.Sprintf(" On day %d %d %s are live, with what is measured %d %s; on day %d %d %s, %d %s.",
		first.Day, first.Cycles, of, first.Keys, holds, last.Day, last.Cycles, of, last.Keys, holds)
}

// JSON writes the result.
func JSON(w io.Writer, r *age.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// Read reads a result that JSON has written, of which at least one day was measured.
func Read(file string) (*age.Result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &age.Result{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("reading the result in %s: %w", file, err)
	}
	if len(r.Measures) == 0 || len(r.Lives) == 0 || len(r.Lives[0].Stretches) == 0 {
		return nil, fmt.Errorf("%s has no result of a life; give a file that was written with -json", file)
	}
	return r, nil
}

// tolerance is how much worse than on the first day counts as unchanged.
const tolerance = 0.05

// Check says of each measure of Holdfast whether it is on the last day what it was on the first:
// not more than 5% worse, or not worse than the worst that was measured on the first day.
func Check(r *age.Result) (all []suite.Target) {
	for _, life := range r.Lives {
		if !strings.HasPrefix(life.Peer, "holdfast") {
			continue
		}
		for _, m := range r.Measures {
			first, last, ok := ends(life, m.ID)
			if !ok {
				continue
			}
			all = append(all, suite.Target{
				Name: life.Peer + ": " + m.Title, Wanted: "as on day 1 within 5%, or its spread",
				Measured: fmt.Sprintf("%s → %s, %s", text(first, m.Unit), text(last, m.Unit), ratio(first, last)),
				Met:      kept(first, last, m.More),
			})
		}
	}
	return all
}

func kept(first, last age.Cell, more bool) bool {
	if more {
		return last.Median >= first.Median*(1-tolerance) || last.High >= first.Low
	}
	return last.Median <= first.Median*(1+tolerance) || last.Low <= first.High
}
