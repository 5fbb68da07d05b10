package suite

import (
	"fmt"
	"math"
	"os"
	"time"
)

// shape is what a one-key commit hands to write calls.
type shape struct {
	bytes  int64 // whole pages
	writes int64 // calls, the one of the meta page included
}

func (s shape) String() string {
	return fmt.Sprintf("%s in %d calls", FormatBytes(float64(s.bytes)), s.writes)
}

// shapeOf counts what commits of the engine write, on a young file.
func (c *Config) shapeOf(e Engine) (shape, error) {
	const n = 200
	path, err := c.path("shape", e.Name)
	if err != nil {
		return shape{}, err
	}
	defer remove(path)
	s, err := e.Open(path, false)
	if err != nil {
		return shape{}, err
	}
	defer s.Close()
	keys, values := hundred()
	if err := s.Put(keys, values); err != nil {
		return shape{}, err
	}
	var before, after [2]int64
	if before, err = writes(); err != nil {
		return shape{}, err
	}
	for i := range n {
		if err := s.Put(keys[i%100:i%100+1], values[i%100:i%100+1]); err != nil {
			return shape{}, err
		}
	}
	if after, err = writes(); err != nil {
		return shape{}, err
	}
	pages := math.Round(float64(after[0]-before[0]) / n / pageSize)
	calls := math.Round(float64(after[1]-before[1]) / n)
	return shape{bytes: max(2, int64(pages)) * pageSize, writes: max(2, int64(calls))}, nil
}

// writes are the bytes handed to write calls, and the calls.
func writes() (w [2]int64, err error) {
	if w[0], err = Counter("wchar"); err == nil {
		w[1], err = Counter("syscw")
	}
	return w, err
}

const pageSize = 4096

// commitRun is what was measured of some committers.
type commitRun struct {
	rate  float64         // commits in a second
	times []time.Duration // of each
}

// bareCommits writes what commits of the shape write, to places that change, as
// theirs do: the meta page last. With two flushes one comes before the meta.
func (c *Config) bareCommits(s shape, flushes int) (commitRun, error) {
	const places = 4
	body := (s.bytes - pageSize) / pageSize // pages before the meta's
	f, err := c.scratch((2 + places*body) * pageSize)
	if err != nil {
		return commitRun{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	calls := min(s.writes-1, body)
	i := int64(0)
	return timed(c.Time, 1, func() error {
		i++
		for call := range calls {
			from, to := body*call/calls, body*(call+1)/calls
			at := 2 + i%places*body + from
			if _, err := f.WriteAt(noise[:(to-from)*pageSize], at*pageSize); err != nil {
				return err
			}
		}
		if flushes > 1 {
			if err := Fdatasync(f); err != nil {
				return err
			}
		}
		if _, err := f.WriteAt(noise[:pageSize], i%2*pageSize); err != nil {
			return err
		}
		return Fdatasync(f)
	})
}

// bareLog appends the records of n commits to a log, in one write with one
// flush: what commits cost at least to a program that keeps a log and flushes it for
// all that wait.
func (c *Config) bareLog(n int) (commitRun, error) {
	const record, size = 5 + 100 + 16, 4 << 20
	f, err := c.scratch(size)
	if err != nil {
		return commitRun{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	group, at := int64(n*record), int64(0)
	return timed(c.Time, n, func() error {
		if at+group > size {
			at = 0
		}
		if _, err := f.WriteAt(noise[:group], at); err != nil {
			return err
		}
		at += group
		return Fdatasync(f)
	})
}

// scratch is a file of its own with size bytes on the disk.
func (c *Config) scratch(size int64) (*os.File, error) {
	f, err := os.CreateTemp(c.Dir, "floor")
	if err != nil {
		return nil, err
	}
	for at := int64(0); at < size && err == nil; at += int64(len(noise)) {
		_, err = f.WriteAt(noise[:min(int64(len(noise)), size-at)], at)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	return f, nil
}

// timed repeats fn, which does n commits, for at least d.
func timed(d time.Duration, n int, fn func() error) (run commitRun, err error) {
	began := time.Now()
	for last := began; last.Sub(began) < d; {
		if err := fn(); err != nil {
			return run, err
		}
		now := time.Now()
		run.times = append(run.times, now.Sub(last))
		last = now
	}
	run.rate = float64(n*len(run.times)) / time.Since(began).Seconds()
	return run, nil
}
