// Command figures draws the pictures of the documentation from measured data: it reads
// age.json, writers.json, steps.json, programs.json and, where it has been measured, lives.json in
// a directory and writes an SVG file beside each. The pictures have the colours of a light or a dark page, as the
// reader's browser asks for.
//
//	go run ./cmd/figures results
//
// How the data is measured anew is in results/README.md.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// figures are the pictures: each is drawn from the data file of its name.
var figures = []struct {
	name    string
	command string // that measures the data
	draw    func(data []byte) ([]byte, error)
	later   bool // the data file may be missing
}{
	{"age", "bench-commit", drawAge, false},
	{"writers", "bench-commit", drawWriters, false},
	{"steps", "bench-step", drawSteps, false},
	{"programs", "programs", drawPrograms, false},
	{"lives", "bench-age", drawLives, true},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: figures DIRECTORY")
		os.Exit(2)
	}
	if err := drawAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func drawAll(dir string) error {
	for _, f := range figures {
		svg, err := drawFile(dir, f.name, f.draw)
		if f.later && errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "figures: there is no %s.json, which %s measures\n", f.name, f.command)
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func drawFile(dir, name string, draw func([]byte) ([]byte, error)) ([]byte, error) {
	path := filepath.Join(dir, name+".json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	svg, err := draw(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return svg, nil
}
