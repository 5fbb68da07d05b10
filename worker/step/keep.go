package step

import (
	"errors"
	"fmt"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
)

// keep makes an active snapshot the result of a step: it completes the record, writes it with the output, and then commits the
// snapshot. The record names the layer, so until then it is of nothing, and when the process ends in between, it is swept; the
// other way around, the output would be lost. If only the record cannot be written, the snapshot is committed all the same, and
// adopted when the step is asked for again.
//
// One run at a time keeps something under an ID: of two, of which one has NoCache, the second would replace the record of the
// first, and fail to commit.
func (r *Runner) keep(f *flight, id ID, key string, rec *record, out []byte, labels map[string]string) error {
	end, err := r.keeping.Lock(f.ctx, id)
	if err != nil {
		return err
	}
	defer end()
	name := id.Snapshot()
	switch _, err := r.opt.Namespace.Stat(f.ctx, name); {
	case err == nil:
		return fmt.Errorf("%s: %w", name, snapshot.ErrExists)
	case !errors.Is(err, snapshot.ErrNotFound):
		return err
	}
	info, err := r.opt.Namespace.Stat(f.ctx, key)
	if err != nil {
		return err
	}
	now := uint64(max(time.Now().UnixNano(), 1))
	rec.flags, rec.layer, rec.snapshot, rec.created, rec.used = flagLayer, uint64(info.ID), name, now, now
	unrecorded := r.results.put(id, rec, out)
	r.at(atRecorded, id)
	if err := r.opt.Namespace.Commit(f.ctx, name, key, r.commitOptions(f, labels)...); err != nil {
		if errors.Is(err, holdfast.ErrStopped) { // it may be committed: the next start finds out
			return err
		}
		if gone := r.results.drop([]ID{id}, now+1); gone != nil {
			r.log.Error("the record of a step that failed stays until the next start", "step", id.String(), "reason", gone)
		}
		return err
	}
	r.at(atCommitted, id)
	if unrecorded != nil {
		return fmt.Errorf("%w: %w", errUnrecorded, unrecorded)
	}
	return nil
}

// errUnrecorded: the result is there, and its record could not be written.
var errUnrecorded = errors.New("the result is kept without its output")

// keeps tells whether something is being kept under an ID: its record may be there before its snapshot.
func (r *Runner) keeps(id ID) bool {
	end, _ := r.keeping.Try(id)
	if end != nil {
		end()
	}
	return end == nil
}
