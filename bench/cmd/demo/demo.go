package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"holdfast/bench/suite"
	"holdfast/internal/vfs"
)

const (
	rounds     = 5                      // of opening and committing, interleaved
	commitTime = 400 * time.Millisecond // of each round
	growBytes  = 128 << 20              // by which the file grows during a read transaction
	growLimit  = 2 * time.Second        // after which the reader ends
)

// demo is one run.
type demo struct {
	dir     string
	size    int64
	began   time.Time
	results []*result
}

// result is what was measured of one engine.
type result struct {
	engine suite.Engine
	title  [2]string
	path   string
	fill   time.Duration
	opens  []time.Duration
	times  []time.Duration // of a commit
	bytes  float64         // of a commit
	growth suite.Growth
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func (d *demo) measure() error {
	d.results = []*result{
		{engine: suite.StockDefault, title: [2]string{"bbolt 1.5.0", "as it is"}},
		{engine: suite.StockMap, title: [2]string{"bbolt 1.5.0", "NoFreelistSync, map"}},
		{engine: suite.Holdfast, title: [2]string{"Holdfast", ""}},
	}
	for _, r := range d.results {
		progress("filling and emptying a file with %s", r.engine.Name)
		r.path = filepath.Join(d.dir, strings.ReplaceAll(r.engine.Name, " ", "-"))
		began := time.Now()
		if err := suite.BuildEmptied(r.engine, r.path, d.size); err != nil {
			return fmt.Errorf("%s: %w", r.engine.Name, err)
		}
		r.fill = time.Since(began)
	}
	for round := range rounds {
		progress("opening and committing, round %d of %d", round+1, rounds)
		for _, r := range d.results {
			if err := r.openAndCommit(); err != nil {
				return fmt.Errorf("%s: %w", r.engine.Name, err)
			}
		}
	}
	for _, r := range d.results {
		progress("letting a file grow beside a reader with %s", r.engine.Name)
		var err error
		if r.growth, err = suite.Grow(r.engine, r.path+"-grown", growBytes, growLimit); err != nil {
			return fmt.Errorf("%s: %w", r.engine.Name, err)
		}
	}
	progress("")
	return nil
}

func (r *result) openAndCommit() error {
	began := time.Now()
	s, err := r.engine.Open(r.path, false)
	if err != nil {
		return err
	}
	r.opens = append(r.opens, time.Since(began))
	f, err := suite.Commits(s, commitTime)
	if err != nil {
		return err
	}
	r.times, r.bytes = append(r.times, f.Latency), f.Bytes
	return s.Close()
}

// progress shows what is being done on a terminal.
func progress(format string, args ...any) {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
	}
}

func (d *demo) print(w io.Writer) {
	fmt.Fprintf(w, "Each file held %s and was emptied; 100 small keys are left. The same work on all, interleaved:\n\n", suite.FormatBytes(float64(d.size)))
	commits := "durable one-key commits"
	if vfs.InMemory(d.dir) {
		commits = "one-key commits, in memory"
	}
	rows := [][]string{{""}, {""}, {"written to change one key"}, {commits}, {"opening the file"},
		{fmt.Sprintf("While the file grows, one reader open (%v at most):", growLimit)}, {"  the writer waits at most"}, {"  a new reader waits at most"}}
	for _, r := range d.results {
		cells := []string{
			r.title[0], r.title[1], suite.FormatBytes(r.bytes),
			fmt.Sprintf("%.0f/s", 1/middle(r.times).Seconds()),
			suite.FormatDuration(middle(r.opens)),
			"", suite.FormatDuration(r.growth.Writer), suite.FormatDuration(r.growth.Reader),
		}
		if r.growth.Blocked {
			cells[6], cells[7] = "until that one ends", "until that one ends"
		}
		for i, cell := range cells {
			rows[i] = append(rows[i], cell)
		}
	}
	for _, row := range rows {
		line := fmt.Sprintf("%-30s", row[0])
		if strings.Join(row[1:], "") != "" {
			for _, cell := range row[1:] {
				line += fmt.Sprintf("%21s", cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	if vfs.InMemory(d.dir) {
		fmt.Fprintf(w, "\nNothing was flushed to a disk: %s is in memory (tmpfs), so no commit was durable; -dir gives another place.\n", filepath.Dir(d.dir))
	}
	fmt.Fprintf(w, "\n%s\n", d.sentence())
	fmt.Fprintf(w, "(%d cores, %s/%s, %s; the whole run took %.0f s)\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), time.Since(d.began).Seconds())
}

// sentence says what the figures mean.
func (d *demo) sentence() string {
	stock, mapped, ours := d.results[0], d.results[1], d.results[2]
	s := fmt.Sprintf("To change one key in this file bbolt writes %s as Holdfast;\n", times(stock.bytes/ours.bytes, "much"))
	s += fmt.Sprintf("with NoFreelistSync it writes %s, but takes %s to open it",
		times(mapped.bytes/ours.bytes, "much"), times(float64(middle(mapped.opens))/float64(middle(ours.opens)), "long"))
	if stock.growth.Blocked && mapped.growth.Blocked && !ours.growth.Blocked {
		s += fmt.Sprintf(";\nand where one open reader stops bbolt's writer and every new reader, Holdfast's wait %s at most",
			suite.FormatDuration(max(ours.growth.Writer, ours.growth.Reader)))
	}
	return s + "."
}

// times writes a ratio of things that are much or long.
func times(ratio float64, of string) string {
	switch {
	case ratio >= 1.05:
		return fmt.Sprintf("%.3g times as %s", ratio, of)
	case ratio > 0.95:
		return "as " + of
	}
	return fmt.Sprintf("%.2g of as %s", ratio, of)
}
