package age

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"holdfast/bench/suite"
)

// measure measures all that a process measures of an open store, and sees that it holds what it should.
func (c *child) measure() error {
	if err := c.open(); err != nil {
		return err
	}
	if err := c.commits(); err != nil {
		return err
	}
	memory(c.samples)
	keys, err := c.verify()
	if err != nil {
		return err
	}
	for range c.Config.Rounds {
		if err := c.gets(keys); err != nil {
			return err
		}
		if err := c.scan(); err != nil {
			return err
		}
	}
	return nil
}

// commits measures durable commits in rounds, each after a round of their floor.
func (c *child) commits() error {
	for round := range c.Config.Rounds {
		txs := c.life.round(c.Stretch, round)
		runtime.GC()
		floor, err := Bare(c.Dir, sizes(txs))
		if err != nil {
			return fmt.Errorf("measuring the floor: %w", err)
		}
		var times []float64
		var took time.Duration
		moved, known, err := trafficOf(func() (err error) {
			began := time.Now()
			times, err = timed(txs, c.store.Apply)
			took = time.Since(began)
			return err
		})
		if err != nil {
			return fmt.Errorf("round %d of commits: %w", round, err)
		}
		n := float64(len(txs))
		c.samples.Add(Rate, n/took.Seconds())
		c.samples.Add(P50, times[len(times)/2])
		c.samples.Add(P99, times[len(times)*99/100])
		c.samples.Add(FloorRate, 1e9/mean(floor))
		c.samples.Add(FloorP50, floor[len(floor)/2])
		c.samples.Add(FloorP99, floor[len(floor)*99/100])
		c.samples.Add(OverFloor, times[len(times)/2]/floor[len(floor)/2])
		if known {
			c.samples.Add(Written, moved.written/n)
			c.samples.Add(Read, moved.read/n)
		}
	}
	return nil
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / float64(len(all))
}

// timed calls do with each of the list, and returns what each took in ns, the shortest first.
func timed[T any](list []T, do func(T) error) ([]float64, error) {
	times := make([]float64, len(list))
	for i, v := range list {
		began := time.Now()
		if err := do(v); err != nil {
			return nil, err
		}
		times[i] = float64(time.Since(began))
	}
	slices.Sort(times)
	return times, nil
}

// sizes are the bytes of keys and values of each transaction.
func sizes(txs [][]Op) []int {
	all := make([]int, len(txs))
	for i, tx := range txs {
		for _, op := range tx {
			all[i] += len(op.Key) + len(op.Value)
		}
	}
	return all
}

// Bare writes as many bytes as each of sizes says to a file in dir that has the space, and flushes it after each. It returns what each
// took in ns, the shortest first: a floor of what is durable. There must be a size.
func Bare(dir string, sizes []int) (times []float64, err error) {
	f, err := os.CreateTemp(dir, "floor")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	data := make([]byte, max(slices.Max(sizes), 1)) // the floor's, too
	const places = 8
	for range places {
		if _, err := f.Write(data); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	i := 0
	return timed(sizes, func(size int) error {
		i++
		if _, err := f.WriteAt(data[:max(size, 1)], int64(i%places*len(data))); err != nil {
			return err
		}
		return suite.Fdatasync(f)
	})
}

// verify compares what is in the store with the model, and returns random keys.
func (c *child) verify() ([]Op, error) {
	var got Contents
	rng := rand.New(rand.NewPCG(1, uint64(c.To)))
	sample := make([][]byte, 0, c.Config.Gets)
	err := c.store.Walk(func(flat, value []byte) error {
		got.Add(flat, value)
		if len(sample) < cap(sample) {
			sample = append(sample, slices.Clone(flat))
		} else if i := rng.IntN(got.Keys); i < len(sample) {
			sample[i] = append(sample[i][:0], flat...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading all keys: %w", err)
	}
	if got != c.Want {
		return nil, fmt.Errorf("after day %d it holds %d keys (checksum %016x); the life leaves %d (checksum %016x)", c.To, got.Keys, got.Sum, c.Want.Keys, c.Want.Sum)
	}
	rng.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
	keys := make([]Op, len(sample))
	for i, flat := range sample {
		if keys[i], err = Split(flat); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// gets measures reading the keys.
func (c *child) gets(keys []Op) error {
	runtime.GC()
	began := time.Now()
	for i := range keys {
		if _, err := c.store.Get(&keys[i]); err != nil {
			return fmt.Errorf("reading the key %q: %w", keys[i].Key, err)
		}
	}
	c.samples.Add(Get, float64(time.Since(began))/float64(len(keys)))
	return nil
}

// scan measures reading all.
func (c *child) scan() error {
	runtime.GC()
	began := time.Now()
	n, err := c.store.Scan()
	took := time.Since(began)
	if err == nil && n != c.Want.Keys {
		err = fmt.Errorf("%d keys were found of %d", n, c.Want.Keys)
	}
	if err != nil {
		return fmt.Errorf("scanning: %w", err)
	}
	c.samples.Add(Scan, float64(took)/float64(n))
	return nil
}

// Allocated is how much of the disk the files in dir take.
func Allocated(dir string) (n int64, err error) {
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += suite.DiskBytes(info)
		}
		return err
	})
	return n, err
}
