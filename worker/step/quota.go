package step

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
)

// This file has the kernel refuse what a step writes beyond its limit of disk, where the file system can:
// otherwise the step is looked at now and then, and can have written much more by then.

// quotaSlack is how near to its limit a step counts as refused: the last block may not have fitted, and a new file can
// take more than one inode while it is made.
var quotaSlack = snapshot.Usage{Size: 8 << 10, Inodes: fullInodes}

// leastInodes is how many inodes each limit of disk allows: an installed package or an unpacked source has some
// thousand small files.
const leastInodes = 10_000

// zfs is the name of the driver whose snapshots are file systems of ZFS.
const zfs = "zfs"

// diskLimit is what a snapshot may take.
type diskLimit struct{ bytes, inodes int64 } // 0: no limit

// diskLimit is what the snapshot of a step may take.
func (r *Runner) diskLimit(l *Limits) diskLimit {
	limit := diskLimit{bytes: max(l.Disk, 0)}
	if limit.bytes == 0 || r.store.Driver().Name() == zfs { // a file system of ZFS counts no inodes
		return limit
	}
	if fs, err := disk.Measure(r.store.Root()); err == nil && fs.Inodes > 0 {
		limit.inodes = max(fs.Share(limit.bytes), leastInodes)
	}
	return limit
}

// exceeded is why a snapshot that takes u takes more than it may, or would with slack; nil if it does not.
func (l diskLimit) exceeded(u, slack snapshot.Usage) error {
	switch {
	case l.bytes > 0 && u.Size+slack.Size > l.bytes:
		return fmt.Errorf("%w: %s of %s", ErrDisk, human(u.Size), human(l.bytes))
	case l.inodes > 0 && u.Inodes+slack.Inodes > l.inodes:
		return fmt.Errorf("%w: %s of %s", ErrInodes, humanize.Comma(u.Inodes), humanize.Comma(l.inodes))
	}
	return nil
}

// limitDisk limits what the snapshot of a step takes, if it can: nil if not.
func (r *Runner) limitDisk(f *flight) *disk.Quota {
	if f.disk.bytes == 0 || r.quotas() != nil {
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
	q, err := disk.LimitTrees(uint64(info.ID), f.disk.bytes, f.disk.inodes, dirs...)
	if err != nil {
		r.log.Warn("a step's limit of disk is not a quota", "step", f.id.String(), "error", err)
		return nil
	}
	return q
}

// emptyTrees are the directory of a snapshot and those in it, if there is nothing in these, as in what an
// overlay writes to; nil if there is.
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
	bytes, inodes, usedErr := q.Used()
	if e := errors.Join(usedErr, q.Lift()); e != nil {
		return r.fault(f, errors.Join(err, e))
	}
	var fail *Failure
	reason := f.disk.exceeded(snapshot.Usage{Size: bytes, Inodes: inodes}, quotaSlack)
	if reason == nil || err != nil && !errors.As(err, &fail) || errors.Is(err, ErrCanceled) || errors.Is(err, ErrDisk) {
		return err
	}
	if fail == nil {
		fail = &Failure{ID: f.id}
		fail.Output, fail.OutputSize = f.out.text()
	}
	fail.Reason = reason
	return fail
}

// human is a number of bytes for people.
func human(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }
