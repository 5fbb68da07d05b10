package vacuum

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/tree"
	"holdfast/internal/vfs"
)

// stepper writes targets anew, each step in a transaction of its own.
type stepper struct {
	run  *vac
	edit tree.Edit

	// Of the step under way:
	w     *pager.WriteTx
	began time.Time // when it got the writer lock,
	mayDo uint64    // and how many pages it may write
	tx    bucket.Tx
	root  bucket.Bucket
	path  [][]byte       // of the bucket that was opened last
	last  *bucket.Bucket // that
	short uint64         // pages that it will take anywhere, one by one

	tight bool  // there was no room: the file is not to grow any more
	full  error // of the last step for which there was none even so
}

// do writes the first of targets, at least one, and returns how many: as many as a
// step may.
func (s *stepper) do(ctx context.Context, targets []target) (n int, err error) {
	wrote := false
	v := s.run
	before := v.places
	err = s.write(func() error {
		pages := uint64(0)
		n, wrote = 0, false
		v.places = before
		for n < len(targets) {
			t := &targets[n]
			if n > 0 && (pages+t.pages > s.mayDo || time.Since(s.began) > s.run.o.StepTime) {
				break
			}
			n++
			ok, err := s.apply(t)
			if err != nil {
				return err
			}
			if ok {
				pages += t.pages
				wrote = true
			}
		}
		return nil
	})
	if noRoom(err) && n > 0 { // others may need less
		v.places, s.full = before, err
		for _, t := range targets[:n] {
			v.noPlace(t.pages)
		}
		return n, nil
	}
	if err != nil {
		return n, err
	}
	if !wrote {
		return n, nil
	}
	s.run.result.Steps++
	s.run.acted = true
	return n, s.pause(ctx, time.Since(s.began))
}

// longestPause is the longest pause after one step.
const longestPause = time.Hour

// pause leaves time to others after a step that took some. What the step waited for the writer lock is not of that.
func (s *stepper) pause(ctx context.Context, took time.Duration) error {
	if err := s.run.rest(ctx, restStep); err != nil {
		return err
	}
	share := s.run.o.Share
	if share <= 0 || share >= 1 {
		return nil
	}
	return sleep(ctx, pauseAfter(took, share))
}

// pauseAfter is how long to pause after a step that took some time, for steps to take this share of the time.
func pauseAfter(took time.Duration, share float64) time.Duration {
	return time.Duration(min(float64(took)*(1-share)/share, float64(longestPause)))
}

// sleep returns after a while, or when ctx ends, with its error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// lower lets the high-water mark fall.
func (s *stepper) lower() error {
	return s.write(func() error {
		s.w.Lower()
		return nil
	})
}

// write runs fn in a transaction. If there is no room it does so once more, with what
// the last transactions have freed, and from then on nothing is written for which the
// file would have to grow.
func (s *stepper) write(fn func() error) error {
	err := s.try(fn)
	if !noRoom(err) {
		return err
	}
	s.tight = true
	if err := s.run.p.Sync(); err != nil {
		return err
	}
	return s.try(fn)
}

// noRoom tells whether err says that the file could not grow.
func noRoom(err error) bool { return vfs.IsFull(err) || errors.Is(err, pager.ErrMaxSizeReached) }

func (s *stepper) try(fn func() error) error {
	asked := time.Now()
	w, err := s.run.p.BeginWrite()
	if err != nil {
		return err
	}
	s.began = time.Now()
	s.mayDo = s.run.pagesAfter(s.began.Sub(asked))
	prepared, err := s.prepare(w, fn)
	s.run.result.Longest = max(s.run.result.Longest, time.Since(s.began))
	if err != nil {
		return err
	}
	if prepared == nil {
		return w.Rollback()
	}
	if err := prepared.Finish(); err != nil {
		return err
	}
	s.run.own++
	return nil
}

// prepare runs fn on w and prepares what it did; nil if that is nothing. On an error w
// has ended.
func (s *stepper) prepare(w *pager.WriteTx, fn func() error) (*pager.Prepared, error) {
	base := w.Base().Meta
	s.edit.Reset(w)
	s.w, s.last, s.path, s.short = w, nil, nil, 0
	s.tx = bucket.Tx{Source: w, Writer: w, Edit: &s.edit}
	s.root.OpenRoot(&s.tx, base.Root, base.Sequence)
	root, sequence, err := base.Root, base.Sequence, error(nil)
	changed := false
	func() {
		defer w.Base().Image().CatchFault(debug.SetPanicOnFault(true), &err)
		if err = fn(); err == nil {
			err = w.Unreserve()
		}
		if err == nil {
			if changed = s.root.Changed(); changed {
				root, sequence, err = s.root.Commit()
			}
		}
	}()
	pages := s.edit.Stats.PagesFilled
	s.edit.Reset(nil)
	if err != nil {
		if failed := w.Rollback(); failed != nil {
			err = failed // what the transaction stood on
		}
		return nil, err
	}
	if !changed && !w.Lowers() {
		return nil, nil
	}
	prepared, err := w.Prepare(root, sequence, s.run.o.Commit)
	if err == nil {
		s.run.result.PagesWritten += pages
	}
	return prepared, err
}

// maxRise is by how many steps' pages the file may grow at first, if none are free:
// what a step frees can be used again only some transactions later, and if a reader
// holds an old state, not before that reader has ended.
const maxRise = 4

// spareForBranches is how many pages more than a target's must be free where the file
// cannot grow: for the branches above it.
const spareForBranches = 16

// apply makes what is to be written nodes. ok is false if there is nothing to be gained.
// The targets of a step get their pages together, at its end: the hole of each is
// reserved, or several would be promised the same one.
func (s *stepper) apply(t *target) (ok bool, err error) {
	b, err := s.bucket(t.path)
	if err != nil || b == nil {
		return false, err
	}
	if t.join > 0 {
		if !s.mayJoin(t) {
			return s.moveInstead(t)
		}
		return true, b.Tree().Pack(t.key, t.depth, t.join, s.run.o.Fill)
	}
	before := t.id
	if !s.w.Reserve(t.pages, before) {
		s.run.noPlace(t.pages)
		return false, nil
	}
	return true, b.Tree().Rewrite(t.key, t.depth)
}

// moveInstead moves those runs that a target was to join, and for which there is no room
// together, that are not to stay where they are.
func (s *stepper) moveInstead(t *target) (ok bool, err error) {
	s.run.joins += t.pages
	s.run.longestJoin = max(s.run.longestJoin, t.pages)
	for i := range t.instead {
		moved, err := s.apply(&t.instead[i])
		if err != nil {
			return false, err
		}
		ok = ok || moved
	}
	return ok, nil
}

// mayJoin tells whether there is room for what neighbours become: long runs all together
// in one hole, or they would leave others behind that are too short for the next; single
// pages anywhere, or, to begin with, a little past the end.
func (s *stepper) mayJoin(t *target) bool {
	if t.long {
		return s.w.Reserve(t.pages, anywhere)
	}
	wanted := s.short + t.pages
	if s.tight {
		wanted += spareForBranches
	}
	if s.w.FreeCount() < wanted && (s.tight || s.w.HighWater() > s.run.start+page.ID(maxRise*s.run.o.StepPages)) {
		return false
	}
	s.short += t.pages
	return true
}

// anywhere is before no page.
const anywhere = page.ID(math.MaxUint64)

// noPlace counts a run that was to be moved and found no place before its own.
func (v *vac) noPlace(pages uint64) {
	v.stuck += pages
	v.longestStuck = max(v.longestStuck, pages)
	if pages > 1 {
		v.values++
	}
}

// bucket is the bucket at path; nil if there is none any more.
func (s *stepper) bucket(path [][]byte) (*bucket.Bucket, error) {
	if s.last != nil && slices.EqualFunc(s.path, path, slices.Equal) {
		return s.last, nil
	}
	b := &s.root
	for _, name := range path {
		child := b.Child(name)
		if child == nil {
			child = new(bucket.Bucket)
			if ok, err := b.OpenChild(name, child); err != nil || !ok {
				return nil, err
			}
		}
		b = child
	}
	s.path, s.last = path, b
	return b, nil
}
