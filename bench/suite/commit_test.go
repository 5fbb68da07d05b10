package suite

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
)

func TestMain(m *testing.M) {
	RunChild()
	os.Exit(m.Run())
}

// tiny is as small as the groups about commits can be.
func tiny(t *testing.T) Config {
	return Config{
		Dir: t.TempDir(), Keys: 3000, Rounds: 1, Time: time.Millisecond, Emptied: 1 << 20, Workers: 50,
		Live: []int64{1 << 20, 2 << 20}, Ages: []int64{0, 1 << 20}, Writers: []int{1, 2, 64}, FreePages: 1000, Log: io.Discard,
	}
}

// TestCommitGroups runs every group once and sees a table, with targets.
func TestCommitGroups(t *testing.T) {
	for _, group := range CommitGroups {
		t.Run(group.Name, func(t *testing.T) {
			c := tiny(t)
			table, err := group.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			ours := Holdfast.Name
			if table.Ours != "" {
				ours = table.Ours
			}
			for _, row := range table.Rows {
				if row.Cells[ours].Median <= 0 && group.Name != "opening" { // where a flush is taken off
					t.Errorf("%s: nothing was measured of %s", row.Workload, ours)
				}
				for name := range row.Cells {
					if !strings.Contains(strings.Join(table.Columns, "|"), name) {
						t.Errorf("%s: %q was measured and has no column", row.Workload, name)
					}
				}
			}
			if len(table.Rows) == 0 || len(table.Targets) == 0 && group.Name != "seals" && group.Name != "age" {
				t.Errorf("the table has %d rows, there are %d targets", len(table.Rows), len(table.Targets))
			}
			if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestTargets sees that what is met is computed from what was measured.
func TestTargets(t *testing.T) {
	peer := []sample{{value: 100}, {value: 10}, {value: 1000}}
	ours := []sample{{value: 95}, {value: 9.6}, {value: 10}} // ratios .95, .96, .01
	var table Table
	table.ratioAtLeast("a", "b", ours, peer, 0.95)
	table.ratioAtLeast("a", "b", ours, peer, 0.951)
	table.ratioAtMost("a", "b", ours, peer, 0.95)
	table.ratioAtMost("a", "b", ours, peer, 0.949)
	table.atMost("a", "b", 5, 5, "five")
	table.atMost("a", "b", 5.1, 5, "more")
	for i, target := range table.Targets {
		if target.Met != (i%2 == 0) {
			t.Errorf("target %d: %+v", i, target)
		}
	}
	var out bytes.Buffer
	PrintTargets(&out, table.Targets)
	if n := strings.Count(out.String(), "**NOT met**"); n != 3 {
		t.Errorf("%d of %d targets are printed as not met:\n%s", n, len(table.Targets), out.String())
	}
}

// TestKilled sees that the child committed, was killed, and left the file to
// others.
func TestKilled(t *testing.T) {
	for _, e := range Engines {
		t.Run(e.Name, func(t *testing.T) {
			path := t.TempDir() + "/db"
			if err := killed(e, path); err != nil {
				t.Fatal(err)
			}
			s, err := e.Open(path, true)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			keys, _ := hundred()
			if err := s.Gets(keys[:childCommits]); err != nil {
				t.Error(err)
			}
		})
	}
	unknown := Engine{Name: "none"}
	if err := killed(unknown, t.TempDir()+"/db"); err == nil {
		t.Error("a child that could not commit is taken for one that did")
	}
}

// TestWithFreePages sees that both engines find the free pages of the file, and
// Holdfast from its own record once it has committed.
func TestWithFreePages(t *testing.T) {
	for _, stride := range []uint64{1, 2} {
		const pages = 70_000 // more than a freelist page counts in its header
		path := t.TempDir() + "/db"
		if err := WithFreePages(path, pages, stride); err != nil {
			t.Fatal(err)
		}
		for _, want := range []holdfast.OpenPath{holdfast.OpenedByFreelist, holdfast.OpenedByRecord} {
			db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			// The first commit frees the freelist page, and takes some pages.
			s := db.Stats()
			if s.FreePageN < pages-100 || s.FreePageN > pages+200 || s.OpenPath != want {
				t.Errorf("stride %d: %d free pages of %d, opened by %v, want %v", stride, s.FreePageN, pages, s.OpenPath, want)
			}
			err = db.Update(func(tx *holdfast.Tx) error {
				_, err := tx.CreateBucketIfNotExists([]byte("b"))
				return err
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range []Engine{StockDefault, StockMap} {
			if _, err := openOnce(e, path); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
	}
}

// TestBareCommits counts what the floors write.
func TestBareCommits(t *testing.T) {
	c := tiny(t)
	for _, s := range []shape{{8192, 2}, {16 << 10, 2}, {20 << 10, 3}, {12 << 10, 9}} {
		f, err := c.scratch(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			t.Fatal(err)
		}
		before, err := writes()
		if err != nil {
			t.Skip(err) // a system that does not count
		}
		run, err := c.bareCommits(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		after, err := writes()
		if err != nil {
			t.Fatal(err)
		}
		n, file := int64(len(run.times)), 2*int64(pageSize)+4*(s.bytes-pageSize)
		if bytes := after[0] - before[0] - file; bytes < n*s.bytes || bytes > n*s.bytes+pageSize {
			t.Errorf("%v: %d commits wrote %d bytes", s, n, bytes)
		}
		if calls := min(s.writes, s.bytes/pageSize); after[1]-before[1] < n*calls {
			t.Errorf("%v: %d commits took %d calls", s, n, after[1]-before[1])
		}
	}
}

// counting counts its commits and fails after some.
type counting struct {
	n, most atomic.Int64
	values  func(value []byte)
}

var errMost = errors.New("enough")

func (s *counting) Commit(_, value []byte) error {
	s.values(value)
	if s.n.Add(1) > s.most.Load() {
		return errMost
	}
	return nil
}

func (s *counting) Close() error { return nil }

func TestCommitAtOnce(t *testing.T) {
	s := &counting{values: func([]byte) {}}
	s.most.Store(1 << 60)
	var next atomic.Int64
	run, err := commitAtOnce(s, 8, 5*time.Millisecond, &next)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.n.Load(); int(n) != len(run.times) || next.Load() != n || n < 8 || run.rate <= 0 {
		t.Errorf("%d commits, %d times, %d values, %v/s", n, len(run.times), next.Load(), run.rate)
	}
	s.most.Store(0)
	if _, err := commitAtOnce(s, 8, time.Millisecond, &next); !errors.Is(err, errMost) {
		t.Errorf("the error of a commit is lost: %v", err)
	}
	// SQLite does nothing when the value is there already.
	s.most.Store(1 << 60)
	seen, first := map[string]bool{}, valueOf(1)
	s.values = func(v []byte) { seen[string(v)] = true }
	before := s.n.Load()
	if _, err := commitAtOnce(s, 1, time.Millisecond, &next); err != nil {
		t.Fatal(err)
	}
	if n := min(int(s.n.Load()-before), 1000); len(seen) < n || seen[string(first)] {
		t.Errorf("%d commits put %d values", n, len(seen))
	}
}
