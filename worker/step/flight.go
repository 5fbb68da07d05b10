package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"holdfast/worker/snapshot"
)

// flight is a step that is looked up or run, for all who want it meanwhile. Its fields are guarded by
// the Runner's mutex, but for those that are set before done is closed.
type flight struct {
	id      ID
	step    *Step
	command string // as CommandText has it
	plan    *plan
	caches  map[string]string // names of caches -> the instances that it has
	held    []func()          // release caches that are mounted
	stdin   *os.File          // of its own: who has given it can leave, and close it
	disk    diskLimit         // since it runs
	ctx     context.Context
	cancel  context.CancelFunc
	waiters int
	leaving bool // the last waiter has gone

	serial  uint64
	queued  time.Time
	started time.Time // zero: nothing is run yet

	out    *output
	done   chan struct{}
	result *Result
	err    error
}

// joinFlight joins the flight of a step, a new one if there is none. One that is ending cannot be joined.
func (r *Runner) joinFlight(p *plan) (f *flight, joined bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false, fmt.Errorf("step: %w", ErrClosed)
	}
	if f := r.flights[p.run]; f != nil {
		if !f.leaving {
			f.waiters++
		}
		return f, true, nil
	}
	f = &flight{id: p.run, step: p.step, command: CommandText(p.step.Command), plan: p, waiters: 1, out: newOutput(r.opt.MaxOutput), done: make(chan struct{}),
		serial: r.serials.Add(1), queued: time.Now()}
	if p.step.Stdin != nil {
		if f.stdin, err = duplicate(p.step.Stdin); err != nil {
			return nil, false, fmt.Errorf("step: standard input: %w", err)
		}
	}
	f.ctx, f.cancel = context.WithCancel(r.ctx)
	r.flights[p.run] = f
	r.background.Go(func() { r.runFlight(f) })
	return f, false, nil
}

// reserveError is of Step.Reserve, which is not the same for all who want a step.
type reserveError struct{ err error }

func (e *reserveError) Error() string { return e.err.Error() }
func (e *reserveError) Unwrap() error { return e.err }

// another tells of the error of a flight that was joined that it need not be one's own: it failed within
// limits that are narrower than those of the step s. Whatever it failed of may be for that: what a command
// does without memory or processes is up to it.
func (f *flight) another(s *Step, err error) bool {
	var failure *Failure
	var reserve *reserveError
	if errors.As(err, &reserve) {
		return true
	}
	return errors.As(err, &failure) && !errors.Is(err, ErrCanceled) && narrower(&f.step.Limits, &s.Limits)
}

// narrower tells whether one of the limits a is less than that of b.
func narrower(a, b *Limits) bool {
	less := func(a, b int64) bool { return a > 0 && (b == 0 || a < b) }
	pids := func(n int64) int64 { return cmp.Or(n, DefaultPids) }
	return less(a.Memory, b.Memory) || pids(a.Pids) < pids(b.Pids) || less(int64(a.Time), int64(b.Time)) || less(a.Disk, b.Disk) ||
		a.CPU > 0 && (b.CPU == 0 || a.CPU < b.CPU)
}

// release releases the caches that were mounted.
func (f *flight) release() {
	for _, release := range f.held {
		release()
	}
	f.held = nil
}

// runFlight looks a step up and runs it if need be.
func (r *Runner) runFlight(f *flight) {
	f.result, f.err = r.resultOf(f)
	f.cancel()
	if f.stdin != nil {
		_ = f.stdin.Close()
	}
	r.mu.Lock()
	delete(r.flights, f.id)
	r.recent.add(f)
	r.mu.Unlock()
	close(f.done)
}

// await waits for a flight, or leaves it.
func (r *Runner) await(ctx context.Context, f *flight, log io.Writer) (*Result, error) {
	var at int64
	show := func() (more <-chan struct{}, err error) {
		if log == nil {
			return nil, nil
		}
		b, next, more := f.out.from(at)
		at = next
		if len(b) > 0 {
			_, err = log.Write(b)
		}
		return more, err
	}
	for {
		more, err := show()
		if err != nil {
			r.leave(f)
			return nil, fmt.Errorf("step %s: writing its output: %w", f.id, err)
		}
		select {
		case <-more:
			continue
		default:
		}
		select {
		case <-more:
		case <-ctx.Done():
			r.leave(f)
			return nil, fmt.Errorf("step %s: %w", f.id, ctx.Err())
		case <-f.done:
			if f.result != nil && f.result.Hit && log != nil {
				_, err = log.Write(f.result.Output)
			} else {
				_, err = show()
			}
			if err != nil {
				return nil, fmt.Errorf("step %s: writing its output: %w", f.id, err)
			}
			return f.result.copy(), f.err
		}
	}
}

// leave leaves a flight. With the last waiter the flight ends, and leave returns when it has.
func (r *Runner) leave(f *flight) {
	r.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last {
		f.leaving = true
		f.cancel()
	}
	r.mu.Unlock()
	if last {
		<-f.done
	}
}

func (r *Result) copy() *Result {
	if r == nil {
		return nil
	}
	c := *r
	return &c
}

// useGrain is how old the last use must be for a hit to be written down as another, and how much less than
// Options.Hold its result can be held.
const useGrain = time.Minute

// resultOf is the result that is there, or that of a run.
func (r *Runner) resultOf(f *flight) (*Result, error) {
	res, err := r.hit(f.ctx, f.id, r.holdOf(f.step))
	if res != nil || err != nil {
		return res, err
	}
	if f.id == f.plan.id && r.travels(f) {
		if res, err := r.inSlot(f, r.fetch); res != nil || err != nil {
			return res, err
		}
		r.mu.Lock()
		f.started = time.Time{}
		r.mu.Unlock()
	}
	instances, release, err := r.caches.take(f.ctx, f.step.Mounts) // before a slot: who waits for it takes none
	if err != nil {
		return nil, &Failure{ID: f.id, Reason: ErrCanceled}
	}
	defer release()
	f.caches = instances
	return r.inSlot(f, r.execute)
}

// inSlot does something for a flight when it is its turn, and there is room for what it makes.
func (r *Runner) inSlot(f *flight, do func(*flight) (*Result, error)) (*Result, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-f.ctx.Done():
		return nil, &Failure{ID: f.id, Reason: ErrCanceled}
	}
	if f.step.Reserve != nil {
		release, err := f.step.Reserve(f.ctx)
		if f.ctx.Err() != nil && err != nil {
			return nil, &Failure{ID: f.id, Reason: ErrCanceled}
		}
		if err != nil {
			return nil, &reserveError{err}
		}
		defer release()
	}
	r.mu.Lock()
	f.started = time.Now()
	r.mu.Unlock()
	return do(f)
}

// hit is the result that is there, nil if the step has to be run.
func (r *Runner) hit(ctx context.Context, id ID, hold time.Duration) (*Result, error) {
	t, name := r.opt.Namespace, id.Snapshot()
	info, used, err := t.Use(ctx, name, holdLease(hold), hold, useGrain)
	var bad error
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return nil, nil
	case errors.Is(err, snapshot.ErrDistrusted), errors.Is(err, snapshot.ErrDamaged):
		bad = err
	case err != nil:
		return nil, fmt.Errorf("step %s: %w", id, err)
	default:
		bad = r.store.Unusable(&info)
	}
	if bad != nil {
		// Its content may be incomplete, or is damaged: it is made anew, unless something stands on it.
		if err := t.Remove(ctx, name); err != nil && !errors.Is(err, snapshot.ErrNotFound) { // pruning can be first
			return nil, fmt.Errorf("step %s: %w: %w", id, bad, err)
		}
		return nil, nil
	}
	rec, out, err := r.recordOf(id, &info)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrCorrupt):
		res, err := r.adopt(ctx, id, &info)
		if res == nil && err == nil {
			return r.hit(ctx, id, hold)
		}
		return res, err
	case err != nil:
		return nil, fmt.Errorf("step: %w", err)
	}
	if used {
		rec.used = max(rec.used, uint64(info.LastUsed.UnixNano()))
		if err := r.results.touch(id, rec.used); err != nil {
			return nil, fmt.Errorf("step: %w", err)
		}
	}
	return rec.result(id, out), nil
}

// recordOf is the record of a result, with its output; ErrNotFound if there is none of this snapshot. That
// of an earlier one with the name is there when an older results.db or metadata.db was put back, and that of a later one
// while a run keeps its result.
func (r *Runner) recordOf(id ID, info *snapshot.Info) (rec record, out []byte, err error) {
	rec, out, err = r.results.get(id)
	if err == nil && !rec.of(info) {
		return record{}, nil, fmt.Errorf("the record of step %s is of an earlier result: %w", id, ErrNotFound)
	}
	return rec, out, err
}

// adopt makes a record for a result that has none: it could not be written, was lost with the machine, or
// is damaged. The snapshot is what a command that succeeded has left, whole; what is lost is what the
// command has said. It is nil if the snapshot was removed or replaced meanwhile: what is recorded then is of another.
func (r *Runner) adopt(ctx context.Context, id ID, info *snapshot.Info) (*Result, error) {
	end, err := r.keeping.Lock(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", id, err)
	}
	defer end()
	is, err := r.opt.Namespace.Stat(ctx, info.Name)
	if errors.Is(err, snapshot.ErrNotFound) || err == nil && is.ID != info.ID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", id, err)
	}
	created := uint64(info.Created.UnixNano())
	rec, out, err := r.results.adopt(id, info, record{flags: flagAdopted | flagLayer, created: created, used: max(created, uint64(info.LastUsed.UnixNano())),
		layer: uint64(info.ID), snapshot: info.Name})
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	if rec.flags&flagAdopted != 0 {
		r.log.Warn("the result of a step has no record; its output is lost", "step", id.String())
	}
	return rec.result(id, out), nil
}

// result is what a record says, as a hit.
func (r *record) result(id ID, out []byte) *Result {
	return &Result{
		ID: id, Snapshot: r.snapshot, Hit: true, Code: int(r.code), Output: out, OutputSize: int64(r.written),
		Adopted: r.flags&flagAdopted != 0, Duration: time.Duration(r.duration), Created: timeOf(r.created), LastUsed: timeOf(r.used),
		Usage: Usage{User: time.Duration(r.user), System: time.Duration(r.system), Memory: int64(r.memory)},
	}
}
