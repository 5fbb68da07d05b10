package suite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// keyOf is key i of the large database.
func keyOf(i int) []byte { return fmt.Appendf(nil, "key%08d", i) }

// noise are incompressible bytes from which values are cut.
var noise = func() []byte {
	r := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

// valueOf are 100 bytes.
func valueOf(i int) []byte {
	at := i * 101 % (len(noise) - 100)
	return noise[at : at+100 : at+100]
}

// someKeys are n random keys of the first total.
func someKeys(total, n int, seed uint64) [][]byte {
	r := rand.New(rand.NewPCG(seed, 5))
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = keyOf(r.IntN(total))
	}
	return keys
}

// loadOrder are the numbers of n keys, in the order in which they are loaded.
func loadOrder(n int, shuffled bool) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if shuffled {
		rand.New(rand.NewPCG(6, 7)).Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return order
}

// load puts the keys into an empty database, transactionSize at a time, and
// flushes it.
func load(s Store, n int, shuffled bool) error {
	const transactionSize = 10_000
	order := loadOrder(n, shuffled)
	keys, values := make([][]byte, 0, transactionSize), make([][]byte, 0, transactionSize)
	for part := range slices.Chunk(order, transactionSize) {
		keys, values = keys[:0], values[:0]
		for _, i := range part {
			keys, values = append(keys, keyOf(i)), append(values, valueOf(i))
		}
		if err := s.Put(keys, values); err != nil {
			return err
		}
	}
	return s.Sync()
}

// loaded opens a database with n keys for each engine. drop closes and removes
// them.
func (c *Config) loaded(engines []Engine, n int, noSync bool) (stores []Store, drop func(), err error) {
	var paths []string
	drop = func() {
		for i, s := range stores {
			_ = s.Close()
			remove(paths[i])
		}
	}
	for _, e := range engines {
		path, err := c.path("keys", e.Name)
		if err != nil {
			return nil, drop, err
		}
		c.logf("loading %d keys into %s", n, e.Name)
		s, err := e.Open(path, true)
		if err == nil {
			err = load(s, n, false)
		}
		if err == nil {
			err = s.Close()
		}
		if err == nil {
			s, err = e.Open(path, noSync)
		}
		if err != nil {
			return nil, drop, fmt.Errorf("%s: %w", e.Name, err)
		}
		stores, paths = append(stores, s), append(paths, path)
	}
	return stores, drop, nil
}

// bareFlush is the time that a write of one page with one flush takes in dir.
func bareFlush(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "flush")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	times := make([]float64, 40)
	for i := range times {
		began := time.Now()
		if _, err := f.WriteAt(noise[:4096], 0); err != nil {
			return 0, err
		}
		if err := Fdatasync(f); err != nil {
			return 0, err
		}
		times[i] = float64(time.Since(began))
	}
	slices.Sort(times)
	return time.Duration(median(times)), nil
}
