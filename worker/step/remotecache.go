package step

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// RemoteCache has results of other stores, see package remotecache. Its methods are called by several goroutines at once.
type RemoteCache interface {
	// Find looks for the result of a step on a base with a content, as ContentOf has it. It is nil if there is none. With
	// an error that is not known, and the step is run: how long Find takes is up to it.
	Find(ctx context.Context, id ID, base string) (*RemoteResult, error)

	// Exports tells whether results that are made here are for others, too: they have LabelExport until they are exported.
	Exports() bool

	// Offer is told of such a result when it is committed and recorded. It does not wait.
	Offer(name string)

	// Withdraw ends the export of a result, in which it is in use, and has none begin until release is called.
	Withdraw(ctx context.Context, name string) (release func(), err error)
}

// RemoteResult is what a RemoteCache has found.
type RemoteResult struct {
	From       string // where
	Content    string // of the result with its base, see ContentOf
	Output     []byte
	OutputSize int64 // how much was written
	Usage      Usage
	Duration   time.Duration

	// Fill extracts what the step has changed into an active snapshot on its base, which mounts show, and verifies it. When
	// it fails, the snapshot may have anything.
	Fill func(ctx context.Context, mounts []mount.Mount, base string) error
}

// ContentOf says what a base or result is with its parents by content, in all stores alike; "" if that is not known. An ID
// says what a result was made from, and two runs of a step can leave different files: what is a change of one of them
// is none of the other.
func ContentOf(info snapshot.Info) string {
	if _, ok := ParseSnapshot(info.Name); ok && info.Labels[LabelVersion] != "" {
		return info.Labels[LabelContent]
	}
	return info.Labels[snapshot.LabelContent]
}

// travels tells whether the result of a flight under its ID means the same in other stores.
func (r *Runner) travels(f *flight) bool {
	return r.opt.Remote != nil && !f.plan.local && f.plan.uncached == ""
}

// fetch is the result of a step that the remote cache has, nil if the step has to be run. What is wrong with it, or with
// what it has, is no error.
func (r *Runner) fetch(f *flight) (*Result, error) {
	base, err := r.opt.Namespace.Stat(f.ctx, f.step.Base)
	content := ""
	if err == nil {
		content = ContentOf(base)
	}
	if content == "" {
		return nil, nil
	}
	found, err := r.opt.Remote.Find(f.ctx, f.id, content)
	var res *Result
	if err == nil && found != nil {
		res, err = r.bring(f, found, content)
	}
	switch {
	case f.ctx.Err() != nil && err != nil:
		return nil, &Failure{ID: f.id, Reason: ErrCanceled}
	case errors.Is(err, snapshot.ErrExists): // a run with NoCache has ended meanwhile
		return r.hit(f.ctx, f.id, r.holdOf(f.step))
	case errors.Is(err, errUnrecorded): // to run it would only make another one
		return nil, r.fault(f, err)
	case err != nil:
		r.log.Warn("a step is run although the remote cache may have its result", "step", f.id.String(), "reason", err)
		return nil, nil
	}
	return res, nil
}

// bring makes a result that was found one of this store.
func (r *Runner) bring(f *flight, found *RemoteResult, content string) (res *Result, err error) {
	key := f.id.running()
	mounts, err := r.opt.Namespace.Prepare(f.ctx, key, f.step.Base)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		if gone := r.opt.Namespace.Remove(context.Background(), key); gone != nil && !errors.Is(gone, snapshot.ErrNotFound) {
			r.log.Error("what was fetched of a result stays", "snapshot", key, "reason", gone)
		}
	}()
	r.at(atPrepared, f.id)
	base, err := r.opt.Namespace.Stat(f.ctx, f.step.Base) // which stays as it is from now on
	if err == nil && ContentOf(base) != content {
		err = fmt.Errorf("the base %s was replaced meanwhile", f.step.Base)
	}
	if err == nil {
		err = found.Fill(f.ctx, mounts, f.step.Base)
	}
	if err != nil {
		return nil, err
	}
	unsigned := func(n int64) uint64 { return uint64(max(n, 0)) }
	rec := record{
		duration: unsigned(int64(found.Duration)), user: unsigned(int64(found.Usage.User)), system: unsigned(int64(found.Usage.System)),
		memory: unsigned(found.Usage.Memory), written: unsigned(found.OutputSize),
	}
	labels := f.plan.labels("")
	labels[LabelContent] = found.Content
	if err := r.keep(f, f.id, key, &rec, found.Output, labels); err != nil {
		return nil, err
	}
	res = rec.result(f.id, found.Output)
	res.From = found.From
	return res, nil
}

// commitOptions are those with which a result is committed.
func (r *Runner) commitOptions(f *flight, labels map[string]string) []snapshot.Option {
	options := []snapshot.Option{snapshot.WithLabels(labels)}
	if hold := r.holdOf(f.step); hold > 0 {
		options = append(options, snapshot.PassingLease(HoldLease, hold))
	}
	return options
}

// offered tells whether what a run has left is for others, too.
func (r *Runner) offered(f *flight, id ID, uncached string) bool {
	return r.travels(f) && uncached == "" && id == f.plan.id && r.opt.Remote.Exports()
}

// removeEarlier removes the result that the one of a run replaces. It may be being exported.
func (r *Runner) removeEarlier(f *flight) error {
	name := f.plan.id.Snapshot()
	if r.opt.Remote != nil {
		release, err := r.opt.Remote.Withdraw(f.ctx, name)
		if err != nil {
			return err
		}
		defer release()
	}
	return r.opt.Namespace.Remove(f.ctx, name)
}

// labelsOf are those of what a run has left.
func (r *Runner) labelsOf(f *flight, id ID, uncached string) map[string]string {
	all := f.plan.labels(uncached)
	if r.offered(f, id, uncached) {
		all[LabelExport] = ExportPending
	}
	return all
}
