// Package stress runs random trees of steps, many at once, while others are pruned, and compares the content of each
// result with what follows from its steps. Its test is a short run; the command stress runs for as long as is asked.
package stress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// Options say what to run.
type Options struct {
	// Dir is where the store is, or is made. The store of an earlier run, also of a killed one, is used and verified.
	Dir string

	Driver   snapshot.Driver // for the store
	Runtime  step.Runtime    // nil: Native
	Clients  int             // steps wanted at once; 0: 15
	Steps    int64           // how many are wanted in all; 0: until ctx ends
	Prune    time.Duration   // how long after a pruning the next one is; 0: 20 ms
	Hold     time.Duration   // step.Options.Hold; 0: as long as Prune
	Seed     uint64          // of the choices; which of two steps is first is not among them
	Progress func(Report)    // called about once a second; nil: it is not called
}

// Report is what has happened.
type Report struct {
	Runs, Hits, Adopted int // results
	Failed, Canceled    int // steps that were to fail, and whose callers had all gone
	Lost                int // bases that were pruned before the step began
	Pruned              int
	Verified            int // results whose content was compared meanwhile, and at the end
	Problems            []string
}

// maxProblems is how many problems are told.
const maxProblems = 20

// baseName is the snapshot on which all trees stand.
const baseName = "base"

// Run runs until ctx ends, or so many steps were wanted, and then verifies all results that are there. The error is of
// what could not be done at all; differences are Problems.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Clients <= 0 {
		o.Clients = 15
	}
	if o.Prune <= 0 {
		o.Prune = 20 * time.Millisecond
	}
	o.Hold = cmp.Or(o.Hold, o.Prune)
	r := &run{Options: o, known: map[string]string{}}
	if err := r.open(); err != nil {
		return Report{}, err
	}
	err := r.removeViews()
	if err == nil {
		err = r.base()
	}
	if err == nil {
		r.work(ctx)
		err = r.verifyAll()
	}
	return r.report, errors.Join(err, r.close())
}

type run struct {
	Options
	store     *snapshot.Store
	namespace *snapshot.Namespace
	mounts    *mount.Manager
	runner    *step.Runner

	wanted atomic.Int64
	views  atomic.Int64
	limits atomic.Bool // limits of resources are to be had

	mu     sync.Mutex
	report Report
	known  map[string]string // result -> history
}

func (r *run) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Problems) < maxProblems {
		r.report.Problems = append(r.report.Problems, fmt.Sprintf(format, args...))
	}
}

func (r *run) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// openTries is how often a store is tried to be opened, a millisecond apart, whose process was killed: a child that
// it was about to start can have its locks for a moment.
const openTries = 5000

func (r *run) open() (err error) {
	ctx := context.Background()
	root := filepath.Join(r.Dir, "store")
	for try := 0; ; try++ {
		r.store, err = snapshot.Open(root, snapshot.Options{Driver: r.Driver, Sync: snapshot.SyncDeferred, Durability: holdfast.None})
		if !errors.Is(err, snapshot.ErrLocked) || try == openTries {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return err
	}
	name := step.DefaultCgroup(root)
	r.mounts, err = mount.Open(ctx, mount.Options{Directory: filepath.Join(r.Dir, "run"), Keep: []string{root}, Cgroups: step.Cgroups(name), IdleAge: -1})
	if err == nil {
		r.namespace, err = r.store.Namespace("stress")
	}
	if err == nil {
		r.runner, err = step.New(ctx, step.Options{Namespace: r.namespace, Mounts: r.mounts, Runtime: r.Runtime, Concurrency: r.Clients, Durability: holdfast.None, Hold: r.Hold})
	}
	if err != nil {
		return errors.Join(err, r.close())
	}
	r.limits.Store(true)
	return nil
}

func (r *run) close() error {
	var errs []error
	if r.runner != nil {
		errs = append(errs, r.runner.Close())
	}
	if r.mounts != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, r.mounts.Close(ctx))
	}
	return errors.Join(append(errs, r.store.Close())...)
}

// work has clients want steps, and prunes meanwhile, until it is enough.
func (r *run) work(ctx context.Context) {
	var clients, others sync.WaitGroup
	done := make(chan struct{})
	every := func(pause time.Duration, do func()) {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(pause):
					do()
				}
			}
		})
	}
	seed := atomic.Uint64{}
	every(r.Prune, func() { r.prune(rand.New(rand.NewPCG(r.Seed, 1<<32+seed.Add(1)))) })
	if r.Progress != nil {
		every(time.Second, func() {
			r.mu.Lock()
			now := r.report
			r.mu.Unlock()
			r.Progress(now)
		})
	}
	for c := range r.Clients {
		clients.Go(func() { r.client(ctx, rand.New(rand.NewPCG(r.Seed, uint64(c)))) })
	}
	clients.Wait()
	close(done)
	others.Wait()
}

// prune removes half of what can be removed.
func (r *run) prune(random *rand.Rand) {
	var list []snapshot.Doomed
	err := r.store.Prunable(context.Background(), func(c snapshot.Candidate) bool {
		if random.IntN(2) == 0 {
			list = append(list, snapshot.Doomed{ID: c.ID, LastUsed: c.LastUsed})
		}
		return true
	})
	var removed []snapshot.ID
	if err == nil {
		removed, err = r.store.Prune(context.Background(), list)
	}
	if err != nil {
		r.problem("pruning: %v", err)
	}
	r.mu.Lock()
	r.report.Pruned += len(removed)
	r.mu.Unlock()
}

// depth is how many steps a tree has from its base to its leaves.
const depth = 5

// client goes up trees, one after the other.
func (r *run) client(ctx context.Context, random *rand.Rand) {
	parent, history := baseName, ""
	for ctx.Err() == nil && (r.Steps == 0 || r.wanted.Add(1) <= r.Steps) {
		op := operations[random.IntN(len(operations))]
		s := op.on(parent)
		if r.limits.Load() && random.IntN(5) == 0 {
			s.Limits = step.Limits{Memory: 256 << 20, Pids: 100}
		}
		res, err := r.want(s, random)
		switch {
		case errors.Is(err, errors.ErrUnsupported) && s.Limits != (step.Limits{}):
			r.limits.Store(false)
			continue
		case errors.Is(err, snapshot.ErrNotFound): // the parent was pruned: begin anew
			r.count(&r.report.Lost)
			parent, history = baseName, ""
			continue
		case errors.Is(err, context.DeadlineExceeded):
			r.count(&r.report.Canceled)
			continue
		case op.fails && errors.Is(err, step.ErrExit):
			r.count(&r.report.Failed)
			continue
		case err != nil:
			r.problem("a step on %s: %v", parent, err)
			parent, history = baseName, ""
			continue
		case op.fails:
			r.problem("%s: a step that fails has a result", res.Snapshot)
			continue
		}
		r.got(res, history, history+op.word+"\n", random)
		parent, history = res.Snapshot, history+op.word+"\n"
		if strings.Count(history, "\n") >= depth {
			parent, history = baseName, ""
		}
	}
}

// want asks for a step, and sometimes does not wait for it.
func (r *run) want(s step.Step, random *rand.Rand) (*step.Result, error) {
	ctx := context.Background()
	if random.IntN(12) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(15000))*time.Microsecond)
		defer cancel()
	}
	return r.runner.Run(ctx, s, nil)
}

// got looks at a result, and at the content of some.
func (r *run) got(res *step.Result, before, history string, random *rand.Rand) {
	r.mu.Lock()
	switch {
	case res.Adopted:
		r.report.Adopted++
	case res.Hit:
		r.report.Hits++
	default:
		r.report.Runs++
	}
	was, known := r.known[res.Snapshot]
	r.known[res.Snapshot] = history
	r.mu.Unlock()
	if known && was != history {
		r.problem("%s is the result of %q and of %q", res.Snapshot, was, history)
	}
	if !res.Adopted && string(res.Output) != before {
		r.problem("%s has said %q, and not %q", res.Snapshot, res.Output, before)
	}
	if random.IntN(6) == 0 || res.Adopted {
		found, err := r.history(res.Snapshot)
		if errors.Is(err, snapshot.ErrNotFound) { // pruned meanwhile
			return
		}
		if err != nil || found != history {
			r.problem("%s has %q, and not %q: %v", res.Snapshot, found, history, err)
		}
	}
}

// verifyAll compares the content of every result with that of its parent, and looks for what should not be there.
func (r *run) verifyAll() error {
	ctx := context.Background()
	type one struct{ name, parent string }
	var all []one
	err := r.namespace.Walk(ctx, func(i snapshot.Info) error {
		if _, ok := step.ParseSnapshot(i.Name); ok {
			all = append(all, one{i.Name, i.Parent})
		}
		return nil
	})
	if err != nil {
		return err
	}
	histories := map[string]string{baseName: ""}
	for _, o := range all {
		if histories[o.name], err = r.history(o.name); err != nil {
			r.problem("%s: %v", o.name, err)
		}
		if want, ok := r.known[o.name]; ok && want != histories[o.name] {
			r.problem("%s has %q, and not %q", o.name, histories[o.name], want)
		}
	}
	for _, o := range all {
		before, ok := histories[o.parent]
		word, found := strings.CutPrefix(histories[o.name], before)
		if !ok || !found || strings.Count(word, "\n") != 1 {
			r.problem("%s has %q on %q", o.name, histories[o.name], before)
		}
	}
	checked, err := r.runner.Check(ctx)
	if err != nil {
		return err
	}
	for _, p := range checked.Problems {
		r.problem("%s", p)
	}
	problems, err := r.store.Check(ctx)
	for _, p := range problems {
		r.problem("store: %v", p)
	}
	if e := r.mounts.DropIdle(ctx); e != nil {
		return e
	}
	if s := r.mounts.Stats(); s.Held+s.Going+s.Pending > 0 {
		r.problem("mounts: %+v", s)
	}
	return err
}
