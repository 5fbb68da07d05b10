package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/bench/age"
)

// sample is a result with names that HTML has to escape. Its stores get worse by a factor of their own.
func sample() *age.Result {
	r := &age.Result{
		About:   age.About{Title: "The life of <stores>", Story: "40 days of a <program> & \"more\".", Method: "As it is.", Peer: "store", Cycles: "cycles", Keys: "keys"},
		Command: "bench-age -days 40", Date: "2026-11-28", Machine: "2 cores, linux/amd64, ext4", Load: "load 0.1 0.2 0.3",
		Versions: []age.Version{{Module: "go.etcd.io/bbolt", Version: "v1.5.0"}, {Module: "go", Version: "go1.26"}},
		Config:   age.Quick, Traces: []string{"containerd 2", "a <program> & \"more\""}, Measures: age.Measures,
	}
	for i, peer := range []string{"holdfast", "stock <b> & 'map'", "Pebble"} {
		life := age.PeerLife{Peer: peer, Note: "as it is & so <on>"}
		for stretch, day := range []int{1, 20, 40} {
			s := age.Stretch{Day: day, Cycles: 20, Keys: 8000, Samples: age.Samples{}}
			worse := 1 + 10*float64(i*stretch)
			for _, m := range age.Measures {
				v := 1000 * worse
				if m.More {
					v = 1000 / worse
				}
				s.Samples[m.ID] = []float64{v, v * 0.99, v * 1.01}
				if m.Floor != "" {
					s.Samples[m.Floor] = []float64{500}
				}
			}
			life.Stretches = append(life.Stretches, s)
		}
		r.Lives = append(r.Lives, life)
	}
	return r
}

func html(t *testing.T, r ...*age.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, r...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// tally is what a page has.
type tally struct {
	plots, paths, tables int
	text                 strings.Builder // with the attributes that are read aloud
}

// count reads a page, which has to be well-formed, and have nothing that a browser would load or run.
func count(t *testing.T, text string) *tally {
	t.Helper()
	all := &tally{}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		switch token := token.(type) {
		case xml.CharData:
			all.text.Write(token)
		case xml.StartElement:
			switch token.Name.Local {
			case "table":
				all.tables++
			case "path":
				all.paths++
			case "script", "link", "img", "iframe", "object":
				t.Errorf("a <%s>", token.Name.Local)
			}
			for _, a := range token.Attr {
				if a.Name.Local == "aria-label" {
					all.plots++
					all.text.WriteString(a.Value + "\n")
				}
				if a.Name.Local == "src" || a.Name.Local == "href" || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("%s=%q", a.Name.Local, a.Value)
				}
			}
		}
	}
}

// TestHTML: the page is well-formed, has all stores, measures, versions and both sets of colours, each plot
// has a text and a line for each store, and there is nothing that a browser would load or run.
func TestHTML(t *testing.T) {
	r := sample()
	text := html(t, r)
	all := count(t, text)
	n := len(age.Measures)
	if floors := 3; all.plots != n || all.tables != n || all.paths != 2*(n*len(r.Lives)+floors) { // a line, and its piece in the legend
		t.Errorf("%d plots, %d tables, %d lines of %d measures", all.plots, all.tables, all.paths, n)
	}
	wants := []string{r.Command, r.Date, r.Machine, r.Load, "go.etcd.io/bbolt v1.5.0", "a <program> & \"more\"", "as it is & so <on>",
		"The life of <stores>", "40 days of a <program> & \"more\". On day 1 20 cycles are live, with what is measured 8000 keys;", "As it is.",
		"logarithmic", "day 40 / day 1", "floor on it", "stock <b> & 'map', day 1: 1 µs (990 ns–1.01 µs) to day 40: 21 µs"}
	for _, m := range age.Measures {
		wants = append(wants, m.Title)
	}
	for _, life := range r.Lives {
		wants = append(wants, life.Peer)
	}
	for _, want := range wants {
		if !strings.Contains(all.text.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	for _, never := range []string{"://", "@import", "url(", "ZgotmplZ", "NaN", "Inf"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in the page", never)
		}
	}
	if !strings.Contains(text, "prefers-color-scheme: dark") || !strings.Contains(text, `name="viewport"`) {
		t.Error("no colours for dark pages, or none of a phone's width")
	}
}

// TestTwo: a page of two results has all of both, and no name twice.
func TestTwo(t *testing.T) {
	other := sample()
	other.About.Title, other.About.Peer, other.Measures = "The life of snapshots", "snapshotter", []age.Measure{{ID: age.Open, Title: "open", Unit: "ns"}}
	text := html(t, sample(), other)
	all := count(t, text)
	if n := len(age.Measures) + 1; all.plots != n || all.tables != n {
		t.Errorf("%d plots, %d tables of %d measures", all.plots, all.tables, n)
	}
	for _, want := range []string{"The life of <stores>", "The life of snapshots", "Stores", "Snapshotters", "snapshotter"} {
		if !strings.Contains(all.text.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Count(text, `id="open"`) != 1 || strings.Count(text, `id="open-2"`) != 1 {
		t.Error("a section of each result has its own name")
	}
}

// TestRead: what JSON has written is read, and what it has not is refused.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "age.json")
	for _, c := range []struct{ text, want string }{
		{"", "unexpected end"}, {"[]", "reading the result in " + file}, {"{}", "no result of a life"}, {`{"measures":[{}],"lives":[{}]}`, "no result of a life"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(JSON(f, sample()), f.Close()); err != nil {
		t.Fatal(err)
	}
	if r, err := Read(file); err != nil || !reflect.DeepEqual(r, sample()) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Read(file + "none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestMissing: what a system does not tell has no table and no plot, zeroes and a run of one day do no harm.
func TestMissing(t *testing.T) {
	r := sample()
	for i := range r.Lives {
		for _, s := range r.Lives[i].Stretches {
			delete(s.Samples, age.Memory)
			s.Samples[age.Read] = []float64{0, 0}
		}
		r.Lives[i].Stretches = r.Lives[i].Stretches[:3-i]
	}
	text := html(t, r)
	if strings.Contains(text, `id="memory"`) || !strings.Contains(text, `id="read"`) || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("the page has a plot of nothing, not one of zeroes, or a number that is none")
	}
	for _, table := range Tables(r) {
		if table.ID == age.Memory || len(table.Rows) != 2 {
			t.Errorf("%+v", table)
		}
	}
	html(t, &age.Result{Config: age.Quick, Measures: age.Measures})
}

func TestTables(t *testing.T) {
	var b bytes.Buffer
	Print(&b, sample())
	for _, want := range []string{
		"| holdfast | 1 µs (990 ns–1.01 µs) |", "| store | day 1 | floor on it | day 40 | floor on it | day 40 / day 1 |",
		"| Pebble | 1000/s (990/s–1010/s) | 500/s | 24.4/s (24.1/s–24.6/s) | 500/s | 0.02× (0.02×–0.02×) |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, sample()); err != nil {
		t.Fatal(err)
	}
	var r age.Result
	if err := json.Unmarshal(b.Bytes(), &r); err != nil || !reflect.DeepEqual(&r, sample()) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCheck: a measure is kept if it is not 5% worse, or within the spread of its rounds, and better is not worse.
func TestCheck(t *testing.T) {
	if all := Check(sample()); len(all) != len(age.Measures) || !all[0].Met || !strings.HasPrefix(all[0].Name, "holdfast: ") {
		t.Errorf("%+v", all)
	}
	point := func(v float64) age.Cell { return age.Cell{Median: v, Low: v, High: v} }
	for _, c := range []struct {
		first, last age.Cell
		more, want  bool
	}{
		{point(100), point(104), false, true},
		{point(100), point(106), false, false},
		{point(100), point(50), false, true},
		{point(100), point(96), true, true},
		{point(100), point(94), true, false},
		{point(100), point(200), true, true},
		{age.Cell{Median: 100, Low: 90, High: 120}, age.Cell{Median: 130, Low: 119, High: 140}, false, true},
		{age.Cell{Median: 100, Low: 90, High: 120}, age.Cell{Median: 130, Low: 121, High: 140}, false, false},
		{age.Cell{Median: 100, Low: 90, High: 120}, age.Cell{Median: 80, Low: 70, High: 91}, true, true},
		{age.Cell{Median: 100, Low: 90, High: 120}, age.Cell{Median: 80, Low: 70, High: 89}, true, false},
	} {
		if got := kept(c.first, c.last, c.more); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
