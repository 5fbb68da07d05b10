package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/bench/age"
)

const results = "../../results"

// TestDrawn sees that the pictures in the repository are those that the command draws from the data
// beside them, and that they are whole XML with both sets of colours.
func TestDrawn(t *testing.T) {
	for _, f := range figures {
		want, err := drawFile(results, f.name, f.draw)
		if f.later && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(results, f.name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s.svg is not what is drawn from %s.json; make figures draws it", f.name, f.name)
		}
		if !bytes.Contains(got, []byte("prefers-color-scheme: dark")) {
			t.Errorf("%s.svg has no colours for dark pages", f.name)
		}
		decoder := xml.NewDecoder(bytes.NewReader(got))
		for {
			if _, err := decoder.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s.svg: %v", f.name, err)
			}
		}
	}
}

// TestSources: each data file says by which command, when and on what it was measured.
func TestSources(t *testing.T) {
	for _, f := range figures {
		svg, err := drawFile(results, f.name, f.draw)
		if f.later && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{f.command, ", 20", " cores", "linux/"} {
			if !strings.Contains(string(svg), want) {
				t.Errorf("%s: no %q in the caption", f.name, want)
			}
		}
	}
}

func TestWrongData(t *testing.T) {
	for _, f := range figures {
		for _, data := range []string{"", "{}", `{"groups": [{"table": {"Rows": [{"Workload": "1 writer: commits"}]}}]}`} {
			if _, err := f.draw([]byte(data)); err == nil {
				t.Errorf("%s: %q is not an error", f.name, data)
			}
		}
	}
}

// TestLives: the picture has a line in each panel for each store that took part, in its own scale.
func TestLives(t *testing.T) {
	r := age.Result{Command: "bench-age -full", Date: "2026-11-28", Machine: "2 cores, linux/amd64", Config: age.Full}
	for i, peer := range []string{"holdfast", "holdfast Periodic", "stock", "SQLite WAL"} {
		life := age.PeerLife{Peer: peer}
		for day := range 3 {
			v := float64((i + 1) * (day + 1))
			life.Stretches = append(life.Stretches, age.Stretch{Day: 1 + day*500, Samples: age.Samples{age.Written: {v * 1024}, age.Rate: {v}}})
		}
		r.Lives = append(r.Lives, life)
	}
	draw := func() ([]byte, error) {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return drawLives(data)
	}
	svg, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"<path": 6, ">SQLite (WAL)<": 2, ">LMDB<": 0, ">12<": 2, ">1,000 days of ": 1, "bench-age -full, 2026": 1} {
		if n := strings.Count(string(svg), want); n != times {
			t.Errorf("%d times %q, want %d, in:\n%s", n, want, times, svg)
		}
	}
	r.Lives = r.Lives[1:]
	if _, err := draw(); !errors.Is(err, errNothing) {
		t.Errorf("without Holdfast: %v", err)
	}
}
