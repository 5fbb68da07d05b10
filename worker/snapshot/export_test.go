package snapshot

import "time"

// SetBootID has stores that are opened from now on believe that the machine was started under this id; ""
// is the end of that.
func SetBootID(id string) {
	testBootID.Store(nil)
	if id != "" {
		testBootID.Store(&id)
	}
}

// SetSyncError has a function called before each flush, whose error is the flush's; nil is the end of that.
func SetSyncError(fn func() error) {
	testSyncError.Store(nil)
	if fn != nil {
		testSyncError.Store(&fn)
	}
}

// FlushDeferred does what SyncDeferred does after a second.
func (s *Store) FlushDeferred() error { return s.flushDeferred() }

// Crash closes the files of a store as the end of the process would: nothing is flushed or given back.
func (s *Store) Crash() {
	s.stop()
	s.background.Wait()
	s.closed.Store(true)
	_ = s.release()
}

// SetFlushDelay sets how long SyncDeferred waits, of stores that are opened from now on; 0 is the end of that.
func SetFlushDelay(d time.Duration) {
	testFlushDelay.Store(nil)
	if d != 0 {
		testFlushDelay.Store(&d)
	}
}

// LookAround does what Open does in the background.
func (s *Store) LookAround() error { return s.lookAround() }

// Flushes is how often the metadata were flushed.
func (s *Store) Flushes() int { return s.db.Stats().Flushes }

// SetUseGrain has every use of a parent count that is so long after the one before; negative is the end of that.
func SetUseGrain(d time.Duration) {
	testUseGrain.Store(nil)
	if d >= 0 {
		testUseGrain.Store(&d)
	}
}

// Attempt runs a writing transaction.
func (s *Store) Attempt(fn func() error) error {
	return s.update("attempt", func(*txn) error { return fn() })
}

// AwaitHeld returns when n removed snapshots wait for the driver, and all others are deleted.
func (s *Store) AwaitHeld(n int) {
	r := s.reaper
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held != n || r.batch > 0 || len(r.queue) > 0 {
		r.idle.Wait()
	}
}

// GiveBackIDs does what Close does with IDs that were not used.
func (s *Store) GiveBackIDs() error { return s.ids.giveBack(s) }

// SetPointHook has a function called with how far a repair, or the making of a directory, has come; nil is the end of
// that.
func SetPointHook(fn func(point string) error) {
	testPoint.Store(nil)
	if fn != nil {
		testPoint.Store(&fn)
	}
}

// Written is how many pages of the metadata were written.
func (s *Store) Written() int { return int(s.db.Stats().PagesWritten) }

// Closing is closed when the store is being closed, and what goes on in the background ends.
func (s *Store) Closing() <-chan struct{} { return s.ctx.Done() }
