//go:build linux

// Command bench-snapshots measures cycles of prepare, commit and remove beside containerd's
// overlay snapshotter, with few snapshots and with many, with one client and with twenty. All
// stores stand side by side in one directory, and are measured interleaved.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	theirerofs "github.com/containerd/containerd/v2/plugins/snapshots/erofs"
	theirs "github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/log"

	"holdfast"
	"holdfast/worker/containerd"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
)

// contender is a kind of snapshotter.
type contender struct {
	name string
	open func(root string) (snapshots.Snapshotter, func() error, error)

	// few: it is measured with few snapshots only. Each layer of erofs is an image, and making so many
	// of them takes minutes.
	few bool
}

func holdfastStore(o snapshot.Options) func(string) (snapshots.Snapshotter, func() error, error) {
	return func(root string) (snapshots.Snapshotter, func() error, error) {
		if o.Driver == nil {
			o.Driver = overlay.New()
		}
		store, err := snapshot.Open(root, o)
		if err != nil {
			return nil, nil, err
		}
		namespace, err := store.Namespace("bench")
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		return containerd.New(namespace), store.Close, nil
	}
}

func containerdStore(opts ...theirs.Opt) func(string) (snapshots.Snapshotter, func() error, error) {
	return func(root string) (snapshots.Snapshotter, func() error, error) {
		s, err := theirs.NewSnapshotter(root, opts...)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	}
}

func containerdErofs(root string) (snapshots.Snapshotter, func() error, error) {
	s, err := theirerofs.NewSnapshotter(root)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

const (
	ours  = "holdfast"
	peer  = "containerd overlay"
	async = "containerd overlay, async_remove"
)

var contenders = []contender{
	{name: ours, open: holdfastStore(snapshot.Options{})},
	{name: "holdfast, SyncDeferred", open: holdfastStore(snapshot.Options{Sync: snapshot.SyncDeferred})},
	{name: "holdfast, SyncDeferred, Periodic", open: holdfastStore(snapshot.Options{Sync: snapshot.SyncDeferred, Durability: holdfast.Periodic})},
	{name: peer, open: containerdStore()},
	{name: async, open: containerdStore(theirs.AsynchronousRemove)},
	{name: "holdfast erofs", open: holdfastStore(snapshot.Options{Driver: erofs.New()}), few: true},
	{name: "containerd erofs", open: containerdErofs, few: true},
}

// stand is a contender with a number of snapshots.
type stand struct {
	contender
	count int
	root  string
	s     snapshots.Snapshotter
	close func() error
	runs  map[int][]result // by clients
	opens []time.Duration
}

// result is one run.
type result struct {
	CyclesPerSecond                                   float64
	Prepare, Commit, Remove, RemoveP99, RemoveLongest time.Duration
}

const (
	few         = 10                     // the small number of snapshots
	removeLimit = 300 * time.Microsecond // that Remove is meant to take
	openLimit   = 100 * time.Millisecond // and opening a store until it has answered
)

var (
	dir     = flag.String("dir", "", "directory for the stores; a temporary one if it is empty")
	many    = flag.Int("n", 33787, "the large number of snapshots")
	seconds = flag.Float64("seconds", 2, "length of a run")
	rounds  = flag.Int("rounds", 4, "runs of each; in every other one the stores are in reverse order")
	asJSON  = flag.Bool("json", false, "results as JSON")
	only    = flag.String("only", "", "regular expression: contenders whose name matches, and no others")
	verbose = flag.Bool("v", false, "say what is done")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-snapshots:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root: overlay layers have trusted attributes")
	}
	if err := log.SetLevel("warn"); err != nil {
		return err
	}
	root := *dir
	if root == "" {
		if root, err = os.MkdirTemp("", "bench-snapshots-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var stands []*stand
	for i, c := range contenders {
		for _, count := range []int{few, *many} {
			if !wanted.MatchString(c.name) || c.few && count != few {
				continue
			}
			st := &stand{contender: c, count: count, runs: map[int][]result{}, root: filepath.Join(root, fmt.Sprintf("%d-%d", i, count))}
			if err := st.prepare(); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			defer func() { err = errors.Join(err, st.close()) }()
			stands = append(stands, st)
		}
	}
	for round := range *rounds {
		for _, clients := range []int{1, 20} {
			order := slices.Clone(stands)
			if round%2 == 1 { // what one has deleted may slow down the next: see bench/results/worker.md
				slices.Reverse(order)
			}
			for _, st := range order {
				r, err := st.measure(round, clients)
				if err != nil {
					return fmt.Errorf("%s: %w", st.name, err)
				}
				st.runs[clients] = append(st.runs[clients], r)
			}
		}
	}
	for range 5 {
		for _, st := range stands {
			if err := st.reopen(); err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
		}
	}
	return report(stands)
}

// prepare opens the store and fills it, with chains of eight on one base.
func (st *stand) prepare() (err error) {
	ctx := context.Background()
	began := time.Now()
	if err := os.MkdirAll(st.root, 0o700); err != nil {
		return err
	}
	if st.s, st.close, err = st.open(st.root); err != nil {
		return err
	}
	if _, err := st.s.Stat(ctx, "base"); err == nil {
		return nil // from an earlier run
	}
	if err := st.layer(ctx, "base", ""); err != nil {
		return err
	}
	var next atomic.Int64
	err = each(20, func(int) error {
		for {
			chain := int(next.Add(8)) - 8
			if chain >= st.count-1 {
				return nil
			}
			parent := "base"
			for i := chain; i < min(chain+8, st.count-1); i++ {
				if err := st.layer(ctx, fmt.Sprint("old ", i), parent); err != nil {
					return err
				}
				parent = fmt.Sprint("old ", i)
			}
		}
	})
	if *verbose {
		fmt.Fprintf(os.Stderr, "%s: %d snapshots in %v\n", st.name, st.count, time.Since(began))
	}
	return err
}

func (st *stand) layer(ctx context.Context, name, parent string) error {
	if _, err := st.s.Prepare(ctx, name+" active", parent); err != nil {
		return err
	}
	return st.s.Commit(ctx, name, name+" active")
}

// each runs fn for n clients at once.
func each(n int, fn func(client int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// measure runs cycles for some time.
func (st *stand) measure(round, clients int) (result, error) {
	ctx := context.Background()
	times := make([][3][]time.Duration, clients)
	began := time.Now()
	until := began.Add(time.Duration(*seconds * float64(time.Second)))
	err := each(clients, func(c int) error {
		for k := 0; time.Now().Before(until); k++ {
			key := fmt.Sprintf("active %d %d %d", round, c, k)
			name := fmt.Sprintf("new %d %d %d", round, c, k)
			for i, step := range []func() error{
				func() error { _, err := st.s.Prepare(ctx, key, "base"); return err },
				func() error { return st.s.Commit(ctx, name, key) },
				func() error { return st.s.Remove(ctx, name) },
			} {
				began := time.Now()
				if err := step(); err != nil {
					return err
				}
				times[c][i] = append(times[c][i], time.Since(began))
			}
		}
		return nil
	})
	took := time.Since(began)
	if err != nil {
		return result{}, err
	}
	var all [3][]time.Duration
	for _, t := range times {
		for i := range all {
			all[i] = append(all[i], t[i]...)
		}
	}
	for i := range all {
		slices.Sort(all[i])
	}
	n := len(all[2])
	r := result{CyclesPerSecond: float64(n) / took.Seconds(), Prepare: all[0][n/2], Commit: all[1][n/2],
		Remove: all[2][n/2], RemoveP99: all[2][n*99/100], RemoveLongest: all[2][n-1]}
	// What was put off is done before the next one begins, and counts for none.
	if c, ok := st.s.(snapshots.Cleaner); ok {
		if err := c.Cleanup(ctx); err != nil {
			return result{}, err
		}
	}
	return r, nil
}

// reopen closes the store, and measures how long it takes until it is open and has answered.
func (st *stand) reopen() error {
	if err := st.close(); err != nil {
		return err
	}
	st.close = func() error { return nil } // if it cannot be opened again
	ctx, began := context.Background(), time.Now()
	s, closeIt, err := st.open(st.root)
	if err != nil {
		return err
	}
	st.s, st.close = s, closeIt
	if _, err := st.s.Stat(ctx, "base"); err != nil {
		return err
	}
	if _, err := st.s.Prepare(ctx, "first", "base"); err != nil {
		return err
	}
	st.opens = append(st.opens, time.Since(began))
	if err := st.s.Remove(ctx, "first"); err != nil {
		return err
	}
	if c, ok := st.s.(snapshots.Cleaner); ok {
		return c.Cleanup(ctx)
	}
	return nil
}

// median is the mean of the middle two if there is an even number of them.
func median[T time.Duration | float64](list []result, of func(result) T) T {
	values := make([]T, len(list))
	for i, r := range list {
		values[i] = of(r)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func report(stands []*stand) error {
	if *asJSON {
		type line struct {
			Name               string
			Snapshots, Clients int
			Runs               []result
			Opens              []time.Duration
		}
		var lines []line
		for _, st := range stands {
			for clients, runs := range st.runs {
				lines = append(lines, line{st.name, st.count, clients, runs, st.opens})
			}
		}
		return json.NewEncoder(os.Stdout).Encode(lines)
	}
	duration := func(of func(result) time.Duration) func([]result) time.Duration {
		return func(list []result) time.Duration {
			return median(list, of).Round(time.Microsecond)
		}
	}
	fmt.Printf("Medians of %d runs of %v s\n", *rounds, *seconds)
	for _, clients := range []int{1, 20} {
		fmt.Printf("\n%-34s %9s %10s %10s %10s %10s %10s   %d clients\n", "", "snapshots", "cycles/s", "prepare", "commit", "remove", "p99", clients)
		for _, st := range stands {
			runs := st.runs[clients]
			fmt.Printf("%-34s %9d %10.0f %10v %10v %10v %10v\n", st.name, st.count,
				median(runs, func(r result) float64 { return r.CyclesPerSecond }),
				duration(func(r result) time.Duration { return r.Prepare })(runs),
				duration(func(r result) time.Duration { return r.Commit })(runs),
				duration(func(r result) time.Duration { return r.Remove })(runs),
				duration(func(r result) time.Duration { return r.RemoveP99 })(runs))
		}
	}
	fmt.Printf("\n%-34s %9s %10s %10s   opened, until it has answered and prepared a snapshot; closed before\n", "", "snapshots", "median", "longest")
	for _, st := range stands {
		slices.Sort(st.opens)
		fmt.Printf("%-34s %9d %10v %10v\n", st.name, st.count, st.opens[len(st.opens)/2].Round(time.Microsecond), st.opens[len(st.opens)-1].Round(time.Microsecond))
	}
	targets(stands)
	return nil
}

// targets says which are met.
func targets(stands []*stand) {
	cycles := func(name string, count int) float64 {
		for _, st := range stands {
			if st.name == name && st.count == count {
				return median(st.runs[20], func(r result) float64 { return r.CyclesPerSecond })
			}
		}
		return 0
	}
	say := func(met bool, format string, args ...any) {
		word := "met"
		if !met {
			word = "NOT met"
		}
		fmt.Printf(format+": %s\n", append(args, word)...)
	}
	fmt.Println()
	large, small, theirs := cycles(ours, *many), cycles(ours, few), cycles(peer, few)
	say(large >= theirs, "20 clients, cycles a second with %d snapshots: %.0f, at least the %.0f of %s with %d", *many, large, theirs, peer, few)
	say(large >= 0.9*small, "and as many as with %d, within a tenth: %.0f and %.0f", few, large, small)
	for _, st := range stands {
		if st.name == ours {
			d := median(st.runs[1], func(r result) time.Duration { return r.Remove })
			say(st.opens[len(st.opens)-1] <= openLimit, "opened with %d snapshots: %v at most, at most %v", st.count, st.opens[len(st.opens)-1].Round(time.Microsecond), openLimit)
			say(d <= removeLimit, "remove with %d snapshots: %v, at most %v", st.count, d.Round(time.Microsecond), removeLimit)
		}
	}
}
