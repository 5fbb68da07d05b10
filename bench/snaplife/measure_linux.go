package snaplife

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"

	"holdfast/bench/age"
	"holdfast/bench/suite"
)

// reads is how many snapshots are asked for in a round.
const reads = 2000

// age replays the days up to a measured one.
func (st *stand) age(ctx context.Context, life *Life, days int) error {
	for range days {
		before, began := st.ops, time.Now()
		if err := life.Day(func(op Op) error { return st.do(ctx, op) }); err != nil {
			return fmt.Errorf("day %d: %w", life.day, err)
		}
		st.samples.Add(AgeRate, float64(st.ops-before)/time.Since(began).Seconds())
	}
	return nil
}

// reopen closes the store, and measures how long it takes until it is open and has found a snapshot.
func (st *stand) reopen(ctx context.Context, name string) error {
	if err := st.close(); err != nil {
		return fmt.Errorf("closing it: %w", err)
	}
	runtime.GC()
	began := time.Now()
	if err := st.open(); err != nil {
		return err
	}
	if _, err := st.s.Stat(ctx, name); err != nil {
		return fmt.Errorf("after opening it: %w", err)
	}
	st.samples.Add(Open, float64(time.Since(began)))
	return nil
}

// sizes measures the disk space.
func (st *stand) sizes() error {
	info, err := os.Stat(filepath.Join(st.root, metadataFile))
	if err != nil {
		return err
	}
	all, err := age.Allocated(st.root)
	if err != nil {
		return err
	}
	st.samples.Add(Metadata, float64(suite.DiskBytes(info)))
	st.samples.Add(Size, float64(all))
	return nil
}

// times are how long operations took, by the IDs of measures.
type times map[string][]time.Duration

// of calls fn, and adds how long it took.
func (t times) of(ctx context.Context, id string, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	if err := fn(); err != nil {
		return fmt.Errorf("measuring %s: %w", id, err)
	}
	t[id] = append(t[id], time.Since(began))
	return nil
}

// round measures steps on a snapshot, which it removes again, and reading what the model has.
func (st *stand) round(ctx context.Context, n int, on string, m Model) error {
	runtime.GC()
	floor, err := age.Bare(filepath.Dir(st.root), slices.Repeat([]int{os.Getpagesize()}, n))
	if err != nil {
		return fmt.Errorf("measuring the floor: %w", err)
	}
	st.samples.Add(Floor, floor[n/2])
	all := times{}
	if err := st.writes(ctx, n, on, all); err != nil {
		return err
	}
	for id, list := range all {
		slices.Sort(list)
		st.samples.Add(id, float64(list[len(list)/2]))
	}
	return st.reads(ctx, m)
}

// writes measures what changes the metadata, n times each.
func (st *stand) writes(ctx context.Context, n int, on string, all times) error {
	steps := make([]string, n)
	for i := range steps {
		steps[i] = layerName("measured %d", i)
		var took stepTimes
		if err := all.of(ctx, Step, func() (err error) {
			took, err = st.step(ctx, steps[i], on)
			return err
		}); err != nil {
			return err
		}
		all[Prepare], all[Commit] = append(all[Prepare], took.prepare), append(all[Commit], took.commit)
	}
	for i := range steps {
		if err := all.of(ctx, Cycle, func() error { return st.cycle(ctx, fmt.Sprint("measured ", i), on) }); err != nil {
			return err
		}
	}
	if err := st.sweep(ctx); err != nil {
		return fmt.Errorf("sweeping: %w", err)
	}
	began := time.Now()
	for _, name := range steps {
		if err := all.of(ctx, Remove, func() error { return st.s.Remove(ctx, name) }); err != nil {
			return err
		}
	}
	if err := st.sweep(ctx); err != nil {
		return fmt.Errorf("sweeping: %w", err)
	}
	st.samples.Add(Prune, float64(time.Since(began))/float64(n))
	return nil
}

// reads measures reading the metadata.
func (st *stand) reads(ctx context.Context, m Model) error {
	rng := rand.New(rand.NewPCG(3, uint64(len(m))))
	names := m.Names(Committed)
	for id, fn := range map[string]func(name string) error{
		Stat:  func(name string) error { _, err := st.s.Stat(ctx, name); return err },
		Usage: func(name string) error { _, err := st.s.Usage(ctx, name); return err },
	} {
		began := time.Now()
		for range reads {
			name := names[rng.IntN(len(names))]
			if err := fn(name); err != nil {
				return fmt.Errorf("%s of %q: %w", id, name, err)
			}
		}
		st.samples.Add(id, float64(time.Since(began))/reads)
	}
	began, n := time.Now(), 0
	for range max(reads/len(m), 1) {
		if err := st.s.Walk(ctx, func(context.Context, snapshots.Info) error { n++; return nil }); err != nil {
			return fmt.Errorf("walking: %w", err)
		}
	}
	st.samples.Add(Walk, float64(time.Since(began))/float64(n))
	return nil
}
