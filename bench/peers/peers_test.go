package peers

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"holdfast/bench/suite"
)

// read looks a key up.
func read(t *testing.T, s suite.CommitStore, key []byte) string {
	t.Helper()
	switch s := s.(type) {
	case *pebbleStore:
		value, closer, err := s.db.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close()
		return string(value)
	case *sqliteStore:
		var value []byte
		if err := s.db.QueryRow("SELECT value FROM keys WHERE key = ?", key).Scan(&value); err != nil {
			t.Fatal(err)
		}
		return string(value)
	}
	t.Fatalf("nobody knows how to read a %T", s)
	return ""
}

// TestPeers commits from many goroutines, and finds everything after opening
// again.
func TestPeers(t *testing.T) {
	const writers, each = 8, 20
	for _, p := range All {
		for _, durable := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,durable=%v", p.Name, durable), func(t *testing.T) {
				path := t.TempDir() + "/a database?"
				s, err := p.Open(path, durable)
				if err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for w := range writers {
					all.Go(func() {
						for i := range each {
							for _, value := range []string{"first", fmt.Sprint(w * i)} {
								if err := s.Commit(fmt.Append(nil, w, "/", i), []byte(value)); err != nil {
									t.Error(err)
									return
								}
							}
						}
					})
				}
				all.Wait()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = p.Open(path, durable); err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for w := range writers {
					for i := range each {
						if got := read(t, s, fmt.Append(nil, w, "/", i)); got != fmt.Sprint(w*i) {
							t.Fatalf("%d/%d is %q", w, i, got)
						}
					}
				}
			})
		}
	}
}

// TestSQLiteMode sees that the options reach SQLite, which ignores those that it
// does not know.
func TestSQLiteMode(t *testing.T) {
	for durable, want := range map[bool]string{true: "wal 2", false: "wal 0"} {
		s, err := openSQLite(t.TempDir()+"/db", durable)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var journal, synchronous string
		db := s.(*sqliteStore).db
		if err := db.QueryRow("PRAGMA journal_mode").Scan(&journal); err != nil {
			t.Fatal(err)
		}
		if err := db.QueryRow("PRAGMA synchronous").Scan(&synchronous); err != nil {
			t.Fatal(err)
		}
		if got := journal + " " + synchronous; got != want {
			t.Errorf("durable=%v: mode %q, want %q", durable, got, want)
		}
	}
}

// TestGroups sees that the peers are measured by the groups that have them.
func TestGroups(t *testing.T) {
	c := suite.Config{
		Dir: t.TempDir(), Rounds: 1, Time: time.Millisecond, Writers: []int{1, 64}, CommitPeers: All, Log: io.Discard,
	}
	for _, group := range suite.CommitGroups {
		if group.Name != "writers" && group.Name != "relaxed" {
			continue
		}
		table, err := group.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range table.Rows {
			measured := 0
			for name, cell := range row.Cells {
				for _, p := range All {
					if len(name) >= len(p.Name) && name[:len(p.Name)] == p.Name && cell.Median > 0 {
						measured++
					}
				}
			}
			if measured != len(All) {
				t.Errorf("%s, %s: %d peers of %d were measured", group.Name, row.Workload, measured, len(All))
			}
		}
	}
}
