package programs

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holdfast/test/cluster"
)

// A Unit says how values are printed, and which of two is better.
type Unit int

// The units.
const (
	Seconds Unit = iota // less is better
	Bytes               // less is better
	PerSecond
	Count // less is better
)

// A Row is what was measured of one thing, on both engines.
type Row struct {
	What   string
	Unit   Unit
	Values [2][]float64 // by engine
}

// rowJSON is a row as JSON.
type rowJSON struct {
	What     string    `json:"what"`
	Unit     string    `json:"unit"` // s, bytes, /s or count
	Gain     float64   `json:"gain"`
	Stock    []float64 `json:"bbolt"` // of all rounds
	Holdfast []float64 `json:"holdfast"`
}

var unitNames = []string{"s", "bytes", "/s", "count"}

// MarshalJSON gives the values of all rounds and the gain.
func (r *Row) MarshalJSON() ([]byte, error) {
	return json.Marshal(rowJSON{r.What, unitNames[r.Unit], r.Gain(), r.Values[cluster.Stock], r.Values[cluster.Holdfast]})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (r *Row) UnmarshalJSON(b []byte) error {
	var j rowJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	unit := slices.Index(unitNames, j.Unit)
	if unit < 0 {
		return fmt.Errorf("there is no unit %q", j.Unit)
	}
	*r = Row{What: j.What, Unit: Unit(unit), Values: [2][]float64{j.Stock, j.Holdfast}}
	return nil
}

// A Table is rows in the order in which they were first measured. The zero Table has none.
type Table struct {
	Title   string
	Columns [2]string `json:",omitzero"` // what was measured on what would be each engine; "": the engines
	Rows    []*Row
}

// Add adds a value to the row of that name.
func (t *Table) Add(e cluster.Engine, what string, unit Unit, value float64) {
	i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.What == what })
	if i < 0 {
		i = len(t.Rows)
		t.Rows = append(t.Rows, &Row{What: what, Unit: unit})
	}
	t.Rows[i].Values[e] = append(t.Rows[i].Values[e], value)
}

// Median is the median of what was measured on an engine, 0 of nothing.
func (r *Row) Median(e cluster.Engine) float64 {
	v := slices.Sorted(slices.Values(r.Values[e]))
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

// Gain is how many times better Holdfast is than bbolt, by the medians; 0 if one of them was not measured.
func (r *Row) Gain() float64 {
	stock, holdfast := r.Median(cluster.Stock), r.Median(cluster.Holdfast)
	switch {
	case stock == 0 || holdfast == 0:
		return 0
	case r.Unit == PerSecond:
		return holdfast / stock
	default:
		return stock / holdfast
	}
}

// WriteTo prints the table in Markdown.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	columns := t.Columns
	if columns[0] == "" {
		columns = [2]string{"bbolt", "Holdfast"}
	}
	fmt.Fprintf(&b, "%s\n\n| what | %s | %s | gain |\n| --- | --- | --- | --- |\n", t.Title, columns[0], columns[1])
	for _, r := range t.Rows {
		gain := "–"
		if g := r.Gain(); g != 0 {
			gain = fmt.Sprintf("%.2f×", g)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.What, r.cell(cluster.Stock), r.cell(cluster.Holdfast), gain)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// cell is the median, and the lowest and the highest value if there are several.
func (r *Row) cell(e cluster.Engine) string {
	v := r.Values[e]
	if len(v) == 0 {
		return "–"
	}
	s := r.Unit.format(r.Median(e))
	if len(v) > 1 {
		s += fmt.Sprintf(" (%s–%s)", r.Unit.format(slices.Min(v)), r.Unit.format(slices.Max(v)))
	}
	return s
}

func (u Unit) format(v float64) string {
	switch u {
	case Seconds:
		return time.Duration(v * float64(time.Second)).Round(roundTo(v)).String()
	case Bytes:
		for _, unit := range []string{"B", "KiB", "MiB"} {
			if v < 1024 {
				return fmt.Sprintf("%.3g %s", v, unit)
			}
			v /= 1024
		}
		return fmt.Sprintf("%.3g GiB", v)
	case Count:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.0f/s", v)
	}
}

// roundTo leaves three digits of a time in seconds.
func roundTo(v float64) time.Duration {
	round := time.Microsecond / 100
	for d := v * float64(time.Second); d >= float64(1000*round); {
		round *= 10
	}
	return round
}
