package suite

import (
	"fmt"
	"sync/atomic"
	"time"
)

// BuildEmptied makes a file at path that held size bytes and was emptied: a
// bucket of 900-byte values is filled and deleted, and 100 small keys remain.
func BuildEmptied(e Engine, path string, size int64) error {
	return build(e, path, size, 900, size > 0)
}

// BuildLive makes a file at path that holds size bytes in sequential keys, and
// 100 small keys.
func BuildLive(e Engine, path string, size int64) error {
	return build(e, path, size, 880, false) // four to a page
}

func build(e Engine, path string, size int64, valueSize int, empty bool) error {
	const transactionSize = 20_000
	s, err := e.Open(path, true)
	if err != nil {
		return err
	}
	defer s.Close()
	big := []byte("big")
	for from, n := 0, int(size/int64(valueSize)); from < n; from += transactionSize {
		if err := s.Fill(big, from, min(transactionSize, n-from), noise[:valueSize]); err != nil {
			return err
		}
	}
	if empty {
		if err := s.DeleteBucket(big); err != nil {
			return err
		}
	}
	if err := s.Put(hundred()); err != nil {
		return err
	}
	return s.Sync()
}

// CommitFigures are those of durable one-key commits.
type CommitFigures struct {
	Latency time.Duration // of one
	Bytes   float64       // handed to write calls, for one
}

// Commits runs durable one-key commits on s for at least d.
func Commits(s Store, d time.Duration) (CommitFigures, error) {
	before, err := written()
	if err != nil {
		return CommitFigures{}, err
	}
	keys, _ := hundred()
	began, n := time.Now(), 0
	for time.Since(began) < d {
		n++
		if err := s.Put(keys[n%100:n%100+1], [][]byte{valueOf(n)}); err != nil {
			return CommitFigures{}, err
		}
	}
	took := time.Since(began)
	after, err := written()
	if err != nil {
		return CommitFigures{}, err
	}
	return CommitFigures{Latency: took / time.Duration(n), Bytes: float64(after-before) / float64(n)}, nil
}

// Aged measures one-key commits on a young file and on one that was emptied,
// and opening the latter.
func Aged(c Config) (Table, error) {
	t := Table{
		Title:   fmt.Sprintf("Age: a file that held %s and was emptied, beside a young one", FormatBytes(float64(c.Emptied))),
		Columns: columns(Engines),
	}
	for _, size := range []int64{0, c.Emptied} {
		if err := c.agedCommits(&t, size); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (c *Config) agedCommits(t *Table, size int64) error {
	file := "young file"
	if size > 0 {
		file = "emptied file"
	}
	var stores []Store
	var paths []string
	for _, e := range Engines {
		path, err := c.path("emptied", e.Name)
		if err != nil {
			return err
		}
		defer remove(path)
		c.logf("building a file of %s with %s", FormatBytes(float64(size)), e.Name)
		if err := BuildEmptied(e, path, size); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		paths = append(paths, path)
	}
	if err := c.openAndCommit(t, file, paths); err != nil {
		return err
	}
	for i, e := range Engines {
		s, err := e.Open(paths[i], false)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	bytes := map[string][]sample{}
	var runners []runner
	for i, e := range Engines {
		runners = append(runners, runner{e.Name, func() (sample, error) {
			f, err := Commits(stores[i], c.Time)
			bytes[e.Name] = append(bytes[e.Name], sample{f.Bytes, -1})
			return sample{1 / f.Latency.Seconds(), -1}, err
		}})
	}
	row := Row{Workload: file + ": durable one-key commits", Unit: "/s", More: true}
	var err error
	if row.Flush, err = bareFlush(c.Dir); err != nil {
		return err
	}
	if err := t.add(c, row, runners); err != nil {
		return err
	}
	t.Rows = append(t.Rows, Row{Workload: file + ": bytes written by one", Unit: "B", Cells: cellsOf(bytes)})
	return nil
}

// openAndCommit measures what it takes to open the file and commit once.
func (c *Config) openAndCommit(t *Table, file string, paths []string) error {
	var runners []runner
	for i, e := range Engines {
		runners = append(runners, runner{e.Name, func() (sample, error) {
			took, err := openOnce(e, paths[i])
			return sample{float64(took), -1}, err
		}})
	}
	return t.add(c, Row{Workload: file + ": open and first commit", Unit: "ns"}, runners)
}

// Growth says who waited while a writer made the file grow during a read transaction.
type Growth struct {
	Writer, Reader time.Duration // the longest wait of the writer, of a new reader
	Blocked        bool          // the writer did not finish before the reader was made to end
}

// Grow lets a writer make the file at path grow by size bytes while a reader is
// open, which ends after limit if the writer has not finished by then.
func Grow(e Engine, path string, size int64, limit time.Duration) (g Growth, err error) {
	s, err := e.Open(path, true)
	if err != nil {
		return g, err
	}
	defer s.Close()
	if err := s.Put(hundred()); err != nil {
		return g, err
	}
	release, err := s.Hold()
	if err != nil {
		return g, err
	}
	var stop atomic.Bool
	writer, reader := make(chan error, 1), make(chan error, 1)
	go func() { writer <- growing(s, size, &g.Writer) }()
	go func() { reader <- beginning(s, &stop, &g.Reader) }()
	var grown error
	select {
	case grown = <-writer:
		err = release()
	case <-time.After(limit):
		g.Blocked = true
		err = release()
		grown = <-writer
	}
	stop.Store(true)
	for _, e := range []error{grown, <-reader} {
		if err == nil {
			err = e
		}
	}
	return g, err
}

// growing puts values until they are size bytes, and notes the longest commit.
func growing(s Store, size int64, longest *time.Duration) error {
	const valueSize, valuesPerCommit = 16 << 10, 16
	for i := 0; int64(i)*valueSize < size; i += valuesPerCommit {
		began := time.Now()
		if err := s.Fill([]byte("growing"), i, valuesPerCommit, noise[:valueSize]); err != nil {
			return err
		}
		*longest = max(*longest, time.Since(began))
	}
	return nil
}

// beginning begins and ends reading transactions and notes the longest.
func beginning(s Store, stop *atomic.Bool, longest *time.Duration) error {
	for !stop.Load() {
		began := time.Now()
		if err := s.EmptyViews(1); err != nil {
			return err
		}
		*longest = max(*longest, time.Since(began))
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// Growing measures Grow.
func Growing(c Config) (Table, error) {
	const size, limit = 256 << 20, 2 * time.Second
	t := Table{
		Title:   fmt.Sprintf("A writer makes the file grow by %s while a reader is open (for %v at most)", FormatBytes(size), limit),
		Columns: columns(Engines),
	}
	rows := []Row{{Workload: "longest wait of the writer", Unit: "ns"}, {Workload: "longest wait of a new reader", Unit: "ns"}}
	for i := range rows {
		rows[i].Cells = map[string]Cell{}
	}
	all := map[string][2][]sample{}
	for round := range c.Rounds {
		for i := range Engines {
			e := Engines[(i+round)%len(Engines)]
			path, err := c.path("grow", e.Name)
			if err != nil {
				return t, err
			}
			c.logf("growing: %s", e.Name)
			g, err := Grow(e, path, size, limit)
			remove(path)
			if err != nil {
				return t, fmt.Errorf("%s: %w", e.Name, err)
			}
			a := all[e.Name]
			a[0] = append(a[0], sample{float64(g.Writer), -1})
			a[1] = append(a[1], sample{float64(g.Reader), -1})
			all[e.Name] = a
			if g.Blocked {
				for _, r := range rows {
					r.Cells[e.Name] = Cell{Text: "until the reader ends", Allocs: -1}
				}
			}
		}
	}
	for name, a := range all {
		for i, r := range rows {
			if _, blocked := r.Cells[name]; !blocked {
				r.Cells[name] = cellOf(a[i])
			}
		}
	}
	t.Rows = rows
	return t, nil
}
