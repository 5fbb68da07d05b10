package command

import (
	"path/filepath"
	"strings"

	"holdfast/worker/internal/mountinfo"
)

// shownStore is how mountinfo shows what is in the directory of a store with its snapshots.
type shownStore struct {
	snapshots string // its path, with a slash at the end

	// Of the mount on which it is; not known of one that is not listed, such as one that contains the root of a process in a
	// chroot.
	known        bool
	major, minor uint32
	inMount      string // the path below the mount, as options of overlays have it whose layers were given as descriptors
	inSystem     string // the path on the file system, as the root of a bind mount has it
}

// shownStoreOf looks at the store root, a path without symbolic links.
func shownStoreOf(root string) (*shownStore, error) {
	s := &shownStore{snapshots: filepath.Join(root, "snapshots") + "/"}
	id, ok := mountinfo.IDAt(root)
	if !ok {
		return s, nil
	}
	err := mountinfo.Each(mountinfo.Own, func(m *mountinfo.Mount) {
		if m.ID == id {
			s.known, s.major, s.minor = true, m.Major, m.Minor
			s.inMount, s.inSystem = m.Inside(s.snapshots), m.OnSystem(s.snapshots)+"/"
		}
	})
	return s, err
}

// bound is the path in the directory of a bind mount of what is there. The other paths that end as its own are of
// other stores.
func (s *shownStore) bound(m *mountinfo.Mount) (rest string, ok bool) {
	if !s.known || m.Major != s.major || m.Minor != s.minor {
		return "", false
	}
	return strings.CutPrefix(m.Root, s.inSystem)
}

// layer is the path in the directory of a layer of an overlay. An overlay does not show the file system of its layers: two stores with
// the same path, each below a mount of its own, are not told apart.
func (s *shownStore) layer(path string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, s.snapshots)
	for _, other := range []string{s.inMount, s.inSystem} {
		if !ok && s.known {
			rest, ok = strings.CutPrefix(path, other)
		}
	}
	return rest, ok
}
