package step

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"holdfast"
	"holdfast/worker/disk"
	"holdfast/worker/internal/keylock"
	"holdfast/worker/internal/mountinfo"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// DefaultMaxOutput is how many bytes of output are kept.
const DefaultMaxOutput = 1 << 20

// Options say how to make a Runner.
type Options struct {
	// Namespace is where bases are and results go. Names that begin with "step-" and "!run/" are the
	// Runner's there. There must be no other Runner for its Store.
	Namespace *snapshot.Namespace

	// Mounts mounts snapshots. The root directory of the store must be one of its Keep, and
	// its Cgroups should be those of Cgroups. It belongs to the caller, who closes it after the Runner.
	Mounts *mount.Manager

	// Runtime runs commands of steps that name none; nil: Native.
	Runtime Runtime

	// UserNamespaces says whether steps have some; 0: UserNamespacesAuto, and a step can do without. Results with
	// and without are different steps.
	UserNamespaces UserNamespaces

	// Concurrency is how many steps run at once; 0: as many as there are processors, and at
	// least four. Others wait.
	Concurrency int

	// MaxOutput is how many bytes of a step's output are kept: half of them its beginning, half its end. 0
	// is DefaultMaxOutput.
	MaxOutput int

	// Cgroup names the cgroup below which steps with limits run, in each hierarchy; ""
	// is DefaultCgroup of the store.
	Cgroup string

	// Durability is when a result is on the disk, as for snapshot.Options.
	Durability holdfast.Durability

	// Share is where other processes can read the records of results, as holdfast.Options.Share.
	Share string

	// Full is called when a result could not be written down since the disk is full, as for snapshot.Options.
	Full func() bool

	// Hold is how long a result that Run has given stays for a further step on it though it could be
	// pruned, if the step does not say: see HoldLease. 0 is DefaultHold; negative: not at all.
	Hold time.Duration

	// Remote has results of other stores; nil: there is none. Its callers wait for Find.
	Remote RemoteCache

	// Logger receives what an operator should know; nil: slog.Default().
	Logger *slog.Logger
}

// HoldLease is the lease on what Run has given: between that answer and the next step on it, pruning could
// take it away. A run takes it in the transaction that commits the result, a hit when it is written down as
// a use. It ends after Options.Hold; when a result that stands on it is committed, which has it then; and
// when that is removed. It is a weak one: removing does not heed it. A process that is killed leaves it to
// its end.
const HoldLease = snapshot.WeakPrefix + "next step"

// DefaultHold is how long HoldLease lasts.
const DefaultHold = time.Hour

// holdLease is the lease that a hit takes; "" for none.
func holdLease(hold time.Duration) string {
	if hold < 0 {
		return ""
	}
	return HoldLease
}

// holdOf is how long the result of a step is held; negative: not at all.
func (r *Runner) holdOf(s *Step) time.Duration { return cmp.Or(s.Hold, r.opt.Hold) }

// holdLonger holds a result as long as who joined the run of another wants, if that is longer.
func (r *Runner) holdLonger(ctx context.Context, f *flight, s *Step, res *Result) error {
	hold := r.holdOf(s)
	if hold <= r.holdOf(f.step) {
		return nil
	}
	_, _, err := r.opt.Namespace.Use(ctx, res.Snapshot, HoldLease, hold, useGrain)
	if errors.Is(err, snapshot.ErrNotFound) { // it was pruned since, as that of who ran it can be
		return nil
	}
	return err
}

// DefaultCgroup is the name of the cgroup for the store with a root directory: another one for
// each store.
func DefaultCgroup(root string) string {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	sum := sha256.Sum256([]byte(root))
	return "holdfast-" + hex.EncodeToString(sum[:4])
}

// Cgroups lists the directories of a cgroup of that name, for mount.Options.Cgroups: what
// a killed process has left running there is ended by mount.Open.
func Cgroups(name string) []string {
	c, err := findCgroups(name)
	if err != nil {
		return nil
	}
	return c.dirs()
}

// Runner runs steps. Its methods can be called by several goroutines at once.
type Runner struct {
	opt     Options
	log     *slog.Logger
	store   *snapshot.Store
	results *results
	cgroups *cgroups
	slots   chan struct{}
	serial  atomic.Uint64

	ctx        context.Context // ends when the Runner closes
	stop       context.CancelFunc
	background sync.WaitGroup
	keeping    keylock.Locks[ID]

	mu      sync.Mutex
	closed  bool
	flights map[ID]*flight
	recent  recent
	serials atomic.Uint64 // of flights

	wayMu       sync.Mutex // locked before mu
	ways        map[wayKey]*way
	environment *environment // but for usersOff

	diskInterval time.Duration

	looks   looks
	caches  cacheUses
	mounted mountinfo.Watched // see surroundings

	quotas func() error // nil if steps can have a quota, found out once

	hook func(point, ID) // for tests
}

// New makes a Runner. It first removes what an earlier one has left in the middle of its work. The records
// are in ROOT/results.db, where ROOT is the store's. The runtime says, as errors.ErrUnsupported, what the
// machine lacks.
func New(ctx context.Context, o Options) (*Runner, error) {
	if o.Namespace == nil || o.Mounts == nil {
		return nil, invalidf("a Runner without a namespace or a manager of mounts")
	}
	if o.Runtime == nil {
		o.Runtime = Native()
	}
	if o.Concurrency <= 0 {
		o.Concurrency = max(runtime.NumCPU(), 4)
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if o.Hold == 0 {
		o.Hold = DefaultHold
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	store := o.Namespace.Store()
	if o.Cgroup == "" {
		o.Cgroup = DefaultCgroup(store.Root())
	}
	r := &Runner{opt: o, log: o.Logger, store: store,
		slots: make(chan struct{}, o.Concurrency), flights: map[ID]*flight{}, ways: map[wayKey]*way{}, diskInterval: diskInterval, looks: newLooks()}
	r.quotas = sync.OnceValue(func() error { return disk.HasQuotas(store.Root()) })
	r.ctx, r.stop = context.WithCancel(context.Background())
	if err := r.open(ctx); err != nil {
		r.stop()
		return nil, err
	}
	r.background.Go(r.sweep)
	return r, nil
}

func (r *Runner) open(ctx context.Context) error {
	if err := r.openEnvironment(); err != nil {
		return err
	}
	if err := r.removeRunning(ctx); err != nil {
		return err
	}
	if err := writeFiles(r.store.Root()); err != nil {
		return fmt.Errorf("step: %w", err)
	}
	var err error
	if r.results, err = openResults(r.store.Root(), r.opt.Durability, r.opt.Share, r.opt.Full); err != nil {
		return err
	}
	if _, err = r.wayOf(&Step{}); err != nil {
		return errors.Join(err, r.results.close())
	}
	return nil
}

func (r *Runner) openEnvironment() error {
	stepNamespace, err := r.opt.Mounts.StepNamespace()
	if err != nil {
		return fmt.Errorf("step: %w", err)
	}
	c, err := findCgroups(r.opt.Cgroup)
	if err != nil {
		return err
	}
	if err := c.clean(); err != nil {
		return err
	}
	r.cgroups = c
	r.environment = &environment{root: r.store.Root(), driver: r.store.Driver().Name(), mounts: r.opt.Mounts, stepNamespace: stepNamespace, mark: r.opt.Mounts.StepMark(),
		cgroups: c, log: r.log}
	return nil
}

// removeRunning removes the active snapshots of steps that ran when an earlier process ended.
func (r *Runner) removeRunning(ctx context.Context) error {
	err := r.opt.Namespace.WalkPrefix(ctx, RunPrefix, func(info snapshot.Info) error {
		r.log.Info("a step was interrupted; what it has made is removed", "snapshot", info.Name)
		return r.opt.Namespace.Remove(ctx, info.Name)
	})
	if err != nil {
		return fmt.Errorf("step: removing what was left by an earlier run: %w", err)
	}
	return nil
}

// Result is a step that has succeeded.
type Result struct {
	ID       ID
	Snapshot string // its name in the namespace
	Hit      bool   // it was there, or fetched: nothing was run
	From     string // where it was fetched from just now; "": it was not
	Code     int    // the exit code: 0

	Output     []byte // of standard output and error together, in the order of writing; Runc keeps only the order of each
	OutputSize int64  // how much was written; if that is more than Output has, a line in Output says so

	// Uncached says why the same step would be run again, "" if it is a hit: it sees something of the host
	// that is not known by its content. Its ID and its Snapshot are of this run alone then; a step on it is
	// of that run, too.
	Uncached string

	// Adopted says that the record of this run could not be written, was lost with the machine, or is damaged: what
	// else there was to say about it, its output too, is lost.
	Adopted bool

	Usage    Usage
	Duration time.Duration // of the command
	Created  time.Time
	LastUsed time.Time
}

// Run returns the result of a step, and runs it if there is none. If the same step is running already it
// waits for that; if that fails and had narrower limits it is run again. What the command writes is copied
// to log as it comes, unless log is nil; if log is slow, parts may be left out, with a line that says so.
//
// A step that was run and has no result is a *Failure. Other errors are those of the store
// (snapshot.ErrNotFound if there is no such base), of mounts, and of the machine. When ctx ends Run
// returns its error; the step goes on if others wait for it, and otherwise is killed and gone before Run returns.
func (r *Runner) Run(ctx context.Context, s Step, log io.Writer) (*Result, error) {
	s, err := s.normalize()
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	p, err := r.plan(ctx, &s)
	if err != nil {
		return nil, err
	}
	for {
		f, joined, err := r.joinFlight(p)
		if err != nil {
			return nil, err
		}
		if f.leaving { // its last caller has gone; begin anew when it has, too
			select {
			case <-f.done:
				continue
			case <-ctx.Done():
				return nil, fmt.Errorf("step %s: %w", p.run, ctx.Err())
			}
		}
		res, err := r.await(ctx, f, log)
		if errors.Is(err, errUnmapped) {
			if p, err = r.plan(ctx, &s); err != nil {
				return nil, err
			}
			continue
		}
		if joined && err == nil {
			err = r.holdLonger(ctx, f, &s, res)
		}
		if !joined || !f.another(&s, err) {
			return res, err
		}
		if failure := new(Failure); log != nil && errors.As(err, &failure) { // something was written
			if _, err := fmt.Fprintf(log, "\n[this run failed within narrower limits than these: %v; it is run again]\n", errors.Unwrap(err)); err != nil {
				return nil, fmt.Errorf("step %s: writing its output: %w", f.id, err)
			}
		}
	}
}

// Lookup returns a result that is there, and runs nothing; ErrNotFound if it is not, or its
// snapshot was removed. It counts as no use.
func (r *Runner) Lookup(ctx context.Context, s Step) (*Result, error) {
	s, err := s.normalize()
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	p, err := r.plan(ctx, &s)
	if err != nil {
		return nil, err
	}
	id := p.run // of a step that is not cached there is none
	info, err := r.opt.Namespace.Stat(ctx, id.Snapshot())
	if errors.Is(err, snapshot.ErrNotFound) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", id, err)
	}
	if err := r.store.Unusable(&info); err != nil {
		return nil, fmt.Errorf("step %s: %w", id, err)
	}
	rec, out, err := r.recordOf(id, &info)
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	return rec.result(id, out), nil
}

// Forget removes the records of results whose snapshots are gone, for who has removed
// them; other names are passed over. What is not forgotten so is when the next Runner is made.
func (r *Runner) Forget(ctx context.Context, names []string) error {
	begun := uint64(time.Now().UnixNano())
	var ids []ID
	for _, name := range names {
		id, ok := ParseSnapshot(name)
		if !ok {
			continue
		}
		gone, err := r.gone(ctx, id)
		if err != nil {
			return err
		}
		if gone {
			ids = append(ids, id)
		}
	}
	return r.results.drop(ids, begun)
}

func (r *Runner) gone(ctx context.Context, id ID) (bool, error) {
	if r.keeps(id) { // first: what is kept from now on was made after all that is removed
		return false, nil
	}
	_, err := r.opt.Namespace.Stat(ctx, id.Snapshot())
	if errors.Is(err, snapshot.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// ForgetGone removes the records of all results whose snapshots are gone, as New does in the background: for who has pruned. It
// looks at all records, in short transactions.
func (r *Runner) ForgetGone(ctx context.Context) error {
	begun := uint64(time.Now().UnixNano())
	if err := r.results.sweep(ctx, begun, func(id ID) (bool, error) { return r.gone(ctx, id) }); err != nil {
		return fmt.Errorf("step: records of results that are gone: %w", err)
	}
	return nil
}

// sweep is ForgetGone in the background.
func (r *Runner) sweep() {
	if err := r.ForgetGone(r.ctx); err != nil && r.ctx.Err() == nil {
		r.log.Error("records of steps that are gone stay", "reason", err)
	}
}

// Close kills the steps that run, waits until they are gone, and closes. Further calls do nothing.
func (r *Runner) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.background.Wait()
	r.closeWays()
	r.cgroups.removeAll()
	r.mounted.Close()
	if err := r.results.close(); err != nil {
		return fmt.Errorf("step: closing %s: %w", resultsName, err)
	}
	return nil
}

// CheckReport is what Check has found.
type CheckReport struct {
	Results  int      // records
	Pruned   int      // of these, without their snapshot
	Problems []string // what should not be
}

// Check reads all records and looks for what should not be: records that cannot be read, output that
// no record names or that is missing, snapshots of steps that do not run, files of runs. Steps
// should not run meanwhile.
func (r *Runner) Check(ctx context.Context) (CheckReport, error) {
	c := CheckReport{}
	err := r.results.check(ctx, &c, func(id ID) (bool, error) { return r.gone(ctx, id) })
	if err != nil {
		return c, fmt.Errorf("step: check: %w", err)
	}
	err = r.opt.Namespace.WalkPrefix(ctx, RunPrefix, func(info snapshot.Info) error {
		c.Problems = append(c.Problems, "snapshot "+info.Name+" of a step that does not run")
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("step: check: %w", err)
	}
	for _, dir := range []string{bundlesDir, filepath.Join(bundlesDir, stateDir)} {
		entries, err := os.ReadDir(filepath.Join(r.store.Root(), dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return c, fmt.Errorf("step: check: %w", err)
		}
		for _, e := range entries {
			if e.Name() != stateDir {
				c.Problems = append(c.Problems, "directory "+filepath.Join(dir, e.Name())+" of a step that does not run")
			}
		}
	}
	return c, nil
}

// bundlesDir is where the runtime runc keeps a directory for each step that runs, in the
// store's root directory, and stateDir what it has for itself in there.
const (
	bundlesDir = "runc"
	stateDir   = "state"
)
