package zfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
)

// settle is how long after an unmount the daemon is left alone: it does not tell when it has noticed, and what it is asked
// for meanwhile it sometimes never does, or the dataset stays in use there until it ends.
const settle = 10 * time.Millisecond

// moving is held while anything is mounted or unmounted: zfs-fuse, of which a machine has one,
// sometimes never answers on a file system that comes while another goes.
var moving sync.Mutex

// mountPoint mounts a dataset with the program, or binds the place where it is mounted already: a
// file system of a server has one superblock, which others may still have.
func (d *Driver) mountPoint(ctx context.Context, id snapshot.ID) error {
	path := d.pointOf(id)
	return retry(ctx, func() error {
		moving.Lock()
		defer moving.Unlock()
		places, err := mountsOf(d.name(id))
		if err != nil {
			return err
		}
		for _, at := range places {
			if at == path {
				return nil
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
		if _, err := d.zfs.run(ctx, "mount", d.name(id)); err != nil {
			return err
		}
		if places, err = mountsOf(d.name(id)); err == nil && len(places) == 0 {
			err = fmt.Errorf("zfs mount %s: it was mounted in another mount namespace, that of the zfs-fuse daemon", d.name(id))
		}
		if err == nil {
			// What is unmounted before the daemon has answered once stays in use there until it ends.
			_, err = statObjects(path)
		}
		return err
	})
}

// unmountPoint unmounts without asking the server, which may be gone. It is no error if nothing is mounted.
func unmountPoint(path string) error {
	moving.Lock()
	defer moving.Unlock()
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	for try := 0; err == unix.EBUSY && try < 20; try++ {
		// A child that this process is starting has its open files until it executes its program.
		time.Sleep(5 * time.Millisecond)
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	}
	if err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err == nil {
		time.Sleep(settle)
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
func mountsOf(name string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var places []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line, last, ok := strings.Cut(s.Text(), " - ")
		fields, what := strings.Fields(line), strings.Fields(last)
		if ok && len(fields) > 4 && len(what) > 1 && strings.HasPrefix(what[0], "fuse") && what[1] == name && fields[3] == "/" {
			places = append(places, unescape.Replace(fields[4]))
		}
	}
	return places, s.Err()
}

// unescape undoes what mountinfo does to names.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

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
