package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
)

// State is how far a step has come.
type State uint8

// States of a step.
const (
	StateQueued  State = iota + 1 // its result is looked up, or it waits for its turn and for room
	StateRunning                  // its command runs, or is about to
	StateDone
)

// Activity is a step that a Runner has in hand, or had lately.
type Activity struct {
	Serial  uint64 // of this Runner, ascending
	ID      ID
	State   State
	Base    string
	Command string // as CommandText has it
	Queued  time.Time
	Started time.Time // zero: it was not run
	Ended   time.Time
	Waiters int   // callers of Run
	Written int64 // bytes of output
	Hit     bool
	From    string // where it was fetched from
	Result  string // the snapshot; "": none
	Err     error  // why there is none; the text of a long one is cut off
}

// Counts are the steps of a Runner since it was made.
type Counts struct {
	Queued, Running   int // now
	Ran, Hits, Failed uint64
	Fetched           uint64 // of the hits, from the remote cache
}

// Of the steps that have ended a Runner remembers so many, and of those that failed the output of the last ones.
const (
	recentSteps  = 200
	recentLogs   = 20
	recentOutput = 64 << 10 // bytes
)

// recent are the steps that ended lately, newest last. The Runner's mutex guards it.
type recent struct {
	list   []past
	counts Counts
}

type past struct {
	Activity
	log []byte // of one that failed
}

// add remembers a flight that has ended.
func (n *recent) add(f *flight) {
	e := past{Activity: f.activity()}
	e.State, e.Ended, e.Waiters, e.Err = StateDone, time.Now(), 0, reasonOf(f.err)
	switch {
	case f.result == nil:
		n.counts.Failed++
		e.log, _ = f.out.text()
		if cut := len(e.log) - recentOutput; cut > 0 {
			e.log = append(fmt.Appendf(nil, "[%d bytes of the output are left out here]\n", cut), e.log[cut:]...)
		}
	case f.result.Hit:
		e.Hit, e.Result, e.From = true, f.result.Snapshot, f.result.From
		n.counts.Hits++
		if e.From != "" {
			n.counts.Fetched++
		}
	default:
		e.Result = f.result.Snapshot
		n.counts.Ran++
	}
	if len(n.list) == recentSteps {
		copy(n.list, n.list[1:])
		n.list = n.list[:recentSteps-1]
	}
	n.list = append(n.list, e)
	logs := 0
	for i := len(n.list) - 1; i >= 0; i-- {
		if n.list[i].log != nil {
			if logs++; logs > recentLogs {
				n.list[i].log = nil
				return
			}
		}
	}
}

// activity is what there is to say about a flight. The Runner's mutex is held.
func (f *flight) activity() Activity {
	a := Activity{Serial: f.serial, ID: f.id, State: StateQueued, Base: f.step.Base, Command: f.command, Queued: f.queued, Started: f.started,
		Waiters: f.waiters, Written: f.out.written()}
	if !f.started.IsZero() {
		a.State = StateRunning
	}
	return a
}

// Activities lists the steps in hand and those that ended lately, newest first.
func (r *Runner) Activities() []Activity {
	r.mu.Lock()
	list := make([]Activity, 0, len(r.flights)+len(r.recent.list))
	for _, f := range r.flights {
		list = append(list, f.activity())
	}
	for _, e := range r.recent.list {
		list = append(list, e.Activity)
	}
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b Activity) int { return cmp.Compare(b.Serial, a.Serial) })
	return list
}

// Concurrency is how many steps run at once.
func (r *Runner) Concurrency() int { return r.opt.Concurrency }

// Counts returns how many steps there are and were.
func (r *Runner) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.recent.counts
	for _, f := range r.flights {
		if f.started.IsZero() {
			c.Queued++
		} else {
			c.Running++
		}
	}
	return c
}

// Follow writes the output of a step of Activities to log: what there is, and the rest as it comes, until the step ends or
// ctx. It does not keep the step from being canceled. If log is slow, parts are left out, with a line that says so.
// ErrNotFound if the step ended too long ago, and of a result whose snapshot is gone.
func (r *Runner) Follow(ctx context.Context, serial uint64, log io.Writer) error {
	r.mu.Lock()
	var running *flight
	for _, f := range r.flights {
		if f.serial == serial {
			running = f
		}
	}
	i := slices.IndexFunc(r.recent.list, func(e past) bool { return e.Serial == serial })
	var one past
	if i >= 0 {
		one = r.recent.list[i]
	}
	r.mu.Unlock()
	switch {
	case running != nil:
		return running.follow(ctx, log)
	case i < 0:
		return fmt.Errorf("step number %d: %w", serial, ErrNotFound)
	case one.Result == "":
		_, err := log.Write(one.log)
		return err
	}
	res, err := r.Recorded(one.ID)
	if err != nil {
		return err
	}
	_, err = log.Write(res.Output)
	return err
}

// follow writes the output of a flight until that ends.
func (f *flight) follow(ctx context.Context, log io.Writer) error {
	var at int64
	for last := false; ; {
		b, next, more := f.out.from(at)
		at = next
		if len(b) > 0 {
			if _, err := log.Write(b); err != nil {
				return err
			}
		}
		if last {
			break
		}
		select {
		case <-more:
		case <-f.done:
			last = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.result != nil && f.result.Hit {
		_, err := log.Write(f.result.Output)
		return err
	}
	return nil
}

// Database is the file of results, for its figures. It must not be written through it, nor closed.
func (r *Runner) Database() *holdfast.DB { return r.results.db }

// Recorded returns what is recorded of a step, which is a hit if its snapshot is still there: ErrNotFound if nothing is, or what is
// recorded is of an earlier snapshot than the one that is there.
func (r *Runner) Recorded(id ID) (*Result, error) { return r.results.recorded(r.opt.Namespace, id) }

// RecordedOf is as Recorded, of the result that is a snapshot: ErrNotFound if the record is of an earlier one that had its
// name.
func (r *Runner) RecordedOf(info snapshot.Info) (*Result, error) {
	id, ok := ParseSnapshot(info.Name)
	if !ok {
		return nil, fmt.Errorf("%s: %w", info.Name, ErrNotFound)
	}
	rec, out, err := r.recordOf(id, &info)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", id, err)
	}
	return rec.result(id, out), nil
}

// maxReason is how many bytes the text of an error has in an Activity.
const maxReason = 1 << 10

// reasonOf is an error that Activity.Err can keep, for many steps and in many messages: without the output, which a Failure has, and
// short, while a step can have names of a megabyte.
func reasonOf(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); len(text) > maxReason {
		return errors.New(strings.ToValidUTF8(text[:maxReason-len("...")], "") + "...")
	}
	var failure *Failure
	if !errors.As(err, &failure) {
		return err
	}
	short := *failure
	short.Output = nil
	return &short
}
