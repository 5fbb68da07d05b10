package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Report is what was found after opening a store.
type Report struct {
	Orphans int      // directories that no record has ever named: left by a crash, and deleted
	Trash   int      // removed snapshots that were not deleted yet
	Missing []ID     // snapshots without a directory
	Strange []string // entries that are not the store's, and are left alone

	Quarantined []ID // directories that no record names, although one did: kept, see Store.Quarantined
	Returned    []ID // directories in quarantine that a record names again, and that are back at their place
}

// Reconciled returns when what a crash may have left has been looked for, with what was
// found. Deleting it may still go on: see Cleanup.
func (s *Store) Reconciled(ctx context.Context) (Report, error) {
	select {
	case <-s.reconciled:
		r := s.report
		r.Quarantined = s.inQuarantine() // Prepare may have met one since
		return r, s.reportErr
	case <-ctx.Done():
		return Report{}, ctx.Err()
	}
}

// reconcile compares directories and records, and has those deleted that a crash has left.
func (s *Store) reconcile() {
	defer close(s.reconciled)
	s.reportErr = s.lookAround()
	s.report.Quarantined = s.inQuarantine()
	if s.reportErr != nil {
		if s.ctx.Err() != nil {
			s.reportErr = ErrClosed
			return
		}
		s.log.Error("looking for what a crash left failed", "error", s.reportErr)
		return
	}
	s.mu.RLock()
	more := s.quarantine.more
	s.mu.RUnlock()
	if more > 0 {
		s.log.Warn("metadata.db is older than directories of snapshots, or was made anew: what it does not know of is in quarantine now",
			"directories", more, "in", filepath.Join(s.root, quarantineName))
	}
	if r := s.report; r.Orphans+r.Trash+len(r.Missing)+len(r.Strange)+len(r.Quarantined)+len(r.Returned) > 0 {
		s.log.Info("reconciled", "orphans", r.Orphans, "trash", r.Trash, "missing", r.Missing, "strange", r.Strange,
			"in quarantine", r.Quarantined, "back from quarantine", r.Returned)
	}
}

func (s *Store) lookAround() error {
	if err := s.findTrash(); err != nil {
		return fmt.Errorf("find removed snapshots: %w", err)
	}
	if err := s.sweepTrash(); err != nil {
		return err
	}
	present, err := s.findOrphans()
	if err != nil {
		return fmt.Errorf("find orphans: %w", err)
	}
	if err := s.findMissing(present); err != nil {
		return fmt.Errorf("find missing directories: %w", err)
	}
	return nil
}

// findTrash has the reaper go on with what was removed before.
func (s *Store) findTrash() error {
	return s.view("trash", func(t *txn) error {
		return t.scan(inTrash, nil, nil, func(k, v []byte) (bool, error) {
			id, _, err := fixed("removed snapshot", k, 1)
			if err != nil {
				return false, err
			}
			size, err := parseTrash(v)
			if err != nil {
				return false, err
			}
			s.report.Trash++
			s.reaper.add(doomed{id: ID(id)}, size)
			return true, s.ctx.Err()
		})
	})
}

// sweepTrash has the reaper delete what is in the directory trash and nowhere else.
func (s *Store) sweepTrash() error {
	return s.entries(trashDir, s.orphan)
}

// orphan has the directory of an ID deleted, or put into quarantine, unless the metadata name it.
func (s *Store) orphan(id ID) error {
	if !s.ids.claimOrphan(id) { // first: when it is no longer made it is known
		return nil
	}
	known, err := s.known(id)
	if err != nil || known {
		s.ids.done(id)
		if known {
			s.stillMarked(id)
		}
		return err
	}
	kept, err := s.stray(id)
	if err == nil && !kept {
		s.report.Orphans++
	}
	return err
}

// stillMarked sees to it that the directory of a snapshot loses the mark that a crash has left.
func (s *Store) stillMarked(id ID) {
	if info, err := os.Lstat(s.dir(id)); err == nil && info.Mode()&unentered != 0 {
		s.enteredBefore(id)
	}
}

// known tells whether the metadata have an ID.
func (s *Store) known(id ID) (known bool, err error) {
	err = s.view("orphan", func(t *txn) error {
		for _, n := range []bucket{inIDs, inTrash} {
			v, err := t.get(n, number(uint64(id)))
			if err != nil {
				return err
			}
			known = known || v != nil
		}
		return nil
	})
	return known, err
}

// findOrphans deals with directories that no record names, and returns the IDs of all.
func (s *Store) findOrphans() (present []ID, err error) {
	if err := s.entries(newDir, s.orphan); err != nil {
		return nil, err
	}
	err = s.entries(snapshotsDir, func(id ID) error {
		present = append(present, id)
		return s.orphan(id)
	})
	slices.Sort(present)
	if err == nil {
		err = s.unmarkEntered()
	}
	return present, err
}

// entries calls fn for what lies in one of the directories and is called like a snapshot's
// directory.
func (s *Store) entries(dir string, fn func(id ID) error) error {
	f, err := os.Open(filepath.Join(s.root, dir))
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			id, ok := parseID(name)
			if !ok {
				s.report.Strange = append(s.report.Strange, filepath.Join(dir, name))
				continue
			}
			if err := fn(id); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// findMissing finds snapshots without a directory: those whose ID is not among present. Those that
// the driver has not finished are finished now.
func (s *Store) findMissing(present []ID) error {
	return s.view("missing", func(t *txn) error {
		return t.scan(inIDs, nil, nil, func(k, key []byte) (bool, error) {
			n, _, err := fixed("ID", k, 1)
			if err != nil {
				return false, err
			}
			if _, ok := slices.BinarySearch(present, ID(n)); ok {
				return true, s.findUnfinished(t, key, ID(n))
			}
			// It may be younger than the list.
			if _, err := os.Lstat(s.dir(ID(n))); errors.Is(err, os.ErrNotExist) {
				s.report.Missing = append(s.report.Missing, ID(n))
			}
			return true, s.ctx.Err()
		})
	})
}

func (s *Store) findUnfinished(t *txn, key []byte, id ID) error {
	f := s.reaper.finisher
	if f == nil || s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	r, err := t.record(key)
	if err == nil && r.kind == Committed && !f.Finished(s.layer(id)) {
		s.reaper.finish(id)
	}
	return err
}
