package suite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func columns(engines []Engine) (names []string) {
	for _, e := range engines {
		names = append(names, e.Name)
	}
	return names
}

func remove(path string) { _ = os.RemoveAll(filepath.Dir(path)) }

// compare adds a row of times per operation.
func (t *Table) compare(c Config, workload string, engines []Engine, measure func(i int) (sample, error)) error {
	var runners []runner
	for i, e := range engines {
		runners = append(runners, runner{e.Name, func() (sample, error) { return measure(i) }})
	}
	return t.add(&c, Row{Workload: workload, Unit: "ns"}, runners)
}

func (t *Table) add(c *Config, row Row, runners []runner) (err error) {
	c.logf("measuring: %s", row.Workload)
	row.Cells, err = alternate(c.Rounds, runners)
	if err != nil {
		return fmt.Errorf("%s: %w", row.Workload, err)
	}
	t.Rows = append(t.Rows, row)
	return nil
}

// hundred are the keys of one-key commits.
func hundred() (keys, values [][]byte) {
	for i := range 100 {
		keys, values = append(keys, fmt.Appendf(nil, "k%04d", i)), append(values, valueOf(i))
	}
	return keys, values
}

// commits runs one-key transactions on s for at least d.
func commits(s Store, d time.Duration) (sample, error) {
	keys, _ := hundred()
	i := 0
	return perOperation(d, 1, func() error {
		i++
		return s.Put(keys[i%100:i%100+1], [][]byte{valueOf(i)})
	})
}

// Write measures small transactions that write.
func Write(c Config) (Table, error) {
	t := Table{Title: "Writing, one writer", Columns: append(columns(Engines), floorName)}
	for _, noSync := range []bool{false, true} {
		if err := c.oneKey(&t, noSync); err != nil {
			return t, err
		}
	}
	return t, c.thousandPuts(&t)
}

func (c *Config) oneKey(t *Table, noSync bool) error {
	var runners []runner
	for _, e := range Engines {
		path, err := c.path("commit", e.Name)
		if err != nil {
			return err
		}
		defer remove(path)
		s, err := e.Open(path, noSync)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Put(hundred()); err != nil {
			return err
		}
		runners = append(runners, runner{e.Name, func() (sample, error) {
			m, err := commits(s, c.Time)
			if !noSync {
				m.value = 1e9 / m.value
			}
			return m, err
		}})
	}
	if noSync {
		return t.add(c, Row{Workload: "one-key `Update`, `NoSync`", Unit: "ns"}, runners)
	}
	row := Row{Workload: "one-key `Update`, durable", Unit: "/s", More: true}
	var err error
	if row.Flush, err = bareFlush(c.Dir); err != nil {
		return err
	}
	runners = append(runners, runner{floorName, func() (sample, error) {
		bare, err := c.bareCommits(shape{bytes: 16 << 10, writes: 2}, 2)
		return sample{bare.rate, -1}, err
	}})
	return t.add(c, row, runners)
}

// floorName is the column of the same writes without a database: three pages
// and a flush, then one more page and a flush, as a commit of one key in a small
// tree writes them.
const floorName = "bare writes"

// thousandPuts puts random keys of 100,000 in transactions of 1,000.
func (c *Config) thousandPuts(t *Table) error {
	const total, size = 100_000, 1000
	stores, drop, err := c.loaded(Engines, total, true)
	defer drop()
	if err != nil {
		return err
	}
	values := make([][]byte, size)
	for i := range values {
		values[i] = valueOf(i)
	}
	parts := make([][][]byte, 20)
	for i := range parts {
		parts[i] = someKeys(total, size, uint64(i))
	}
	next := make([]int, len(stores))
	return t.compare(*c, "1,000 random puts of 100,000 keys in one `Update`, `NoSync`", Engines, func(i int) (sample, error) {
		return perOperation(c.Time, 1, func() error {
			next[i]++
			return stores[i].Put(parts[next[i]%len(parts)], values)
		})
	})
}

// Load measures filling an empty database, with one flush at the end.
func Load(c Config) (Table, error) {
	t := Table{Title: fmt.Sprintf("Loading %d keys with 100 bytes each, 10,000 a transaction, one flush at the end", c.Keys), Columns: columns(Engines)}
	for _, p := range Peers {
		t.Columns = append(t.Columns, p.Name)
	}
	for _, shuffled := range []bool{false, true} {
		rows := [3]Row{{Unit: "ns"}, {Unit: "B"}, {Unit: "B"}}
		order := "in order"
		if shuffled {
			order = "in random order"
		}
		for i, what := range []string{"time", "bytes written", "size of the file"} {
			rows[i].Workload = order + ": " + what
		}
		rounds := c
		rounds.Rounds = c.Loads
		sizes, bytes := map[string][]sample{}, map[string][]sample{}
		var runners []runner
		add := func(name string, loads func(path string) (io.Closer, error)) {
			runners = append(runners, runner{name, func() (sample, error) {
				took, wrote, size, err := c.loadOnce(name, loads)
				sizes[name] = append(sizes[name], sample{size, -1})
				bytes[name] = append(bytes[name], sample{wrote, -1})
				return sample{float64(took), -1}, err
			}})
		}
		for _, e := range Engines {
			add(e.Name, func(path string) (io.Closer, error) {
				s, err := e.Open(path, true)
				if err != nil {
					return nil, err
				}
				if err := load(s, c.Keys, shuffled); err != nil {
					return nil, errors.Join(err, s.Close())
				}
				return s, nil
			})
		}
		for _, p := range Peers {
			add(p.Name, func(path string) (io.Closer, error) {
				return p.Open(path, loadOrder(c.Keys, shuffled), !shuffled, keyOf, valueOf)
			})
		}
		if err := t.add(&rounds, rows[0], runners); err != nil {
			return t, err
		}
		for i, samples := range []map[string][]sample{bytes, sizes} {
			row := rows[i+1]
			row.Cells = cellsOf(samples)
			t.Rows = append(t.Rows, row)
		}
	}
	return t, nil
}

// loadOnce measures loads, which makes a database at path.
func (c *Config) loadOnce(name string, loads func(path string) (io.Closer, error)) (took time.Duration, wrote, size float64, err error) {
	path, err := c.path("load", name)
	if err != nil {
		return 0, 0, 0, err
	}
	defer remove(path)
	before, err := written()
	if err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	s, err := loads(path)
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.Close()
	took = time.Since(began)
	after, err := written()
	if err != nil {
		return 0, 0, 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, 0, err
	}
	return took, float64(after - before), float64(info.Size()), nil
}
