package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

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
	points
	etc   *pointDir // the directory in the step's root; nil: there is none
	binds []*mount.Handle
}

// showFiles adds files to the mounts of a job. What it returns is to be undone when the command has ended, with an
// error too.
func (r *Runner) showFiles(ctx context.Context, j *job) (*shownFiles, error) {
	s := &shownFiles{points: points{ids: j.ids}}
	etc, err := openEtc(j.root.FD())
	if err != nil || etc < 0 {
		return s, err
	}
	if s.etc, err = s.add(etc); err != nil {
		return s, err
	}
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
	// Those that the step asks for come later, and over these.
	with := *j.step
	with.Mounts = append(mounts, with.Mounts...)
	j.step, j.binds = &with, append(append([]*mount.Handle{}, s.binds...), j.binds...)
	return s, nil
}

// wanted tells whether a file is to be shown, and makes what it is to be mounted on.
func (s *shownFiles) wanted(root int, name string) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(s.etc.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return true, s.make(s.etc, name, false)
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
	return s.remove()
}

// show gives a job what it sees beside its mounts: files of names, and secrets. hide takes it away when the command
// has ended, and is to be called with an error too.
func (r *Runner) show(ctx context.Context, j *job) (hide func() error, err error) {
	files, err := r.showFiles(ctx, j)
	var secrets *shownSecrets
	if err == nil {
		secrets, err = r.showSecrets(ctx, j)
	}
	return func() error { return errors.Join(r.hideSecrets(secrets), r.hideFiles(files)) }, err
}
