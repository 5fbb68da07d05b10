package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdfast/worker/internal/fstree"
)

// reaper deletes the directories of snapshots that are removed, in the background, and runs what
// drivers have to do after a commit.
type reaper struct {
	s        *Store
	finisher Finisher // nil: the driver has nothing to do
	wake     chan struct{}
	hurry    chan struct{} // there is enough to do, or a caller waits
	wakeUp   chan struct{} // for the finisher

	mu         sync.Mutex
	idle       *sync.Cond
	queue      []doomed
	batch      int // being reaped
	parked     map[ID]*parked
	held       int          // whose driver is still at work
	sizes      map[ID]Usage // of all of these; what is not known of them is unmeasured
	sum        Usage        // of what is known
	finishing  bool
	unfinished []ID
}

// doomed is a directory that is to go.
type doomed struct {
	id     ID
	making bool // it was never entered, and no other caller knows its ID
}

// parked is a directory that could not be deleted.
type parked struct {
	doomed
	err   error
	delay time.Duration
	due   time.Time
}

const (
	reapBatch  = 64                    // IDs taken out of the bucket trash in one transaction
	reapDelay  = 50 * time.Millisecond // how long is waited for that many
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
	leaseTick  = time.Minute
)

func newReaper(s *Store) *reaper {
	r := &reaper{s: s, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), wakeUp: make(chan struct{}, 1), parked: map[ID]*parked{}, sizes: map[ID]Usage{}}
	r.idle = sync.NewCond(&r.mu)
	r.finisher, _ = s.driver.(Finisher)
	return r
}

// add has a directory deleted that takes so much.
func (r *reaper) add(d doomed, size Usage) {
	r.mu.Lock()
	r.queue = append(r.queue, d)
	r.setSize(d.id, size)
	enough := len(r.queue) >= reapBatch
	r.mu.Unlock()
	signal(r.wake)
	if enough {
		signal(r.hurry)
	}
}

// setSize notes what goes with a directory.
func (r *reaper) setSize(id ID, size Usage) {
	r.dropSize(id)
	r.sizes[id] = size
	r.sum.Size += max(size.Size, 0)
	r.sum.Inodes += max(size.Inodes, 0)
}

func (r *reaper) dropSize(id ID) {
	r.sum.Size -= max(r.sizes[id].Size, 0)
	r.sum.Inodes -= max(r.sizes[id].Inodes, 0)
	delete(r.sizes, id)
}

// TrashUsage is what the directories take that are to be deleted. Where that is not known, of active snapshots and of
// what another process has left, it is measured, once, in proportion to the number of files. What goes meanwhile, or
// has gone in part, may still be counted.
func (s *Store) TrashUsage(ctx context.Context) (Usage, error) {
	r := s.reaper
	r.mu.Lock()
	var unknown []ID
	for id, size := range r.sizes {
		if size.Inodes == unmeasured {
			unknown = append(unknown, id)
		}
	}
	r.mu.Unlock()
	for _, id := range unknown {
		var found Usage
		for _, dir := range []string{newDir, snapshotsDir, trashDir} { // as it moves
			u, err := fstree.Measure(ctx, filepath.Join(s.root, dir, id.String()))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return Usage{}, fmt.Errorf("measure what is to be deleted: %w", err)
			}
			if err == nil {
				found = Usage{Size: max(found.Size, u.Size), Inodes: max(found.Inodes, u.Inodes)}
			}
		}
		r.mu.Lock()
		if was, there := r.sizes[id]; there && was.Inodes == unmeasured {
			if was.Size != unmeasured { // as its commit has found it
				found.Size = was.Size
			}
			r.setSize(id, found)
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run deletes until the store closes.
func (r *reaper) run() {
	leases := time.NewTicker(leaseTick)
	defer leases.Stop()
	defer r.broadcast()
	for {
		retry := time.NewTimer(r.unpark(time.Now()))
		select {
		case <-r.s.ctx.Done():
		case <-r.wake:
			r.gather()
		case <-retry.C:
		case <-leases.C:
			if err := r.s.ExpireLeases(r.s.ctx); err != nil {
				r.s.log.Error("expiring leases failed", "error", err)
			}
		}
		retry.Stop()
		for r.s.ctx.Err() == nil && r.reapSome() {
		}
		if r.s.ctx.Err() != nil {
			return
		}
	}
}

// gather waits for more, so that what is deleted in the background does not cost those who work in the
// foreground a flush each.
func (r *reaper) gather() {
	wait := time.NewTimer(reapDelay)
	defer wait.Stop()
	select {
	case <-r.s.ctx.Done():
	case <-wait.C:
	case <-r.hurry:
	}
}

func (r *reaper) broadcast() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle.Broadcast()
}

// unpark puts those whose time has come into the queue again, and tells how long it is to the next one.
func (r *reaper) unpark(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, begin := maxDelay, len(r.queue)
	for _, p := range r.parked {
		if wait := p.due.Sub(now); wait <= 0 {
			r.queue = append(r.queue, p.doomed)
			p.due = now.Add(maxDelay) // not twice
			next = 0
		} else {
			next = min(next, wait)
		}
	}
	youngestFirst(r.queue[begin:])
	return next
}

// reapSome deletes a batch; false if there was nothing to do.
func (r *reaper) reapSome() bool {
	r.mu.Lock()
	n := min(len(r.queue), reapBatch)
	batch := slices.Clone(r.queue[:n])
	youngestFirst(batch)
	r.queue = r.queue[n:]
	r.batch = n
	r.mu.Unlock()
	if n == 0 {
		r.broadcast()
		return false
	}
	again := batch
	gone, err := r.reapAll(batch)
	if err == nil {
		again = gone // the others are parked or held
		err = r.forget(gone)
	}
	if err != nil && r.s.ctx.Err() == nil {
		r.s.log.Error("deleting removed snapshots failed", "error", err)
		for _, d := range again {
			r.park(d, err)
		}
	}
	r.mu.Lock()
	r.batch = 0
	r.idle.Broadcast()
	r.mu.Unlock()
	return true
}

// youngestFirst orders what is to be deleted: a driver may keep a child in a way that its parent cannot go before, and
// the child's ID is the larger one. In the queue it stands first, as it is removed first, but for what was there when
// the store was opened and for what is tried again. What fails in spite of that is parked, and tried again.
func youngestFirst(list []doomed) {
	slices.SortFunc(list, func(a, b doomed) int { return cmp.Compare(b.id, a.id) })
}

// reapAll deletes the directories of a batch. Those that it cannot delete it parks, those in use it holds.
func (r *reaper) reapAll(batch []doomed) (gone []doomed, err error) {
	if err := r.s.durable(); err != nil { // (W2)
		return nil, err
	}
	for _, d := range batch {
		if r.s.ctx.Err() != nil {
			return gone, nil
		}
		r.stopFinishing(d.id)
		free, done := r.s.busy.try(d.id)
		if !free {
			r.hold(d, done)
			continue
		}
		err := r.reap(d.id)
		r.s.busy.release(d.id)
		if err == nil {
			gone = append(gone, d)
		} else if r.s.ctx.Err() == nil {
			r.park(d, err)
		}
	}
	return gone, nil
}

// hold puts a directory back into the queue when the driver, which is still at work on it, is done: that is no
// failure, and others need not wait.
func (r *reaper) hold(d doomed, done <-chan struct{}) {
	r.mu.Lock()
	r.held++
	delete(r.parked, d.id)
	r.mu.Unlock()
	r.s.background.Go(func() {
		select {
		case <-done:
		case <-r.s.ctx.Done():
		}
		r.mu.Lock()
		r.held--
		r.queue = append(r.queue, d)
		r.mu.Unlock()
		signal(r.wake)
		signal(r.hurry)
	})
}

// reap deletes what there is of an ID, with which no other call is at work. Each step may have been done before.
func (r *reaper) reap(id ID) error {
	l := Layer{ID: id, Dir: filepath.Join(r.s.root, trashDir, id.String())}
	found := false
	for _, dir := range []string{trashDir, newDir, snapshotsDir} {
		from := filepath.Join(r.s.root, dir, id.String())
		var err error
		if dir == trashDir { // it was here already
			_, err = os.Lstat(from)
		} else {
			err = os.Rename(from, l.Dir)
		}
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = r.erase(l)
		}
		if err != nil {
			return err
		}
		found = true
	}
	if found {
		return nil
	}
	return r.erase(l) // what the driver keeps elsewhere may be left
}

func (r *reaper) erase(l Layer) error {
	if err := r.s.driver.Remove(r.s.ctx, l); err != nil {
		return fmt.Errorf("driver %s: %w", r.s.driver.Name(), err)
	}
	return fstree.Remove(r.s.ctx, l.Dir)
}

// park has an ID tried again later.
func (r *reaper) park(d doomed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.parked[d.id]
	if p == nil {
		p = &parked{doomed: d, delay: firstDelay / 2}
		r.parked[d.id] = p
		r.s.log.Warn("a removed snapshot cannot be deleted yet", "ID", d.id, "error", err)
	}
	p.err = err
	p.delay = min(2*p.delay, maxDelay)
	p.due = time.Now().Add(p.delay)
}

// forget takes the IDs of directories that are gone out of the bucket trash.
func (r *reaper) forget(gone []doomed) error {
	entered := slices.ContainsFunc(gone, func(d doomed) bool { return !d.making })
	if entered {
		// First the names: after a power cut a directory that is back and has no record any more would not be known to
		// be garbage. (A flush of metadata.db need not flush them: it writes to blocks that the file has.)
		if err := fstree.Flush(filepath.Join(r.s.root, snapshotsDir)); err != nil {
			return err
		}
		err := r.s.update("forget", func(t *txn) error {
			for _, d := range gone {
				if d.making {
					continue
				}
				if err := t.delete(inTrash, number(uint64(d.id))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range gone {
		if d.making {
			r.s.ids.done(d.id)
		}
		delete(r.parked, d.id)
		r.dropSize(d.id)
	}
	return nil
}

// Cleanup returns when what was removed before is deleted. Its error tells of what cannot be
// deleted, which is tried again later.
func (s *Store) Cleanup(ctx context.Context) error {
	if _, err := s.Reconciled(ctx); err != nil { // what was removed before Open is known then
		return err
	}
	r := s.reaper
	defer context.AfterFunc(ctx, r.broadcast)()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.drain(ctx); err != nil {
		return err
	}
	// Once more: it can have been in the way that something had not gone which has now.
	begin := len(r.queue)
	for _, p := range r.parked {
		r.queue = append(r.queue, p.doomed)
		p.due = time.Now().Add(maxDelay) // not twice: see unpark
	}
	youngestFirst(r.queue[begin:])
	if err := r.drain(ctx); err != nil {
		return err
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(r.parked)) {
		errs = append(errs, fmt.Errorf("delete snapshot %v: %w", id, r.parked[id].err))
	}
	return errors.Join(errs...)
}

// drain waits until nothing is in the queue, being reaped or held. It is called with the lock.
func (r *reaper) drain(ctx context.Context) error {
	signal(r.wake)
	signal(r.hurry)
	for len(r.queue) > 0 || r.batch > 0 || r.held > 0 {
		if r.s.ctx.Err() != nil {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r.idle.Wait()
	}
	if r.s.ctx.Err() != nil { // what was under way was put away
		return ErrClosed
	}
	return nil
}
