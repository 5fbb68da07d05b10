package prune

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"holdfast/worker/disk"
	"holdfast/worker/internal/fstree"
	"holdfast/worker/snapshot"
)

// Usage is where the room of a store is. Its bytes are in whole blocks, as du counts them; those of the
// committed snapshots as they were found when they were committed.
type Usage struct {
	Committed Sum   // committed snapshots
	Active    Sum   // active ones and views, measured now
	Trash     Sum   // removed, or left by a crash, and not deleted yet; measured now
	Kept      Sum   // in quarantine: see snapshot.Store.Quarantined
	Metadata  int64 // metadata.db
	Other     int64 // all else in the directory of the store: its directories, the lock, the emergency file, logs
	Total     int64 // the sum of all these
	FS        disk.FS
}

// Df measures where the room of a store is. It takes time in proportion to the number of snapshots, and of the
// files in those that are not committed or are to be deleted. What changes meanwhile may be counted or not.
func Df(ctx context.Context, store *snapshot.Store) (Usage, error) {
	u, err := df(ctx, store)
	if err != nil {
		return Usage{}, fmt.Errorf("measure the store: %w", err)
	}
	return u, nil
}

func df(ctx context.Context, store *snapshot.Store) (u Usage, err error) {
	// First the names, then the records: what is made in between is in neither.
	found := map[string][]string{}
	for dir := range trees {
		found[dir], err = names(filepath.Join(store.Root(), dir))
		if errors.Is(err, os.ErrNotExist) && dir == quarantineName {
			delete(found, dir)
			continue
		}
		if err != nil {
			return u, err
		}
	}
	known := map[snapshot.ID]bool{}
	var active []snapshot.Candidate
	err = store.Read(ctx, func(m *snapshot.ReadTx) error {
		return m.All(func(c snapshot.Candidate) bool {
			known[c.ID] = true
			if c.Kind == snapshot.Committed {
				u.Committed.add(c.Usage.Size)
			} else {
				active = append(active, c)
			}
			return true
		})
	})
	if err != nil {
		return u, err
	}
	if err := u.addActive(ctx, store, active); err != nil {
		return u, err
	}
	for dir, names := range found {
		if err := u.addTree(ctx, filepath.Join(store.Root(), dir), names, known); err != nil {
			return u, err
		}
	}
	var other int64
	if u.Metadata, other, err = besides(store.Root()); err != nil {
		return u, err
	}
	u.Other += other
	u.Total = u.Committed.Bytes + u.Active.Bytes + u.Trash.Bytes + u.Kept.Bytes + u.Metadata + u.Other
	u.FS, err = disk.Measure(store.Root())
	return u, err
}

// names are the entries of a directory.
func names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// addActive measures what is not committed. What is committed or removed meanwhile does not count.
func (u *Usage) addActive(ctx context.Context, store *snapshot.Store, active []snapshot.Candidate) error {
	for _, c := range active {
		t, err := store.Namespace(c.Namespace)
		if err != nil {
			return err
		}
		size, err := t.Usage(ctx, c.Name)
		if errors.Is(err, snapshot.ErrNotFound) || errors.Is(err, os.ErrNotExist) || errors.Is(err, snapshot.ErrDistrusted) || errors.Is(err, snapshot.ErrDamaged) {
			continue
		}
		if err != nil {
			return err
		}
		u.Active.add(size.Size)
	}
	return nil
}

// addTree measures what one of the directories of the store has beside known snapshots.
func (u *Usage) addTree(ctx context.Context, dir string, names []string, known map[snapshot.ID]bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	u.Other += allocated(info)
	for _, name := range names {
		id, bad := strconv.ParseUint(name, 10, 64)
		if bad == nil && known[snapshot.ID(id)] && filepath.Base(dir) == "snapshots" {
			continue
		}
		size, err := fstree.Measure(ctx, filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case bad != nil:
			u.Other += size.Size // of another program
		case filepath.Base(dir) == quarantineName:
			u.Kept.add(size.Size)
		default:
			u.Trash.add(size.Size)
		}
	}
	return nil
}
