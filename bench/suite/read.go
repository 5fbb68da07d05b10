package suite

import (
	"fmt"
	"slices"
	"time"
)

// Peer is an engine with another interface than bbolt's that takes part where a
// large database is loaded and read.
type Peer struct {
	Name string
	// Open makes a database at path with a key for each number in order, a few
	// thousand in a transaction, and flushes it once, at the end. ordered tells
	// whether the keys ascend.
	Open func(path string, order []int, ordered bool, key, value func(i int) []byte) (PeerStore, error)
}

// PeerStore is an open database of a Peer.
type PeerStore interface {
	// Gets reads the keys, in one transaction or each in its own.
	Gets(keys [][]byte, oneTx bool) error
	Scan() (int, error)
	Close() error
}

// Peers are registered by packages that need more than Go to be built.
var Peers []Peer

// Read measures transactions that only read.
func Read(c Config) (Table, error) {
	t := Table{Title: fmt.Sprintf("Reading, one thread, %d keys in the large database", c.Keys), Columns: columns(Engines)}
	small, drop, err := c.loaded(Engines, 10_000, true)
	defer drop()
	if err != nil {
		return t, err
	}
	keys := someKeys(10_000, 1000, 1)
	err = t.compare(c, "empty `View`", Engines, func(i int) (sample, error) {
		return perOperation(c.Time, 1000, func() error { return small[i].EmptyViews(1000) })
	})
	if err != nil {
		return t, err
	}
	err = t.compare(c, "`View` + `Get`, 10,000 keys", Engines, func(i int) (sample, error) {
		return perOperation(c.Time, len(keys), func() error { return small[i].ViewGets(keys) })
	})
	if err != nil {
		return t, err
	}
	if err := c.readWarm(&t); err != nil {
		return t, err
	}
	return t, c.readLarge(&t)
}

// warmKeys is how many keys fit into the caches of the processor, so that a step of a cursor is measured, and not memory.
const warmKeys = 100_000

func (c *Config) readWarm(t *Table) error {
	stores, drop, err := c.loaded(Engines, warmKeys, true)
	defer drop()
	if err != nil {
		return err
	}
	keys := someKeys(warmKeys, 20_000, 3)
	for _, w := range []struct {
		name string
		n    int
		do   func(Store) error
	}{
		{"scan of 100,000 keys", 1, func(s Store) error { return all(warmKeys)(s.Scan()) }},
		{"the same, from the last to the first", 1, func(s Store) error { return all(warmKeys)(s.ScanBack()) }},
		{"random reads of 100,000 keys, one transaction", len(keys), func(s Store) error { return s.Gets(keys) }},
	} {
		err := t.compare(*c, w.name, Engines, func(i int) (sample, error) {
			return perOperation(c.Time, w.n, func() error { return w.do(stores[i]) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) readLarge(t *Table) error {
	stores, drop, err := c.loaded(Engines, c.Keys, true)
	defer drop()
	if err != nil {
		return err
	}
	peers, names, dropPeers, err := c.peers()
	defer dropPeers()
	if err != nil {
		return err
	}
	t.Columns = append(t.Columns, names...)
	keys := someKeys(c.Keys, 100_000, 2)
	workloads := []struct {
		name string
		n    int
		own  func(Store) error
		peer func(PeerStore) error
	}{
		{"random reads, own transaction each", len(keys),
			func(s Store) error { return s.ViewGets(keys) }, func(s PeerStore) error { return s.Gets(keys, false) }},
		{"random reads, one transaction", len(keys),
			func(s Store) error { return s.Gets(keys) }, func(s PeerStore) error { return s.Gets(keys, true) }},
		{"scan of all keys", 1,
			func(s Store) error { return all(c.Keys)(s.Scan()) }, func(s PeerStore) error { return all(c.Keys)(s.Scan()) }},
	}
	for _, w := range workloads {
		var runners []runner
		for i, e := range Engines {
			runners = append(runners, runner{e.Name, func() (sample, error) {
				return perOperation(c.Time, w.n, func() error { return w.own(stores[i]) })
			}})
		}
		for i, name := range names {
			runners = append(runners, runner{name, func() (sample, error) {
				s, err := perOperation(c.Time, w.n, func() error { return w.peer(peers[i]) })
				s.allocs = -1
				return s, err
			}})
		}
		if err := t.add(c, Row{Workload: w.name, Unit: "ns"}, runners); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) peers() (stores []PeerStore, names []string, drop func(), err error) {
	var paths []string
	drop = func() {
		for i, s := range stores {
			_ = s.Close()
			remove(paths[i])
		}
	}
	for _, p := range Peers {
		path, err := c.path("keys", p.Name)
		if err != nil {
			return nil, nil, drop, err
		}
		s, err := p.Open(path, loadOrder(c.Keys, false), true, keyOf, valueOf)
		if err != nil {
			return nil, nil, drop, fmt.Errorf("%s: %w", p.Name, err)
		}
		stores, names, paths = append(stores, s), append(names, p.Name), append(paths, path)
	}
	return stores, names, drop, nil
}

func all(want int) func(int, error) error {
	return func(n int, err error) error {
		if err == nil && n != want {
			err = fmt.Errorf("the scan found %d keys of %d", n, want)
		}
		return err
	}
}

// Readers measures many goroutines that read at once.
func Readers(c Config) (Table, error) {
	engines := []Engine{StockDefault, StockNoStatistics, Fork, Holdfast}
	const floor = "no database"
	t := Table{
		Title:   fmt.Sprintf("%d goroutines, each 10 times `View` with one `Get` and 30 µs of sleep (bbolt #967): time of the whole `View`", c.Workers),
		Columns: append(columns(engines), floor),
	}
	var runs []func() ([]time.Duration, error)
	for _, e := range engines {
		path, err := c.path("readers", e.Name)
		if err != nil {
			return t, err
		}
		defer remove(path)
		s, err := openNumbers(e, path)
		if err != nil {
			return t, fmt.Errorf("%s: %w", e.Name, err)
		}
		defer s.Close()
		runs = append(runs, func() ([]time.Duration, error) { return s.Sleepers(c.Workers) })
	}
	runs = append(runs, func() ([]time.Duration, error) {
		return sleepers(c.Workers, func() error { time.Sleep(sleep); return nil })
	})
	worst := make([][]sample, len(t.Columns))
	var runners []runner
	for i, name := range t.Columns {
		runners = append(runners, runner{name, func() (sample, error) {
			times, err := runs[i]()
			if err != nil {
				return sample{}, err
			}
			worst[i] = append(worst[i], sample{float64(slices.Max(times)), -1})
			return sample{average(times), -1}, nil
		}})
	}
	c.logf("measuring: many readers")
	samples, err := byTurns(max(c.Rounds, 9), runners)
	if err != nil {
		return t, err
	}
	t.Rows = append(t.Rows, Row{Workload: "average of one `View`", Unit: "ns", Cells: cellsOf(samples)})
	t.ratioAtMost("many readers at once, average `View`", "the same program without a database", samples[Holdfast.Name], samples[floor], 1.5)
	t.ratioAtMost("many readers at once, average `View`", "that of the "+Fork.Name, samples[Holdfast.Name], samples[Fork.Name], 1)
	row := Row{Workload: "slowest `View`", Unit: "ns", Cells: map[string]Cell{}}
	for i, name := range t.Columns {
		row.Cells[name] = cellOf(worst[i])
	}
	t.Rows = append(t.Rows, row)
	return t, nil
}

func average(times []time.Duration) float64 {
	sum := 0.0
	for _, d := range times {
		sum += float64(d)
	}
	return sum / float64(len(times))
}

// openNumbers opens a database of 10,000 numbers, each its own value.
func openNumbers(e Engine, path string) (Store, error) {
	s, err := e.Open(path, true)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	for i := range 10_000 {
		keys = append(keys, fmt.Append(nil, i))
	}
	return s, s.Put(keys, keys)
}
