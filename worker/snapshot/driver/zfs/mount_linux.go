package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/zfsfuse"
	"holdfast/worker/snapshot"
)

// mountPoint mounts a dataset with the program, or binds the place where it is mounted already: a
// file system of a server has one superblock, which others may still have.
func (d *Driver) mountPoint(ctx context.Context, id snapshot.ID) error {
	path := d.pointOf(id)
	return retry(ctx, func() error {
		turn, err := zfsfuse.Begin(ctx)
		if err != nil {
			return err
		}
		defer turn.End()
		places, err := mountsOf(d.name(id))
		if err != nil {
			return err
		}
		for _, at := range places {
			if at == path {
				return orAbort(turn, path)
			}
		}
		if len(places) > 0 {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return err
			}
			if err := unix.Mount(places[0], path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("binding %s, where %s is mounted: %w", places[0], d.name(id), err)
			}
			return nil
		}
		if _, err := d.zfs.runIn(ctx, turn, d.zfs.path, "mount", d.name(id)); err != nil {
			return err
		}
		if places, err = mountsOf(d.name(id)); err == nil && len(places) == 0 {
			err = fmt.Errorf("zfs mount %s: it was mounted in another mount namespace, that of the zfs-fuse daemon", d.name(id))
		}
		if err != nil {
			return err
		}
		return orAbort(turn, path)
	})
}

// orAbort asks what is mounted, and unmounts it if it does not answer, so that the next one mounts it anew.
func orAbort(turn *zfsfuse.Turn, path string) error {
	if err := answers(path); err != nil {
		return errors.Join(err, turn.Abort(path))
	}
	return nil
}

// answerIn is how long it is waited for the first answer from a dataset that was mounted.
var answerIn = time.Minute

// answers waits for an answer from a dataset that was mounted. What is unmounted before stays in use in the daemon.
func answers(path string) error {
	said := make(chan error, 1) // whoever asks, waits until its connection is ended
	go func() {
		_, err := statObjects(path)
		said <- err
	}()
	select {
	case err := <-said:
		return err
	case <-time.After(answerIn):
		return fmt.Errorf("zfs-fuse does not answer: statfs %s has taken %v", path, answerIn)
	}
}

// unmountPoint unmounts without asking the server, which may be gone. It is no error if nothing is mounted.
func unmountPoint(path string) error {
	turn, err := zfsfuse.Begin(context.Background())
	if err != nil {
		return err
	}
	defer turn.End()
	if err := turn.Unmount(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// clearAll unmounts what is mounted below the Store. What somebody is in stays, and is
// taken for mounted when it is wanted.
func (d *Driver) clearAll() error {
	entries, err := os.ReadDir(d.mountsDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(d.mountsDir(), e.Name())
		if _, err := d.idOf(d.dataset + "/" + e.Name()); err != nil {
			continue
		}
		if err := unmountPoint(path); err != nil && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return nil
}

// mountsOf are the places where the root of a dataset is mounted in this namespace.
func mountsOf(name string) (places []string, err error) {
	mounts, err := zfsfuse.Mounts()
	for _, m := range mounts {
		if m.Dataset == name {
			places = append(places, m.At)
		}
	}
	return places, err
}

func statObjects(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	if st.Files < st.Ffree {
		return 0, nil
	}
	return int64(st.Files - st.Ffree), nil
}

// syncStore flushes the file system that has the Store's directories.
func syncStore(root, _ string) error {
	f, err := os.Open(filepath.Join(root, "snapshots"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", root, err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

var _ snapshot.Starter = (*Driver)(nil)
