// Command bench-prune measures what pruning costs those who work meanwhile: a store is filled, clients
// prepare and commit snapshots on it, one after the other alone, while a part of the store is pruned, and
// while its trees are deleted; then it waits for metadata.db to become shorter.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/overlay"
)

var (
	dir      = flag.String("dir", "", "directory for the store; a temporary one if it is empty")
	many     = flag.Int("n", 33787, "snapshots")
	goes     = flag.Int("prune", 28000, "how many of them are pruned")
	clients  = flag.Int("clients", 4, "clients that work meanwhile")
	rounds   = flag.Int("rounds", 14, "in how many pieces")
	idle     = flag.Duration("idle", time.Second, "how long they work alone before each")
	hold     = flag.Duration("hold", 0, "prune.Options.Hold; 0: its default")
	deferred = flag.Bool("deferred", false, "SyncDeferred in place of SyncCommit")
	plain    = flag.Bool("plain", os.Geteuid() != 0, "driver copy in place of overlay, which needs root")
	asJSON   = flag.Bool("json", false, "results as JSON")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-prune:", err)
		os.Exit(1)
	}
}

// spread is of a number of durations.
type spread struct {
	N                    int
	Median, P99, Longest time.Duration
}

func spreadOf(d []time.Duration) spread {
	if len(d) == 0 {
		return spread{}
	}
	slices.Sort(d)
	return spread{len(d), d[len(d)/2], d[len(d)*99/100], d[len(d)-1]}
}

// result is everything.
type result struct {
	Driver             string
	Snapshots, Clients int
	Filled             time.Duration

	StepIdle, StepPruning, StepDeleting       spread // prepare, commit
	CommitIdle, CommitPruning, CommitDeleting spread

	DryRun, Run, Delete, Shrink time.Duration
	Pruned                      int64
	Transactions                int
	PerSnapshot, Longest        time.Duration // metadata: planned and written; one transaction
	WriterPerSnapshot           time.Duration // of that, time without the writer lock for others
	SizeFull, SizeBefore        int64         // of metadata.db: full, and when the clients have ended
	SizeAfter                   int64

	steps, commits [3][]time.Duration // by phase
	held           time.Duration
}

func run() (err error) {
	root := *dir
	if root == "" {
		if root, err = os.MkdirTemp("", "bench-prune-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	}
	o := snapshot.Options{Driver: overlay.New()}
	if *plain {
		o.Driver = copy.New()
	}
	if *deferred {
		o.Sync = snapshot.SyncDeferred
	}
	store, err := snapshot.Open(root, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	r := result{Driver: o.Driver.Name(), Snapshots: *many, Clients: *clients}
	if err := r.measure(store); err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	r.print()
	return nil
}

func (r *result) measure(store *snapshot.Store) error {
	ctx := context.Background()
	namespace, err := store.Namespace("bench")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fill(ctx, namespace); err != nil {
		return err
	}
	r.Filled = time.Since(began)
	w := start(ctx, namespace)
	defer w.end()
	time.Sleep(time.Second) // to warm up
	r.SizeFull = size(store)
	for round := range *rounds {
		if err := r.round(ctx, store, w, *goes*(round+1)/(*rounds)-*goes*round/(*rounds)); err != nil {
			return err
		}
	}
	if err := w.end(); err != nil {
		return err
	}
	r.SizeBefore = size(store)
	r.StepIdle, r.StepPruning, r.StepDeleting = spreadOf(r.steps[0]), spreadOf(r.steps[1]), spreadOf(r.steps[2])
	r.CommitIdle, r.CommitPruning, r.CommitDeleting = spreadOf(r.commits[0]), spreadOf(r.commits[1]), spreadOf(r.commits[2])
	r.WriterPerSnapshot = r.held / time.Duration(max(r.Pruned, 1))
	r.PerSnapshot = (r.held + r.DryRun) / time.Duration(max(r.Pruned, 1))
	if err := store.Cleanup(ctx); err != nil {
		return err
	}
	r.shrink(store)
	return nil
}

// Phases of a round.
const (
	alone = iota
	pruning
	deleting
)

// collect adds what the clients have done in a phase that is over.
func (r *result) collect(w *work, phase int) {
	steps, commits := w.take()
	r.steps[phase] = append(r.steps[phase], steps...)
	r.commits[phase] = append(r.commits[phase], commits...)
}

// round has the clients work alone, then while n are pruned, then while their trees are deleted. Rounds
// follow each other, so that a machine which has other work disturbs all phases alike.
func (r *result) round(ctx context.Context, store *snapshot.Store, w *work, n int) error {
	w.take()
	time.Sleep(*idle)
	r.collect(w, alone)
	count, err := store.Totals(ctx)
	if err != nil {
		return err
	}
	// What the clients make does not match, so it stays.
	p, err := prune.New(store, prune.Options{Hold: *hold, Config: prune.Config{Policies: []prune.Policy{{
		All: true, MaxSnapshots: prune.Count(max(count.Snapshots-int64(n), 1)), Filters: old()}}}})
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := p.DryRun(ctx, nil); err != nil {
		return err
	}
	r.DryRun += time.Since(began)
	w.take()
	began = time.Now()
	done, err := p.Run(ctx)
	if err != nil {
		return err
	}
	r.Run += time.Since(began)
	r.collect(w, pruning)
	r.Pruned += done.Snapshots
	r.Transactions += done.Transactions
	r.Longest = max(r.Longest, done.Longest)
	r.held += done.Held
	began = time.Now()
	time.Sleep(*idle)
	r.collect(w, deleting)
	w.gate.Lock() // the rest is done before the next round
	err = store.Cleanup(ctx)
	w.gate.Unlock()
	if err != nil {
		return err
	}
	r.Delete += time.Since(began)
	return nil
}

func old() []prune.Filter {
	f, err := prune.ParseFilter("name~=^old")
	if err != nil {
		panic(err) // it is constant
	}
	return []prune.Filter{f}
}

// shrink waits until the file does not become shorter for some seconds, a minute at most.
func (r *result) shrink(store *snapshot.Store) {
	began, changed := time.Now(), time.Now()
	r.SizeAfter = size(store)
	for time.Since(began) < time.Minute && time.Since(changed) < 10*time.Second {
		time.Sleep(100 * time.Millisecond)
		if now := size(store); now != r.SizeAfter {
			r.SizeAfter, changed = now, time.Now()
			r.Shrink = time.Since(began)
		}
	}
}

func size(store *snapshot.Store) int64 {
	info, err := os.Stat(filepath.Join(store.Root(), "metadata.db"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// fill makes chains of eight on one base.
func fill(ctx context.Context, t *snapshot.Namespace) error {
	if _, err := t.Stat(ctx, "base"); err == nil {
		return errors.New("the store is not empty")
	}
	if err := layer(ctx, t, "base", ""); err != nil {
		return err
	}
	var next atomic.Int64
	errs := make([]error, 20)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil {
				chain := int(next.Add(8)) - 8
				if chain >= *many-1 {
					return
				}
				parent := "base"
				for j := chain; j < min(chain+8, *many-1) && errs[i] == nil; j++ {
					name := fmt.Sprint("old ", j)
					errs[i] = layer(ctx, t, name, parent)
					parent = name
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func layer(ctx context.Context, t *snapshot.Namespace, name, parent string) error {
	if _, err := t.Prepare(ctx, name+" active", parent); err != nil {
		return err
	}
	return t.Commit(ctx, name, name+" active")
}

// work is what clients do: steps.
type work struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	gate sync.RWMutex // who holds it keeps the clients waiting

	mu             sync.Mutex
	steps, commits []time.Duration
	err            error
}

func start(ctx context.Context, t *snapshot.Namespace) *work {
	ctx, stop := context.WithCancel(ctx)
	w := &work{stop: stop}
	for c := range *clients {
		w.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := w.step(t, fmt.Sprintf("new %d %d", c, i)); err != nil {
					w.mu.Lock()
					w.err = errors.Join(w.err, err)
					w.mu.Unlock()
					return
				}
			}
		})
	}
	return w
}

// step prepares, commits and removes; the removal is not counted.
func (w *work) step(t *snapshot.Namespace, name string) error {
	w.gate.RLock()
	defer w.gate.RUnlock()
	ctx := context.Background()
	began := time.Now()
	if _, err := t.Prepare(ctx, name+" active", "base"); err != nil {
		return err
	}
	prepared := time.Now()
	if err := t.Commit(ctx, name, name+" active"); err != nil {
		return err
	}
	ended := time.Now()
	w.mu.Lock()
	w.steps = append(w.steps, ended.Sub(began))
	w.commits = append(w.commits, ended.Sub(prepared))
	w.mu.Unlock()
	return t.Remove(ctx, name)
}

// take gives the figures since the last call.
func (w *work) take() (steps, commits []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	steps, commits = w.steps, w.commits
	w.steps, w.commits = nil, nil
	return steps, commits
}

func (w *work) end() error {
	w.stop()
	w.wg.Wait()
	return w.err
}

func (r *result) print() {
	fmt.Printf("%s, %d snapshots, made in %v; %d clients\n", r.Driver, r.Snapshots, r.Filled.Round(time.Millisecond), r.Clients)
	fmt.Printf("%-34s %8s %12s %12s %12s\n", "", "n", "median", "p99", "longest")
	for _, row := range []struct {
		name string
		s    spread
	}{{"step, idle", r.StepIdle}, {"step, pruning", r.StepPruning}, {"step, deleting trees", r.StepDeleting},
		{"commit, idle", r.CommitIdle}, {"commit, pruning", r.CommitPruning}, {"commit, deleting trees", r.CommitDeleting}} {
		fmt.Printf("%-34s %8d %12v %12v %12v\n", row.name, row.s.N, row.s.Median.Round(time.Microsecond),
			row.s.P99.Round(time.Microsecond), row.s.Longest.Round(time.Microsecond))
	}
	fmt.Printf("pruned %d in %v, %d transactions, the longest %v; a dry run took %v\n", r.Pruned, r.Run.Round(time.Millisecond),
		r.Transactions, r.Longest.Round(time.Microsecond), r.DryRun.Round(time.Millisecond))
	fmt.Printf("metadata for each: %v, of that as the only writer %v\n", r.PerSnapshot, r.WriterPerSnapshot)
	fmt.Printf("trees deleted in %v; metadata.db %d bytes, then %d, after %v by itself %d\n", r.Delete.Round(time.Millisecond),
		r.SizeFull, r.SizeBefore, r.Shrink.Round(time.Millisecond), r.SizeAfter)
	r.targets()
}

// What is meant to be reached.
const (
	slowerLimit = 2.0 // steps and commits while pruning, against idle
	eachLimit   = 20 * time.Microsecond
)

// targets says which are met.
func (r *result) targets() {
	say := func(met bool, format string, args ...any) {
		word := "met"
		if !met {
			word = "NOT met"
		}
		fmt.Printf(format+": %s\n", append(args, word)...)
	}
	against := func(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }
	step, commit := against(r.StepPruning.Median, r.StepIdle.Median), against(r.CommitPruning.P99, r.CommitIdle.P99)
	fmt.Println()
	say(step <= slowerLimit, "median of a step while pruning: %.2f of idle, at most %v", step, slowerLimit)
	say(commit <= slowerLimit, "p99 of a commit while pruning: %.2f of idle, at most %v", commit, slowerLimit)
	say(r.PerSnapshot <= eachLimit, "metadata for each removed snapshot: %v, at most %v", r.PerSnapshot, eachLimit)
	say(r.SizeAfter < r.SizeFull, "metadata.db becomes shorter by itself: %d bytes before, then %d", r.SizeFull, r.SizeAfter)
}
