package suite

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// CommitPeer is an engine with another interface than bbolt's that takes part
// where single keys are committed.
type CommitPeer struct {
	Name string
	// Open opens or makes the database at path, a file or a directory. Commits
	// are flushed if durable.
	Open func(path string, durable bool) (CommitStore, error)
}

// CommitStore is an open database into which many goroutines commit at once.
type CommitStore interface {
	// Commit puts one key in a transaction of its own.
	Commit(key, value []byte) error
	Close() error
}

// updates makes a CommitStore of one with bbolt's API.
type updates struct{ Store }

func (u updates) Commit(key, value []byte) error { return u.Put([][]byte{key}, [][]byte{value}) }

// committers are the engines of one run, each with 100 keys in its database.
type committers struct {
	names  []string
	stores []CommitStore
	paths  []string
}

// firstValue is the number of the first value that is committed. Those before
// are in the database already, and to put what is there is no work for some.
const firstValue = 1000

func (s *committers) drop() {
	for i, store := range s.stores {
		_ = store.Close()
		remove(s.paths[i])
	}
}

// add opens a database and puts the keys into it.
func (s *committers) add(c *Config, name string, open func(path string) (CommitStore, error)) error {
	path, err := c.path("commits", name)
	if err != nil {
		return err
	}
	store, err := open(path)
	if err != nil {
		remove(path)
		return fmt.Errorf("%s: %w", name, err)
	}
	s.names, s.stores, s.paths = append(s.names, name), append(s.stores, store), append(s.paths, path)
	keys, values := hundred()
	for i := range keys {
		if err := store.Commit(keys[i], values[i]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *committers) openEngines(c *Config, engines []Engine, noSync bool) error {
	for _, e := range engines {
		err := s.add(c, e.Name, func(path string) (CommitStore, error) {
			store, err := e.Open(path, noSync)
			return updates{store}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// openPeers adds the peers under their names with the suffix.
func (s *committers) openPeers(c *Config, durable bool, suffix string) error {
	for _, p := range c.CommitPeers {
		err := s.add(c, p.Name+suffix, func(path string) (CommitStore, error) { return p.Open(path, durable) })
		if err != nil {
			return err
		}
	}
	return nil
}

// runners measure the committers, for d each time.
func (s *committers) runners(d time.Duration) (all []commitRunner) {
	for i, name := range s.names {
		var next atomic.Int64
		next.Store(firstValue)
		all = append(all, commitRunner{name, func(n int) (commitRun, error) { return commitAtOnce(s.stores[i], n, d, &next) }})
	}
	return all
}

// commitAtOnce lets goroutines commit single keys for at least d, each time with
// the next value.
func commitAtOnce(s CommitStore, writers int, d time.Duration, next *atomic.Int64) (commitRun, error) {
	keys, _ := hundred()
	times, errs := make([][]time.Duration, writers), make([]error, writers)
	var start, done sync.WaitGroup
	start.Add(1)
	for w := range writers {
		done.Go(func() {
			start.Wait()
			var run commitRun
			run, errs[w] = timed(d, 1, func() error {
				i := int(next.Add(1))
				return s.Commit(keys[i%len(keys)], valueOf(i))
			})
			times[w] = run.times
		})
	}
	began := time.Now()
	start.Done()
	done.Wait()
	took := time.Since(began)
	run := commitRun{times: slices.Concat(times...)}
	run.rate = float64(len(run.times)) / took.Seconds()
	return run, errors.Join(errs...)
}

// Columns of what the disk allows without a database.
const (
	ownFloor   = "holdfast's writes, one flush"
	stockFloor = "bbolt's writes, two flushes"
	logFloor   = "log, one flush for all"
)

// commitRunner measures committers of one kind.
type commitRunner struct {
	name string
	run  func(writers int) (commitRun, error)
}

// Writers measures durable one-key commits by one and by many goroutines at
// once, with the latency of each.
func Writers(c Config) (Table, error) {
	var t Table
	ours, err := c.shapeOf(Holdfast)
	if err != nil {
		return t, err
	}
	theirs, err := c.shapeOf(StockMap)
	if err != nil {
		return t, err
	}
	t.Title = fmt.Sprintf("Durable one-key commits, on a young file; one of Holdfast's writes %v, one of bbolt's (NoFreelistSync) %v", ours, theirs)
	var s committers
	defer s.drop()
	if err := s.openEngines(&c, slices.Concat(Engines, modeEngines), false); err != nil {
		return t, err
	}
	if err := s.openPeers(&c, true, ""); err != nil {
		return t, err
	}
	all := s.runners(c.Time)
	alone := []commitRunner{
		{ownFloor, func(int) (commitRun, error) { return c.bareCommits(ours, 1) }},
		{stockFloor, func(int) (commitRun, error) { return c.bareCommits(theirs, 2) }},
	}
	log := commitRunner{logFloor, c.bareLog}
	t.Columns = append(slices.Clone(s.names), ownFloor, stockFloor, logFloor)
	for _, n := range c.Writers {
		runners := append(slices.Clone(all), log)
		who := fmt.Sprintf("%d writers", n)
		if n == 1 { // right after Holdfast, as the disk changes its pace
			runners = slices.Insert(runners, 1+slices.Index(s.names, Holdfast.Name), alone...)
			who = "1 writer"
		}
		flush, err := bareFlush(c.Dir)
		if err != nil {
			return t, err
		}
		rates, p99, err := c.committing(&t, who, n, runners, flush)
		if err != nil {
			return t, err
		}
		t.writersTargets(n, who, rates, cellOf(p99[Holdfast.Name]).Median)
	}
	return t, nil
}

// committing adds the rows of n writers, who being written before each, and
// returns the rates and the 99th percentiles of each round.
func (c *Config) committing(t *Table, who string, n int, all []commitRunner, flush time.Duration) (rates, p99 map[string][]sample, err error) {
	rounds := newCommitRounds()
	var runners []runner
	for _, r := range all {
		runners = append(runners, runner{r.name, func() (sample, error) {
			run, err := r.run(n)
			if err != nil {
				return sample{}, err
			}
			rounds.add(r.name, run)
			return sample{run.rate, -1}, nil
		}})
	}
	c.logf("measuring: %s", who)
	if _, err = byTurns(c.Rounds, runners); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", who, err)
	}
	t.Rows = append(t.Rows, rounds.rows(who, flush)...)
	return rounds.rates, rounds.p99, nil
}

// commitRounds are samples of committers, one of each a round: commits a second, and the median and the 99th percentile of a
// commit.
type commitRounds struct{ rates, p50, p99 map[string][]sample }

func newCommitRounds() *commitRounds {
	return &commitRounds{map[string][]sample{}, map[string][]sample{}, map[string][]sample{}}
}

func (r *commitRounds) add(name string, run commitRun) {
	slices.Sort(run.times)
	r.rates[name] = append(r.rates[name], sample{run.rate, -1})
	r.p50[name] = append(r.p50[name], sample{float64(perMille(run.times, 500)), -1})
	r.p99[name] = append(r.p99[name], sample{float64(perMille(run.times, 990)), -1})
}

func (r *commitRounds) rows(who string, flush time.Duration) []Row {
	return []Row{
		{Workload: who + ": commits", Unit: "/s", More: true, Flush: flush, Cells: cellsOf(r.rates)},
		{Workload: who + ": `Update`, median", Unit: "ns", Cells: cellsOf(r.p50)},
		{Workload: who + ": `Update`, 99th percentile", Unit: "ns", Cells: cellsOf(r.p99)},
	}
}

// writersTargets adds what was promised of n writers.
func (t *Table) writersTargets(n int, who string, rates map[string][]sample, p99 float64) {
	const mostWriters, p99Limit = 64, 1500 * time.Microsecond
	name := who + ": durable one-key commits"
	ours := rates[Holdfast.Name]
	switch n {
	case 1:
		t.ratioAtLeast(name, ownFloor, ours, rates[ownFloor], 0.9)
		t.ratioAtLeast(name, StockDefault.Name, ours, rates[StockDefault.Name], 1.5)
	case mostWriters:
		t.ratioAtLeast(name, StockDefault.Name, ours, rates[StockDefault.Name], 20)
		t.atMost(who+": 99th percentile of `Update`", FormatDuration(p99Limit), p99, float64(p99Limit),
			FormatDuration(time.Duration(p99)))
		for _, peer := range t.Columns {
			if peer == pebbleName {
				t.ratioAtLeast(name, peer, ours, rates[peer], 1)
			}
		}
	}
}

// pebbleName is the peer that commits of many writers are to reach.
const pebbleName = "Pebble"
