package prune

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
)

// Mounts is what holds mounts; mount.Manager is one. Trim unmounts what is idle, longest first, until there
// are at most so many mounts or none is idle, and returns how many it has begun to unmount.
type Mounts interface {
	Trim(most int) int
}

// Options are choices of a Pruner.
type Options struct {
	Config

	// Hold is for how long at a time no other can write metadata while snapshots are removed; 0: 3
	// milliseconds.
	Hold time.Duration

	// Progress is called after each transaction. It may end the context.
	Progress func(Progress)

	// Reserved is how many bytes of the file system are promised and not written yet, such as
	// disk.Space.Reserved. They count as not free. nil: none.
	Reserved func() int64

	// Despite is the name of leases that do not keep anything from being removed, if they have an end; "": none. What is
	// not removed keeps its leases.
	Despite string

	// Mounts are kept below Config.MaxMounts; nil: there are none.
	Mounts Mounts

	// Logger hears of each run that has removed something; nil: nothing does.
	Logger *slog.Logger
}

// Progress is how far a run has come.
type Progress struct {
	Snapshots, Bytes         int64 // removed
	SnapshotsLeft, BytesLeft int64 // still to be removed, as it was planned
}

// Result is what was done, or would be.
type Result struct {
	Snapshots, Bytes int64 // removed, and what these take
	Policies         []Sum // the same by policy
	Kept             int64 // used, leased or removed by others between plan and removal
	Mounts           int   // unmounted
	After            State // as far as it is known when trees are not deleted yet

	Transactions int
	Held         time.Duration // how long no other could write, in all
	Longest      time.Duration // and in one transaction
}

// Sum are snapshots.
type Sum struct{ Snapshots, Bytes int64 }

func (s *Sum) add(bytes int64) {
	s.Snapshots++
	s.Bytes += bytes
}

// Pruner removes snapshots of a store by policies. Its methods may be called concurrently; runs wait for
// each other.
type Pruner struct {
	store   *snapshot.Store
	opts    Options
	log     *slog.Logger
	disk    fileSystem
	now     func() time.Time
	running chan struct{}

	besides func(root string) (metadata, other int64, err error)
}

const defaultHold = 3 * time.Millisecond

// New makes a Pruner. ErrConfig if the policies make no sense.
func New(store *snapshot.Store, options Options) (*Pruner, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if options.MaxMounts < 0 || options.Hold < 0 {
		return nil, fmt.Errorf("%w: MaxMounts or Hold is negative", ErrConfig)
	}
	if options.Hold == 0 {
		options.Hold = defaultHold
	}
	p := &Pruner{store: store, opts: options, log: options.Logger, disk: disk.Measure, now: time.Now, running: make(chan struct{}, 1), besides: besides}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	return p, nil
}

// Policies are those that the Pruner follows.
func (p *Pruner) Policies() []Policy { return p.opts.Policies }

// Run removes what the policies say. The trees are deleted afterwards, in the background: see
// snapshot.Store.Cleanup. When the context ends, what was removed stays removed, and the result
// tells of it, beside the error.
func (p *Pruner) Run(ctx context.Context) (Result, error) {
	r, err := p.run(ctx, 0)
	if p.opts.Mounts != nil && p.opts.MaxMounts > 0 && err == nil {
		r.Mounts = p.opts.Mounts.Trim(int(min(p.opts.MaxMounts, 1<<30)))
	}
	if err != nil {
		return r, fmt.Errorf("prune: %w", err)
	}
	return r, nil
}

// roomRounds is how often MakeRoom looks whether there is room, and removes more: what a snapshot takes can be
// more than what becomes free, where files share blocks. Not more often, since some file systems (btrfs) say
// only later what has become free.
const roomRounds = 3

// MakeRoom removes as many of the snapshots that policies select as it takes for so many bytes to be free on the
// file system, with the inodes that go with them (disk.FS.Share), whatever the bounds of the policies are, but for
// ReservedSpace; and returns when the trees are deleted. What is reserved (Options.Reserved) is not subtracted. That
// less is free then is not an error. It is for disk.Options.MakeRoom.
func (p *Pruner) MakeRoom(ctx context.Context, free int64) error {
	if free <= 0 {
		return nil
	}
	for range roomRounds {
		r, err := p.run(ctx, free)
		if err != nil {
			return fmt.Errorf("make room: %w", err)
		}
		if err := p.store.Cleanup(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("make room: %w", err)
			}
			p.log.Warn("room is needed, and removed snapshots cannot be deleted", "error", err)
		}
		if r.Snapshots == 0 {
			return nil
		}
	}
	return nil
}

// Room returns what the file system would have free after MakeRoom with the same argument, as far as commits have
// measured what they take: less if files share blocks, and some more for directories and metadata. It changes nothing.
func (p *Pruner) Room(ctx context.Context, free int64) (disk.FS, error) {
	after, err := p.survey(ctx, p.now(), max(free, 1), func(*Removal) bool { return true })
	if err != nil {
		return disk.FS{}, fmt.Errorf("plan room: %w", err)
	}
	return after.FS, nil
}

// doomed is what is left of a plan.
type doomed struct {
	snapshot.Doomed
	usage  snapshot.Usage
	policy int
}

// maxPlans bounds how often a run plans again since others have used what it was to remove.
const maxPlans = 5

func (p *Pruner) run(ctx context.Context, room int64) (Result, error) {
	total := Result{Policies: make([]Sum, len(p.opts.Policies))}
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		return total, ctx.Err()
	}
	if err := p.store.ExpireLeases(ctx); err != nil {
		return total, err
	}
	began := p.now()
	for range maxPlans {
		list, after, err := p.list(ctx, began, room)
		if err != nil {
			return total, err
		}
		kept := total.Kept
		total.After = after
		if err := p.execute(ctx, list, &total); err != nil {
			return total, err
		}
		if total.Kept == kept {
			break
		}
	}
	if total.Snapshots > 0 {
		p.log.Info("pruned", "snapshots", total.Snapshots, "bytes", total.Bytes, "kept since used meanwhile", total.Kept,
			"transactions", total.Transactions, "longest", total.Longest)
	}
	return total, nil
}

// list plans.
func (p *Pruner) list(ctx context.Context, now time.Time, room int64) (list []doomed, after State, err error) {
	after, err = p.survey(ctx, now, room, func(r *Removal) bool {
		list = append(list, doomed{snapshot.Doomed{ID: r.ID, LastUsed: r.LastUsed, Despite: p.opts.Despite}, r.Usage, r.Policy - 1})
		return true
	})
	return list, after, err
}

// survey gives what is to go to emit. What was not measured yet is measured first: it would go, and count as nothing.
func (p *Pruner) survey(ctx context.Context, now time.Time, room int64, emit func(*Removal) bool) (State, error) {
	measure := p.unreserved
	if room > 0 { // the caller who needs room counts what is reserved
		measure = p.measure
	}
	if err := p.store.MeasuredPrunable(ctx); ctx.Err() != nil {
		return State{}, ctx.Err()
	} else if err != nil {
		p.log.Warn("what goes is counted without the snapshots that cannot be measured", "error", err)
	}
	state, err := measure(ctx)
	if err != nil {
		return State{}, err
	}
	plan := planner{policies: p.opts.Policies, now: now, despite: p.opts.Despite, room: room, state: state}
	err = p.store.Read(ctx, func(m *snapshot.ReadTx) error { return plan.plan(m, emit) })
	return plan.state, err
}

// firstBatch is how many snapshots the first transaction removes at most.
const firstBatch = 32

// execute removes a list, in pieces that take no longer than Hold.
func (p *Pruner) execute(ctx context.Context, list []doomed, total *Result) error {
	progress := Progress{Snapshots: total.Snapshots, Bytes: total.Bytes, SnapshotsLeft: int64(len(list))}
	for i := range list {
		progress.BytesLeft += list[i].usage.Size
	}
	some := make([]snapshot.Doomed, 0, firstBatch)
	for batch := firstBatch; len(list) > 0; {
		some = some[:0]
		for _, d := range list[:min(batch, len(list))] {
			some = append(some, d.Doomed)
		}
		began := time.Now()
		done, err := p.store.PruneFor(ctx, some, p.opts.Hold)
		if err != nil {
			return err
		}
		removed := done.Removed
		for _, d := range list[:done.Looked] {
			progress.SnapshotsLeft--
			progress.BytesLeft -= d.usage.Size
			if len(removed) == 0 || removed[0] != d.ID {
				total.Kept++
				total.After = total.After.without(-1, d.usage)
				continue
			}
			removed = removed[1:]
			total.Policies[d.policy].add(d.usage.Size)
			progress.Snapshots++
			progress.Bytes += d.usage.Size
		}
		list = list[done.Looked:]
		total.Snapshots, total.Bytes = progress.Snapshots, progress.Bytes
		total.Transactions++
		total.Held += done.Held
		total.Longest = max(total.Longest, done.Held)
		batch = adapt(batch, done.Looked, done.Held, p.opts.Hold)
		if p.opts.Progress != nil {
			p.opts.Progress(progress)
		}
		if err := pause(ctx, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// pauses is how often as long as a transaction others have the writer, the processor and the disk after it. The
// flush counts, which others wait for as well.
const pauses = 3

func pause(ctx context.Context, took time.Duration) error {
	wait := time.NewTimer(pauses * took)
	defer wait.Stop()
	select {
	case <-wait.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// adapt is how many the next transaction removes, when the last one has taken so long for n.
func adapt(batch, n int, held, hold time.Duration) int {
	switch {
	case held > hold:
		return max(1, int(float64(n)*float64(hold)/float64(held)))
	case held < hold*3/4:
		return min(2*batch, 1<<14)
	}
	return batch
}

// DryRun calls fn for each snapshot that Run would remove now, in that order, until it returns false, and
// tells what the result would be. It changes nothing.
func (p *Pruner) DryRun(ctx context.Context, fn func(*Removal) bool) (Result, error) {
	r := Result{Policies: make([]Sum, len(p.opts.Policies))}
	after, err := p.survey(ctx, p.now(), 0, func(one *Removal) bool {
		r.Snapshots++
		r.Bytes += one.Usage.Size
		r.Policies[one.Policy-1].add(one.Usage.Size)
		return fn == nil || fn(one)
	})
	r.After = after
	if err != nil {
		return r, fmt.Errorf("dry run of pruning: %w", err)
	}
	return r, nil
}
