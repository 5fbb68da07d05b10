package suite

import (
	"fmt"
	"runtime"
	"time"
)

// turn is how long one committer commits before the next one does, side by side: a disk, and a virtual processor, change their
// pace over tens of milliseconds.
const turn = time.Millisecond

// sideBySide lets one writer commit single keys to each of the databases in turns of a millisecond or of one commit, until each had
// at least d. It finds differences of some hundredths, which are less than what the disk changes between longer measurements
// one after the other. The first turn of a round goes to another database each round.
func (s *committers) sideBySide(d time.Duration, round int, next *int) ([]commitRun, error) {
	keys, _ := hundred()
	runs, took := make([]commitRun, len(s.stores)), make([]time.Duration, len(s.stores))
	for least := time.Duration(0); least < d; least += turn {
		for i := range s.stores {
			i = (i + round) % len(s.stores)
			run, err := timed(turn, 1, func() error {
				*next++
				return s.stores[i].Commit(keys[*next%len(keys)], valueOf(*next))
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.names[i], err)
			}
			runs[i].times = append(runs[i].times, run.times...)
			for _, t := range run.times {
				took[i] += t
			}
		}
	}
	for i := range runs {
		runs[i].rate = float64(len(runs[i].times)) / took[i].Seconds()
	}
	return runs, nil
}

// committingSideBySide is committing of one writer, with the databases side by side. It returns the rates of each round.
func (c *Config) committingSideBySide(t *Table, who string, s *committers, flush time.Duration) (map[string][]sample, error) {
	c.logf("measuring: %s", who)
	rounds, next := newCommitRounds(), firstValue
	for round := range c.Rounds {
		runtime.GC()
		runs, err := s.sideBySide(c.Time, round, &next)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", who, err)
		}
		for i, run := range runs {
			rounds.add(s.names[i], run)
		}
	}
	t.Rows = append(t.Rows, rounds.rows(who, flush)...)
	return rounds.rates, nil
}
