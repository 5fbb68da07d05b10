package image

import (
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// found is what a stack of layers shows under a name.
type found int

const (
	foundNothing found = iota
	foundDir
	foundOther
)

// Prefixes of the extended attributes of overlayfs: of those that only root of the machine has, and, with the mount
// option userxattr, of others.
const (
	trustedMarks = "trusted.overlay."
	userMarks    = "user.overlay."
)

// stack are the lower layers of an overlay, the topmost first. It sees what overlayfs would show.
type stack struct {
	layers []int    // descriptors of their roots
	marks  []string // prefixes of the extended attributes that overlayfs heeds
	ends   []func()
}

func (s *stack) close() {
	for _, fd := range s.layers {
		_ = unix.Close(fd)
	}
	for _, end := range s.ends {
		end()
	}
}

// add puts a layer below the others.
func (s *stack) add(dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open layer", Path: dir, Err: err}
	}
	s.layers = append(s.layers, fd)
	return nil
}

// open looks for a clean name. Of a directory it returns a descriptor, which the caller closes, of the
// topmost that is merged into it; its attributes are those that the overlay shows. What a symbolic link
// leads to is not found.
func (s *stack) open(name string) (int, found, error) {
	merged, kind, err := s.walk(name)
	if err != nil || kind != foundDir {
		return -1, kind, err
	}
	for _, fd := range merged[1:] {
		_ = unix.Close(fd)
	}
	return merged[0], foundDir, nil
}

// find opens the directory, of the layer that has it, in which a regular file is.
func (s *stack) find(name string) (int, error) {
	parent, base := splitName(name)
	merged, kind, err := s.walk(parent)
	if err != nil {
		return -1, err
	}
	result := error(unix.ENOENT)
	if kind != foundDir {
		return -1, result
	}
	for i, fd := range merged {
		var st unix.Stat_t
		err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			continue
		}
		switch {
		case err != nil:
			result = err
		case isWhiteout(&st):
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			result = errors.Join(ErrUnsafe, errors.New("no regular file"))
		default:
			merged = slices.Delete(merged, i, i+1)
			closeAll(merged)
			return fd, nil
		}
		break
	}
	closeAll(merged)
	return -1, result
}

func closeAll(list []int) {
	for _, fd := range list {
		_ = unix.Close(fd)
	}
}

// names are those that layers have in their roots, hidden ones included.
func (s *stack) names() (names []string, err error) {
	for _, fd := range s.layers {
		entries, err := os.ReadDir(at(fd, "."))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// walk opens the directories that are merged under a name, the topmost first.
func (s *stack) walk(name string) (merged []int, kind found, err error) {
	for _, fd := range s.layers {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(merged)
			return nil, 0, err
		}
		merged = append(merged, own)
	}
	if name == "." {
		return merged, foundDir, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		above := merged
		merged, kind, err = s.step(above, part)
		closeAll(above)
		if err != nil || kind != foundDir {
			closeAll(merged)
			return nil, kind, err
		}
	}
	return merged, foundDir, nil
}

// step goes from merged directories to those that are merged under a name in them.
func (s *stack) step(dirs []int, name string) (merged []int, kind found, err error) {
	for _, dir := range dirs {
		var st unix.Stat_t
		err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return merged, 0, err
		}
		if isWhiteout(&st) {
			break
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if len(merged) == 0 {
				kind = foundOther
			}
			break
		}
		fd, err := openOne(dir, name)
		if err != nil {
			return merged, 0, err
		}
		merged, kind = append(merged, fd), foundDir
		if s.isOpaque(fd) {
			break
		}
	}
	return merged, kind, nil
}

// openOne opens a directory by one component.
func openOne(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func (s *stack) isOpaque(fd int) bool {
	var value [2]byte
	for _, marks := range s.marks {
		n, err := unix.Getxattr(fdPath(fd), marks+"opaque", value[:])
		if err == nil && n == 1 && value[0] == 'y' {
			return true
		}
	}
	return false
}
