package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/mount"
)

// This file has the files in /etc by which programs look up names: where a base has none that work, a step sees files
// of the Runner in their places, read-only. They are not part of its result.

// filesDir is where the Runner has them, in the store's root directory.
const filesDir = "etc"

// nameFiles are what steps see, but for resolv.conf, which is the host's.
var nameFiles = map[string]string{
	"hosts":    "127.0.0.1\tlocalhost\n127.0.1.1\t" + hostname + "\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	"hostname": hostname + "\n",
}

const resolvConf = "resolv.conf"

// writeFiles makes the files of a Runner.
func writeFiles(root string) error {
	if err := os.Mkdir(filepath.Join(root, filesDir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for name, text := range nameFiles {
		if err := writeFile(filepath.Join(root, filesDir, name), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// writeFile changes a file in its place, since it can be mounted, unless it is as it should be.
func writeFile(name string, text []byte) error {
	if b, err := os.ReadFile(name); err == nil && string(b) == string(text) {
		return nil
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return err
	}
	return os.Chmod(name, 0o644) // whatever the umask is
}

// resolvMutex guards the Runner's copy of the host's resolv.conf.
var resolvMutex sync.Mutex

// copyResolvConf brings the copy of the host's file up to date. It is false if the host has none.
func copyResolvConf(root string) (bool, error) {
	b, err := os.ReadFile("/etc/" + resolvConf)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	resolvMutex.Lock()
	defer resolvMutex.Unlock()
	return true, writeFile(filepath.Join(root, filesDir, resolvConf), b)
}

// shownFiles are those that one step sees.
type shownFiles struct {
	etc   int // the directory in the step's root; -1: there is none
	ids   idmap.Map
	binds []*mount.Handle
	made  []string // what was made to be mounted on
	// Times of the directory, before something was made and after.
	before, after [2]unix.Timespec
}

// showFiles adds files to the mounts of a job. What it returns is to be undone when the command has ended, with an
// error too.
func (r *Runner) showFiles(ctx context.Context, j *job) (*shownFiles, error) {
	s := &shownFiles{etc: -1, ids: j.ids}
	var err error
	if s.etc, err = openEtc(j.root.FD()); err != nil || s.etc < 0 {
		return s, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.etc, &st); err != nil {
		return s, err
	}
	s.before = [2]unix.Timespec{st.Atim, st.Mtim}
	names := []string{"hosts", "hostname"}
	if j.step.Network == NetworkHost {
		there, err := copyResolvConf(r.store.Root())
		if err != nil {
			return s, err
		}
		if there {
			names = append(names, resolvConf)
		}
	}
	var mounts []Mount
	for _, name := range names {
		if show, err := s.wanted(j.root.FD(), name); err != nil || !show {
			if err != nil {
				return s, fmt.Errorf("/etc/%s: %w", name, err)
			}
			continue
		}
		source := filepath.Join(r.store.Root(), filesDir, name)
		spec := mount.Spec{Mount: mount.Mount{Type: "bind", Source: source, Options: []string{"ro", "nosuid", "nodev"}}}
		h, err := r.acquireMapped(context.WithoutCancel(ctx), spec, j.ids)
		if err != nil {
			return s, fmt.Errorf("/etc/%s: %w", name, err)
		}
		s.binds = append(s.binds, h)
		mounts = append(mounts, Mount{Source: source, Target: "/etc/" + name, ReadOnly: true})
	}
	if err := unix.Fstat(s.etc, &st); err != nil {
		return s, err
	}
	s.after = [2]unix.Timespec{st.Atim, st.Mtim}
	// Those that the step asks for come later, and over these.
	with := *j.step
	with.Mounts = append(mounts, with.Mounts...)
	j.step, j.binds = &with, append(append([]*mount.Handle{}, s.binds...), j.binds...)
	return s, nil
}

// wanted tells whether a file is to be shown, and makes what it is to be mounted on.
func (s *shownFiles) wanted(root int, name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(s.etc, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		var fd int
		err := as(s.ids, func() (err error) {
			fd, err = unix.Openat(s.etc, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
			return err
		})
		if err != nil {
			return false, err
		}
		s.made = append(s.made, name)
		return true, unix.Close(fd)
	}
	if err != nil {
		return false, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return st.Size == 0 || name == resolvConf, nil
	case unix.S_IFLNK:
		return name == resolvConf && leadsToFile(root, name), nil
	}
	return false, nil
}

// leadsToFile tells whether a symbolic link in etc leads to a regular file of the base.
func leadsToFile(root int, name string) bool {
	fd, err := openIn(root, "etc/"+name, unix.O_PATH)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// isReadOnly tells whether nothing can be written to a mount.
func isReadOnly(root int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(root, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// openEtc opens the directory etc of a root directory; -1 if it is not there.
func openEtc(root int) (int, error) {
	fd, err := openIn(root, "etc", unix.O_RDONLY|unix.O_DIRECTORY)
	switch err {
	case nil:
		return fd, nil
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return -1, nil
	}
	return -1, fmt.Errorf("/etc of the base: %w", err)
}

// hideFiles takes the files away, and what was made for them.
func (r *Runner) hideFiles(s *shownFiles) error {
	if s == nil {
		return nil
	}
	for _, h := range s.binds {
		h.Release()
	}
	for _, h := range s.binds {
		if err := h.Wait(context.Background()); err != nil {
			r.log.Warn("a file that a step had is still in use", "reason", err)
		}
	}
	if s.etc < 0 {
		return nil
	}
	defer unix.Close(s.etc)
	var now unix.Stat_t
	if err := unix.Fstat(s.etc, &now); err != nil {
		return err
	}
	gone := 0
	for _, name := range s.made {
		var st unix.Stat_t
		// The command could have exchanged it before it was mounted on, but not since.
		err := unix.Fstatat(s.etc, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 0 {
			continue
		}
		if err := unix.Unlinkat(s.etc, name, 0); err != nil {
			return fmt.Errorf("/etc/%s: %w", name, err)
		}
		gone++
	}
	if gone == 0 || now.Mtim != s.after[1] {
		return nil // the command has changed the directory itself
	}
	return unix.UtimesNanoAt(s.etc, ".", s.before[:], 0)
}
