package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// flusher flushes content. Callers that wait for it at the same time share a flush: one that begins
// after they came.
type flusher struct {
	target syncTarget

	mu      sync.Mutex
	cond    *sync.Cond
	begun   uint64 // flushes; at most one is running
	done    uint64
	failed  uint64 // the last one that failed
	failure error
}

func newFlusher(dir string) (*flusher, error) {
	f := &flusher{}
	f.cond = sync.NewCond(&f.mu)
	return f, f.target.open(dir)
}

// wait returns when a flush has ended that began after the call.
func (f *flusher) wait() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	mine := f.begun + 1
	for f.done < mine {
		if f.begun > f.done {
			f.cond.Wait()
			continue
		}
		f.begun++
		f.mu.Unlock()
		err := f.sync()
		f.mu.Lock()
		f.done = f.begun
		if err != nil {
			f.failed, f.failure = f.done, err
		}
		f.cond.Broadcast()
	}
	if f.failed >= mine {
		return f.failure
	}
	return nil
}

func (f *flusher) sync() error {
	if t := testSyncError.Load(); t != nil {
		if err := (*t)(); err != nil {
			return err
		}
	}
	return f.target.sync()
}

func (f *flusher) close() error { return f.target.close() }

// flushContent returns when what the snapshot t has is on the disk. If that fails it is not known
// what else was not written: snapshots begun before cannot be committed any more.
func (s *Store) flushContent(ctx context.Context, t Tree) error {
	var err error
	if y, ok := s.driver.(Syncer); ok {
		err = y.Sync(ctx, t)
	} else if sharedFlush {
		err = s.flush.wait()
	} else {
		err = flushTree(t.Dir)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("flush content: %w", errors.Join(err, s.flushFailed()))
}

// flushFailed remembers that nothing begun so far can be committed.
func (s *Store) flushFailed() error {
	last := s.ids.upcoming() - 1
	s.mu.Lock()
	s.suspect = max(s.suspect, last)
	s.mu.Unlock()
	s.log.Error("flushing content failed; snapshots begun so far cannot be committed", "up to ID", last)
	return s.update("suspect", func(t *txn) error { return t.put(inMeta, keySuspect, number(uint64(last))) })
}

// isSuspect is ErrSuspect for a snapshot that was begun before a flush failed.
func (s *Store) isSuspect(id ID) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if id <= s.suspect {
		return ErrSuspect
	}
	return nil
}

// flushDelay is how long after a commit with SyncDeferred its content is flushed.
const flushDelay = time.Second

// flushLater flushes what SyncDeferred has put off.
func (s *Store) flushLater() {
	delay := flushDelay
	if t := testFlushDelay.Load(); t != nil {
		delay = *t
	}
	s.every(delay, "flushing the content of committed snapshots failed", s.flushDeferred)
}

// every calls do, again and again so long after the last time, until the store closes. Its errors are logged as failed
// says.
func (s *Store) every(delay time.Duration, failed string, do func() error) {
	tick := time.NewTicker(delay)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			if err := do(); err != nil {
				s.log.Error(failed, "error", err)
			}
		}
	}
}

// flushDeferred flushes the content of all commits that were made, and stores that it is on
// the disk.
func (s *Store) flushDeferred() error {
	var st syncState
	read := func(t *txn) error {
		v, err := t.get(inMeta, keySync)
		if err == nil {
			st, err = parseSyncState(v)
		}
		return err
	}
	if err := s.view("synced", read); err != nil || st.commit == st.synced {
		return err
	}
	upTo := st.commit
	var err error
	if y, ok := s.driver.(Syncer); ok {
		err = y.Sync(context.Background(), Tree{Layer: Layer{Dir: s.root}})
	} else {
		err = s.flush.wait()
	}
	if err != nil {
		// The kernel tells of it once: what was not written then is not written by the
		// next flush either.
		return errors.Join(err, s.flushFailed(), s.distrustDeferred(upTo))
	}
	return s.update("synced", func(t *txn) error {
		if err := read(t); err != nil {
			return err
		}
		st.synced = max(st.synced, upTo)
		return t.put(inMeta, keySync, st.append(nil))
	})
}

// distrustDeferred distrusts the commits up to a number that are not on the disk, since
// flushing them failed.
func (s *Store) distrustDeferred(upTo uint64) error {
	var lost commitRange
	err := s.update("distrust", func(t *txn) error {
		v, err := t.get(inMeta, keySync)
		if err != nil {
			return err
		}
		st, err := parseSyncState(v)
		if err != nil || st.synced >= upTo {
			return err
		}
		lost = commitRange{st.synced + 1, upTo}
		st.synced = upTo
		if err := t.put(inDistrusted, number(lost.last), number(lost.first)); err != nil {
			return err
		}
		return t.put(inMeta, keySync, st.append(nil))
	})
	if err == nil && lost.last != 0 {
		s.mu.Lock()
		s.distrust = append(s.distrust, lost)
		s.mu.Unlock()
	}
	return err
}
