package step

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"holdfast/worker/disk"
)

// This file has the kernel refuse what a step writes beyond its limit of disk, where the file system can: otherwise the step is looked
// at now and then, and can have written much more by then.

// quotaSlack is how near to its limit a step counts as refused: the last block may not have fitted.
const quotaSlack = 8 << 10

// limitDisk limits what the snapshot of a step takes, if it can: nil if not.
func (r *Runner) limitDisk(f *flight) *disk.Quota {
	limit := f.step.Limits.Disk
	if limit <= 0 || r.quotas() != nil {
		return nil
	}
	info, err := r.opt.Namespace.Stat(f.ctx, f.id.running())
	if err != nil {
		return nil // what follows fails of it, too
	}
	dir := filepath.Join(r.store.Root(), "snapshots", info.ID.String())
	dirs, err := emptyTrees(dir)
	if err != nil || dirs == nil {
		return nil
	}
	q, err := disk.LimitTrees(uint64(info.ID), limit, dirs...)
	if err != nil {
		r.log.Warn("a step's limit of disk is not a quota", "step", f.id.String(), "error", err)
		return nil
	}
	return q
}

// emptyTrees are the directory of a snapshot and those in it, if there is nothing in these, as in what an overlay writes to; nil if there
// is.
func emptyTrees(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	dirs := []string{dir}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		inside, err := os.ReadDir(at)
		if err != nil || len(inside) > 0 {
			return nil, err
		}
		dirs = append(dirs, at)
	}
	return dirs, nil
}

// liftDisk ends the limit of a step that has ended with err, and returns that, or that the step was refused something.
func (r *Runner) liftDisk(f *flight, q *disk.Quota, err error) error {
	if q == nil {
		return err
	}
	used, usedErr := q.Used()
	if e := errors.Join(usedErr, q.Lift()); e != nil {
		return r.fault(f, errors.Join(err, e))
	}
	var fail *Failure
	limit := f.step.Limits.Disk
	if used+quotaSlack <= limit || err != nil && !errors.As(err, &fail) || errors.Is(err, ErrCanceled) || errors.Is(err, ErrDisk) {
		return err
	}
	if fail == nil {
		fail = &Failure{ID: f.id}
		fail.Output, fail.OutputSize = f.out.text()
	}
	fail.Reason = fmt.Errorf("%w: %s of %s", ErrDisk, human(used), human(limit))
	return fail
}

// human is a number of bytes for people.
func human(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }
