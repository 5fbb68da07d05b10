package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Remove removes a snapshot. Its name is free at once; its content goes in the background.
// ErrInUse if it has children or leases other than weak ones, is pinned, or held (Hold).
func (t *Namespace) Remove(ctx context.Context, name string) error {
	var r record
	err := t.s.update("remove", func(tx *txn) (err error) {
		key := t.key(name)
		if r, err = tx.record(key); err != nil {
			return err
		}
		if err := tx.removable(&r, t.s.now()); err != nil {
			return err
		}
		return tx.remove(key, &r)
	})
	if err != nil {
		return fmt.Errorf("remove snapshot %q: %w", name, err)
	}
	t.s.reaper.add(doomed{id: r.id}, r.trashSize())
	return nil
}

// removable is ErrInUse, with a reason, unless the snapshot can be removed. Leases on it that
// have expired, and weak ones, it takes away.
func (t *txn) removable(r *record, now uint64) error {
	if r.flags&flagPinned != 0 {
		return fmt.Errorf("%w: it is pinned", ErrInUse)
	}
	if t.store.isHeld(r.id) {
		return fmt.Errorf("%w: something that runs uses it", ErrInUse)
	}
	child, err := t.any(inChildren, number(uint64(r.id)))
	if err != nil {
		return err
	}
	if child {
		return fmt.Errorf("%w: it has children", ErrInUse)
	}
	leases, err := t.leasesOf(r.id)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if !l.expired(now) && !IsWeak(l.name) {
			return fmt.Errorf("%w: it has the lease %q", ErrInUse, l.name)
		}
	}
	for _, l := range leases {
		if err := t.dropLease(l); err != nil {
			return err
		}
	}
	return nil
}

// Hold is Touch, and has Remove fail with ErrInUse until release, which is called once. It is kept in memory, since no other process
// has the store meanwhile: for what is mounted or read as long as this process runs.
func (t *Namespace) Hold(ctx context.Context, name string) (release func(), err error) {
	var id ID
	free := func() {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		if t.s.holds[id]--; t.s.holds[id] <= 0 {
			delete(t.s.holds, id)
		}
	}
	err = t.change("touch", name, func(_ *txn, r *record) error {
		if id != 0 { // the transaction is tried again
			free()
		}
		id, r.used = r.id, t.s.now()
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		if t.s.holds == nil {
			t.s.holds = map[ID]int{}
		}
		t.s.holds[id]++ // in the transaction, after which one that removes it comes, or it is gone
		return nil
	})
	if err != nil {
		if id != 0 {
			free()
		}
		return nil, fmt.Errorf("hold snapshot %q: %w", name, err)
	}
	return free, nil
}

// isHeld tells whether Hold has a snapshot.
func (s *Store) isHeld(id ID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.holds[id] > 0
}

// remove takes the snapshot r out of the metadata, and enters its ID as one whose directory is
// to be deleted.
func (t *txn) remove(key []byte, r *record) error {
	if r.listed() {
		if err := t.delete(inUsed, numbers(r.used, uint64(r.id))); err != nil {
			return err
		}
	}
	if err := t.reschedule(r, &record{}); err != nil {
		return err
	}
	if r.flags&flagUnmeasured != 0 {
		if err := t.delete(inUnmeasured, number(uint64(r.id))); err != nil {
			return err
		}
	}
	if err := t.delete(inSnapshots, key); err != nil {
		return err
	}
	if err := t.delete(inIDs, number(uint64(r.id))); err != nil {
		return err
	}
	if err := t.count(r, -1); err != nil {
		return err
	}
	if err := t.put(inTrash, number(uint64(r.id)), appendTrash(nil, r.trashSize())); err != nil {
		return err
	}
	if r.parent == 0 {
		return nil
	}
	if err := t.delete(inChildren, numbers(uint64(r.parent), uint64(r.id))); err != nil {
		return err
	}
	return t.relist(r.parent)
}

// unmeasured is in place of a figure of what was never measured.
const unmeasured = -1

var allUnmeasured = Usage{Size: unmeasured, Inodes: unmeasured}

// trashSize is what the directory of a snapshot takes, if that is known.
func (r *record) trashSize() Usage {
	if !r.measured() {
		return allUnmeasured
	}
	return r.usage
}

// appendTrash encodes an entry of the bucket trash: the bytes, and nothing if they are not known.
func appendTrash(b []byte, u Usage) []byte {
	if u.Size < 0 {
		return b
	}
	return binary.AppendUvarint(b, uint64(u.Size))
}

// parseTrash is the inverse of appendTrash.
func parseTrash(b []byte) (Usage, error) {
	if len(b) == 0 {
		return allUnmeasured, nil
	}
	d := decoder{rest: b}
	u := Usage{Size: d.size(), Inodes: unmeasured}
	if err := d.end(); err != nil {
		return Usage{}, corruptf("removed snapshot: %v", err)
	}
	return u, nil
}
