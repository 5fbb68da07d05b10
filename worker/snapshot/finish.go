package snapshot

import (
	"context"
	"slices"
)

// This file runs what drivers have to do after a commit, in the background; the reaper, in reap.go, keeps the queue.

// finish has the driver finish a snapshot that was committed.
func (r *reaper) finish(id ID) {
	if r.finisher == nil {
		return
	}
	r.mu.Lock()
	r.unfinished = append(r.unfinished, id)
	r.mu.Unlock()
	signal(r.wakeUp)
}

// runFinish finishes until the store closes.
func (r *reaper) runFinish() {
	for {
		select {
		case <-r.s.ctx.Done():
			return
		case <-r.wakeUp:
		}
		for r.s.ctx.Err() == nil && r.finishOne() {
		}
	}
}

// finishOne has the driver finish the first in the queue; false if there is none.
func (r *reaper) finishOne() bool {
	r.mu.Lock()
	if len(r.unfinished) == 0 {
		r.mu.Unlock()
		return false
	}
	id := r.unfinished[0]
	r.unfinished = r.unfinished[1:]
	r.finishing = true
	r.mu.Unlock()
	if err := r.s.finishOne(r.finisher, id); err != nil && r.s.ctx.Err() == nil {
		r.s.log.Error("finishing a committed snapshot failed; it is tried again before anything is made on it, and when the store is opened", "ID", id, "error", err)
	}
	r.mu.Lock()
	r.finishing = false
	r.idle.Broadcast()
	r.mu.Unlock()
	return true
}

// finishOne has the driver finish a snapshot, unless it has been removed, and stores what it takes
// then.
func (s *Store) finishOne(f Finisher, id ID) error {
	return s.measureOne(s.ctx, "finish", id, f.Finish)
}

// stopFinishing takes an ID out of those that are to be finished.
func (r *reaper) stopFinishing(id ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unfinished = slices.DeleteFunc(r.unfinished, func(u ID) bool { return u == id })
}

// Finished returns when the driver has finished all snapshots that were committed before: see
// Finisher.
func (s *Store) Finished(ctx context.Context) error {
	r := s.reaper
	defer context.AfterFunc(ctx, r.broadcast)()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.unfinished) > 0 || r.finishing {
		if s.ctx.Err() != nil {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.idle.Wait()
	}
	return nil
}
