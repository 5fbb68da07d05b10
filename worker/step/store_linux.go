package step

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"holdfast/worker/internal/mountinfo"
)

// This file keeps steps and their outputs away from the store. Paths alone do not tell: a bind mount shows the store,
// or something in it, at any other path. So what is at a path is compared by file system and by path on that.

// errStore is of a mount or copy of the store itself.
var errStore = fmt.Errorf("%w: a step must not see the store", ErrInvalid)

// errIntoStore is of an output that would go to the store.
var errIntoStore = fmt.Errorf("%w: give the output a path outside of the store", ErrInvalid)

// part is a directory or file of a file system with all that is in it.
type part struct {
	major, minor uint32
	path         string // on the file system
}

// has tells whether another part is this one or in it.
func (p part) has(other part) bool {
	return p.major == other.major && p.minor == other.minor && within(other.path, p.path)
}

// within tells whether a path is that of a directory, or is in it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// surroundings is where the store is, among all mounts of the mount namespace.
type surroundings struct {
	store  string // the path of its root directory, without symbolic links
	root   fs.FileInfo
	mounts []mountinfo.Mount
	parts  []part // its root directory, and what is mounted there
}

func (r *Runner) surroundings() (*surroundings, error) {
	store, err := filepath.Abs(r.store.Root())
	if err != nil {
		return nil, err
	}
	s := &surroundings{}
	if s.store, err = filepath.EvalSymlinks(store); err != nil {
		return nil, err
	}
	if s.root, err = os.Stat(s.store); err != nil {
		return nil, err
	}
	if s.mounts, err = r.mounted.Mounts(); err != nil {
		return nil, err
	}
	if own, ok := s.partAt(s.store); ok {
		s.parts = append(s.parts, own)
	}
	for _, shown := range s.below(s.store) {
		s.parts = append(s.parts, shown)
	}
	return s, nil
}

// partAt is what is at a path without symbolic links. It is not known of a mount that is not listed, such as one that
// contains the root of a process in a chroot.
func (s *surroundings) partAt(path string) (p part, ok bool) {
	id, ok := mountinfo.IDAt(path)
	if !ok {
		return p, false
	}
	for _, m := range s.mounts {
		if m.ID == id && within(path, m.Point) {
			return part{m.Major, m.Minor, m.OnSystem(path)}, true
		}
	}
	return p, false
}

// below iterates over what is mounted in a directory: where, and what.
func (s *surroundings) below(dir string) iter.Seq2[string, part] {
	return func(yield func(string, part) bool) {
		for _, m := range s.mounts {
			if m.Point != dir && within(m.Point, dir) && !yield(m.Point, part{m.Major, m.Minor, m.Root}) {
				return
			}
		}
	}
}

// inStore tells whether what is at a path without symbolic links is the store or in it.
func (s *surroundings) inStore(path string) bool {
	here, known := s.partAt(path)
	return above(path, s.root) || known && s.holds(here)
}

// holds tells whether a part is of the store.
func (s *surroundings) holds(shown part) bool {
	for _, p := range s.parts {
		if p.has(shown) {
			return true
		}
	}
	return false
}

// heldBy tells whether a part has some of the store.
func (s *surroundings) heldBy(shown part) bool {
	for _, p := range s.parts {
		if shown.has(p) {
			return true
		}
	}
	return false
}

// outsideStore is an error if a path is that of the store, is in it, or leads to a directory that has it, or in which
// it is mounted.
func (r *Runner) outsideStore(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	of, err := os.Stat(real)
	if err != nil {
		return err
	}
	s, err := r.surroundings()
	if err != nil {
		return err
	}
	if s.inStore(real) {
		return fmt.Errorf("%s is in the store %s: %w", path, s.store, errStore)
	}
	if here, known := s.partAt(real); above(s.store, of) || known && s.heldBy(here) {
		return fmt.Errorf("the store %s is in %s: %w", s.store, path, errStore)
	}
	for point, shown := range s.below(real) {
		if s.holds(shown) || s.heldBy(shown) {
			return fmt.Errorf("the store %s, or something in it, is mounted at %s, which is in %s: %w", s.store, point, path, errStore)
		}
	}
	return nil
}

// above tells whether a path or a directory that it is in is the one that info tells of.
func above(path string, info fs.FileInfo) bool {
	for {
		if here, err := os.Stat(path); err == nil && os.SameFile(here, info) {
			return true
		}
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
}

// CheckOutput is the error that Export has for sure, whatever the result: a destination that is the store or in it, in
// which something of the store is mounted, or that is neither directory nor regular file.
func (r *Runner) CheckOutput(source, dest string) error {
	s, err := r.surroundings()
	if err == nil {
		err = s.checkOutput(dest)
	}
	if err != nil {
		return fmt.Errorf("step: output %s: %w", source, err)
	}
	return nil
}

func (s *surroundings) checkOutput(dest string) error {
	real, there, err := existing(dest)
	if err != nil {
		return err
	}
	if s.inStore(real) {
		return fmt.Errorf("%s is in the store %s: %w", dest, s.store, errIntoStore)
	}
	for point, shown := range s.below(real) {
		if there && s.holds(shown) && !within(point, s.store) { // what is copied does not get into the store itself: see export
			return fmt.Errorf("something of the store %s is mounted at %s, which is in %s: %w", s.store, point, dest, errIntoStore)
		}
	}
	return replaceable(dest)
}

// existing is a path without symbolic links if it is there, and otherwise the nearest directory above that is.
func existing(path string) (real string, there bool, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", false, err
	}
	for there = true; ; there = false {
		real, err = filepath.EvalSymlinks(path)
		up := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || up == path {
			return real, there, err
		}
		path = up
	}
}

// replaceable is an error if there is something at a path that is neither a regular file nor a directory.
func replaceable(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return fmt.Errorf("%w: %s is a device, FIFO or socket: give the path of a directory, of a regular file, or of nothing yet", ErrInvalid, path)
	}
	return nil
}
