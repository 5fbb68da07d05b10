package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdfast/worker/internal/fstree"
)

// This file keeps what the metadata do not name although other metadata did, as after an older metadata.db
// was put back: see W8 in docs/worker/internals.md. What a crash leaves is deleted by reconcile.go.

// unentered is the mark of a directory that no durable transaction has named yet. makeDir makes a directory with it;
// it goes when the transaction that enters the snapshot is durable. So a directory with the mark and without a
// record is what a crash has left, and one without both had a record once.
const unentered = os.ModeSticky

const (
	ownDirMode = os.FileMode(0o700)
	enterDelay = time.Second // how long marks wait for a flush of the metadata, unless each transaction is one
)

// quarantine is what is in the directory of that name.
type quarantine struct {
	held map[ID]struct{} // their IDs are claimed, so they are not given out

	more    int  // of them were put there since the store was opened
	entered []ID // marked directories whose transaction is not known to be durable yet
}

// Quarantined is a directory of a snapshot that the metadata do not name although metadata once did.
type Quarantined struct {
	ID       ID
	Usage    Usage
	Modified time.Time // when something in its topmost directory was made or removed last
}

// Quarantined returns what is kept in the directory quarantine, by ID. It waits for Reconciled, and measures.
func (s *Store) Quarantined(ctx context.Context) ([]Quarantined, error) {
	if _, err := s.Reconciled(ctx); err != nil {
		return nil, err
	}
	var list []Quarantined
	for _, id := range s.inQuarantine() {
		dir := s.quarantineDir(id)
		info, err := os.Lstat(dir)
		if errors.Is(err, os.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		usage, err := fstree.Measure(ctx, dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("measure what is in quarantine: %w", err)
		}
		list = append(list, Quarantined{ID: id, Usage: Usage{Size: usage.Size, Inodes: usage.Inodes}, Modified: info.ModTime().UTC()})
	}
	return list, nil
}

// RemoveQuarantined has directories in quarantine deleted, in the background as Remove does. ErrNotFound of an ID that
// is not there; those before it go.
func (s *Store) RemoveQuarantined(ctx context.Context, ids ...ID) error {
	if _, err := s.Reconciled(ctx); err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.condemn(id); err != nil {
			return fmt.Errorf("remove %v from quarantine: %w", id, err)
		}
	}
	return nil
}

func (s *Store) condemn(id ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.quarantine.held[id]; !ok {
		return ErrNotFound
	}
	if err := os.Rename(s.quarantineDir(id), filepath.Join(s.root, trashDir, id.String())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	delete(s.quarantine.held, id)
	s.reaper.add(doomed{id: id, making: true}, allUnmeasured) // which ends the claim
	return reached("condemned")
}

func (s *Store) quarantineDir(id ID) string {
	return filepath.Join(s.root, quarantineName, id.String())
}

func (s *Store) inQuarantine() []ID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.quarantine.held))
}

// openQuarantine claims the IDs in quarantine, so that none is given out again, and puts back what the metadata name:
// those that know of it were put back, too. It is called before anything else is done with snapshots.
func (s *Store) openQuarantine() error {
	s.quarantine.held = map[ID]struct{}{}
	entries, err := os.ReadDir(filepath.Join(s.root, quarantineName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, ok := parseID(e.Name())
		if !ok {
			s.report.Strange = append(s.report.Strange, filepath.Join(quarantineName, e.Name()))
			continue
		}
		to, err := s.belongs(id)
		if err != nil {
			return err
		}
		if to != "" {
			if err := os.Rename(s.quarantineDir(id), to); err != nil {
				return fmt.Errorf("put %v back from quarantine: %w", id, err)
			}
			s.report.Returned = append(s.report.Returned, id)
			continue
		}
		s.ids.claimOrphan(id)
		s.quarantine.held[id] = struct{}{}
	}
	return nil
}

// belongs is where the directory of an ID in quarantine belongs as the metadata say; "" if they do not know of it, or
// the snapshot has another directory.
func (s *Store) belongs(id ID) (to string, err error) {
	err = s.view("quarantine", func(t *txn) error {
		for n, dir := range map[bucket]string{inIDs: snapshotsDir, inTrash: trashDir} {
			v, err := t.get(n, number(uint64(id)))
			if err != nil {
				return err
			}
			if v != nil {
				to = filepath.Join(s.root, dir, id.String())
			}
		}
		return nil
	})
	if err != nil || to == "" {
		return "", err
	}
	_, err = os.Lstat(to)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return to, nil
	case err == nil:
		return "", nil
	}
	return "", err
}

// stray deals with what there is of an ID that the metadata do not name, and that the caller has claimed: deletes what
// was never entered, and puts what was into quarantine.
func (s *Store) stray(id ID) (kept bool, err error) {
	info, err := os.Lstat(s.dir(id))
	switch {
	case errors.Is(err, os.ErrNotExist): // in new or trash
	case err != nil:
		s.ids.done(id)
		return false, err
	case info.Mode()&unentered == 0:
		if err := s.keep(id); err != nil {
			s.ids.done(id)
			return false, err
		}
		return true, nil
	}
	s.discard(id)
	return false, nil
}

// keep puts the directory of an ID into quarantine.
func (s *Store) keep(id ID) error {
	if err := os.MkdirAll(filepath.Join(s.root, quarantineName), ownDirMode); err != nil {
		return err
	}
	if err := reached("found"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(s.dir(id), s.quarantineDir(id)); err != nil {
		return fmt.Errorf("put %v into quarantine: %w", id, err)
	}
	s.quarantine.held[id] = struct{}{}
	s.quarantine.more++
	s.log.Info("a directory that no snapshot has, although one had it, is put into quarantine", "ID", id)
	return reached("quarantined")
}

// entered says that a transaction has entered the snapshot with an ID. Its mark goes when that is on the disk.
func (s *Store) entered(id ID) {
	if s.alwaysDurable() {
		s.unmark(id)
		return
	}
	s.enteredBefore(id)
}

// enteredBefore is entered for a transaction that may not be on the disk yet.
func (s *Store) enteredBefore(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quarantine.entered = append(s.quarantine.entered, id)
}

// runEntered takes marks away until the store closes.
func (s *Store) runEntered() {
	s.every(enterDelay, "flushing the metadata failed", s.unmarkEntered)
}

// unmarkEntered takes the marks of directories away whose snapshots were entered.
func (s *Store) unmarkEntered() error {
	s.mu.Lock()
	ids := s.quarantine.entered
	s.quarantine.entered = nil
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	if err := s.db.Sync(); err != nil {
		s.mu.Lock()
		s.quarantine.entered = append(ids, s.quarantine.entered...)
		s.mu.Unlock()
		return err
	}
	for _, id := range ids {
		s.unmark(id)
	}
	return nil
}

// unmark takes the mark of a directory away. If it cannot, the next Open tries again.
func (s *Store) unmark(id ID) {
	if err := os.Chmod(s.dir(id), ownDirMode); err != nil && !errors.Is(err, os.ErrNotExist) { // removed meanwhile
		s.log.Warn("the directory of a snapshot keeps the mark of a new one", "ID", id, "error", err)
	}
}

// mark marks the directory of a snapshot that is about to get another one.
func (s *Store) mark(id ID) error {
	err := os.Chmod(s.dir(id), ownDirMode|unentered)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
