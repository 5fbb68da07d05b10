// Package soak says which random histories a test runs, and cuts those that
// fail down.
//
//	HOLDFAST_SEED=n       the history of seed n alone
//	HOLDFAST_HISTORIES=n  n histories, from HOLDFAST_SEED on if that is set
//	HOLDFAST_SOAK=10m     histories for that long
package soak

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Duration is how long histories are to be run, 0 for an ordinary run.
func Duration(t testing.TB) time.Duration {
	t.Helper()
	s := os.Getenv("HOLDFAST_SOAK")
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		t.Fatalf("HOLDFAST_SOAK=%s is not a duration such as 10m", s)
	}
	return d
}

// Seeds are those of an ordinary run: n of them from first on, unless the
// environment says otherwise; chosen says whether it does.
func Seeds(t testing.TB, first uint64, n int) (seeds []uint64, chosen bool) {
	t.Helper()
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		first, n, chosen = number(t, "HOLDFAST_SEED", s), 1, true
	}
	if s := os.Getenv("HOLDFAST_HISTORIES"); s != "" {
		n, chosen = int(number(t, "HOLDFAST_HISTORIES", s)), true
	}
	for i := range n {
		seeds = append(seeds, first+uint64(i))
	}
	return seeds, chosen
}

func number(t testing.TB, name, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s is not a number", name, s)
	}
	return n
}

// Tally counts things by name. Its methods may be called concurrently.
type Tally struct {
	mu     sync.Mutex
	counts map[string]int
	names  []string // in the order in which they came
}

// Add adds one to each name.
func (c *Tally) Add(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if _, ok := c.counts[name]; !ok {
			if c.counts == nil {
				c.counts = map[string]int{}
			}
			c.names = append(c.names, name)
		}
		c.counts[name]++
	}
}

// Get is the count of name.
func (c *Tally) Get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

// String lists all counts.
func (c *Tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s []string
	for _, name := range c.names {
		s = append(s, fmt.Sprintf("%s %d", name, c.counts[name]))
	}
	return strings.Join(s, ", ")
}

// every is how often a long run says how far it is.
const every = 30 * time.Second

// For calls one with seeds from first on for as long as d, on all processors at
// once, until a call returns false. Each call begins before the end and is
// waited for. progress is written to w every 30 s.
func For(d time.Duration, first uint64, w io.Writer, progress func() string, one func(seed uint64) bool) {
	var (
		mu     sync.Mutex
		next   = first
		failed bool
		begin  = time.Now()
		said   = begin
	)
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if failed || now.Sub(begin) >= d {
			return 0, false
		}
		if now.Sub(said) >= every {
			said = now
			fmt.Fprintf(w, "%v of %v, %d histories: %s\n", now.Sub(begin).Round(time.Second), d, next-first, progress())
		}
		next++
		return next - 1, true
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				if !one(seed) {
					mu.Lock()
					failed = true
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	fmt.Fprintf(w, "%v, %d histories: %s\n", time.Since(begin).Round(time.Second), next-first, progress())
}
