package suite

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestVacuumGroups runs every group once, as small as can be, and sees a table with
// targets.
func TestVacuumGroups(t *testing.T) {
	for _, group := range VacuumGroups {
		t.Run(group.Name, func(t *testing.T) {
			c := Config{Dir: t.TempDir(), Rounds: 1, Time: 20 * time.Millisecond, Emptied: 4 << 20, Thinned: 4 << 20, Commits: 5, Log: io.Discard}
			table, err := group.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range table.Rows {
				for name, cell := range row.Cells {
					if !strings.Contains(strings.Join(table.Columns, "|"), name) {
						t.Errorf("%s: %q was measured and has no column", row.Workload, name)
					}
					if cell.Median < 0 {
						t.Errorf("%s: %s: %v", row.Workload, name, cell.Median)
					}
				}
			}
			if len(table.Rows) < 6 || len(table.Targets) < 2 || table.Title == "" {
				t.Errorf("%q has %d rows, there are %d targets", table.Title, len(table.Rows), len(table.Targets))
			}
			if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestGather sees that what overlaps with an interval belongs to it, and nothing else.
func TestGather(t *testing.T) {
	work := &traffic{commits: []stamp{{0, 10}, {10, 19}, {18, 25}, {26, 28}, {29, 100}, {100, 110}}}
	work.views[2] = []stamp{{5, 7}, {0, 200}}
	var l latencies
	l.gather(work, interval{20, 30})
	l.sort()
	want := []time.Duration{2, 7, 71}
	if len(l.commits) != len(want) || len(l.views) != 1 || l.views[0] != 200 || l.lasted != 10 {
		t.Fatalf("%+v", l)
	}
	for i, d := range want {
		if l.commits[i] != d {
			t.Errorf("%v, want %v", l.commits, want)
		}
	}
	for n, want := range map[int]time.Duration{0: 2, 500: 7, 999: 7, 1000: 71} {
		if got := perMille(l.commits, n); got != want {
			t.Errorf("permille %d: %v, want %v", n, got, want)
		}
	}
}

// TestDiskUse sees what a file takes at most, also when it is gone again.
func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "first"), noise[:8192], 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := watchDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "second"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(noise); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil { // before that no block is taken
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if most, err := u.end(); err != nil || most < int64(len(noise)) || most > 2*int64(len(noise)) {
		t.Errorf("%d bytes more, %v", most, err)
	}
}

// TestThinned sees that what is left in the file are the keys that buildThinned names.
func TestThinned(t *testing.T) {
	path := t.TempDir() + "/db"
	left, err := buildThinned(path, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Engines {
		s, err := e.Open(path, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := (2 << 20) / 1536; len(left) != n/thinned {
		t.Errorf("%d keys of %d are left", len(left), n)
	}
	for _, run := range []func(dst, src string) error{copyAsHoldfast, copyAsStock} {
		dst := t.TempDir() + "/copy"
		if err := run(dst, path); err != nil {
			t.Fatal(err)
		}
		if size, err := sizeOf(dst); err != nil || size < int64(len(left)*bigValue) {
			t.Errorf("the copy has %d bytes, %v", size, err)
		}
	}
}
