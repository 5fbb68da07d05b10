package age

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"holdfast/bench/age/trace"
)

// childVariable has, in the environment of a child, its job as JSON.
const childVariable = "HOLDFAST_AGE_CHILD"

// What a child does.
const (
	doAge     = "age"     // replays the days of a stretch
	doOpen    = "open"    // opens the store and commits once
	doMeasure = "measure" // does the same, and measures all else
)

// job is what a child is to do.
type job struct {
	Do       string
	Peer     string
	Dir      string
	Config   Config
	Stretch  int // from 0
	From, To int // days: those after From up to To
	Process  int // of those that open the store, from 0
	Want     Contents
}

// RunChild does not return in a process that Run has started. A program, or a test binary, that
// calls Run calls it before anything else, with the same peers and traces.
func RunChild(peers []Peer, traces func() ([]*trace.Trace, error)) {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	signal.Ignore(os.Interrupt) // from the terminal: the process that has started this one ends it
	samples, err := runChild(text, peers, traces)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(samples)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild(text string, peers []Peer, traces func() ([]*trace.Trace, error)) (Samples, error) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return nil, fmt.Errorf("%s: %w", childVariable, err)
	}
	i := slices.IndexFunc(peers, func(p Peer) bool { return p.Name == j.Peer })
	if i < 0 {
		return nil, fmt.Errorf("there is no peer %q", j.Peer)
	}
	all, err := traces()
	if err != nil {
		return nil, err
	}
	c := child{job: j, peer: peers[i], life: NewLife(j.Config, all), samples: Samples{}}
	switch j.Do {
	case doAge:
		err = c.age()
	case doOpen:
		err = c.open()
	case doMeasure:
		err = c.measure()
	default:
		err = fmt.Errorf("there is no job %q", j.Do)
	}
	if c.store != nil {
		err = errors.Join(err, c.store.Close())
	}
	return c.samples, err
}

type child struct {
	job
	peer    Peer
	life    *Life
	store   Store
	samples Samples
	aged    int // transactions
}

// age replays the days of a stretch, without flushes.
func (c *child) age() error {
	for range c.From {
		c.life.Skip()
	}
	moved, known, err := trafficOf(func() (err error) {
		if c.store, err = c.peer.Open(c.Dir, true); err != nil {
			return fmt.Errorf("opening it: %w", err)
		}
		if err := c.days(); err != nil {
			return err
		}
		if err := c.store.Sync(); err != nil {
			return fmt.Errorf("flushing it: %w", err)
		}
		store := c.store
		c.store = nil
		if err := store.Close(); err != nil {
			return fmt.Errorf("closing it: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if known {
		c.samples.Add(AgeWrites, moved.written/float64(c.aged))
	}
	return nil
}

// days removes what was measured before, and replays the days.
func (c *child) days() error {
	var took time.Duration
	apply := func(tx []Op) error {
		began := time.Now()
		err := c.store.Apply(tx)
		took += time.Since(began)
		c.aged++
		return err
	}
	if c.Stretch > 0 {
		if err := c.life.undo(c.Stretch-1, apply); err != nil {
			return fmt.Errorf("removing what was measured: %w", err)
		}
	}
	for range c.To - c.From {
		before := c.aged
		took = 0
		if err := c.life.Day(apply); err != nil {
			return err
		}
		c.samples.Add(AgeRate, float64(c.aged-before)/took.Seconds())
		if s, ok := c.store.(Nightly); ok {
			if err := s.Night(); err != nil {
				return fmt.Errorf("the night after day %d: %w", c.life.day, err)
			}
		}
	}
	return nil
}

// open opens the store and commits a key.
func (c *child) open() (err error) {
	first := c.life.first(c.Stretch, c.Process)
	began := time.Now()
	if c.store, err = c.peer.Open(c.Dir, false); err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	c.samples.Add(Open, float64(time.Since(began)))
	began = time.Now()
	if err := c.store.Apply(first); err != nil {
		return fmt.Errorf("the first commit: %w", err)
	}
	c.samples.Add(First, float64(time.Since(began)))
	return nil
}
