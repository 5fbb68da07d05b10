// Package layer compares two directory trees, and writes what one has and another has not as a layer
// of an OCI image: a tar archive with whiteouts.
//
// The trees are those that mounts of two snapshots show, a snapshot and its parent. So it is the
// same for every driver. It is for Linux; elsewhere its functions return errors.ErrUnsupported.
package layer

import (
	"errors"
	"io/fs"
	"time"
)

// ErrName: a file has a name that a layer cannot have: it begins with .wh., as whiteouts do, or its path has more
// than MaxPath bytes.
var ErrName = errors.New("a name that a layer cannot have")

// MaxPath is how many bytes a path in a tree may have.
const MaxPath = 4000

// Kind says how a name differs.
type Kind int

// Kinds of changes.
const (
	Added    Kind = iota + 1 // the name is in the upper tree only
	Modified                 // it is in both, and what has the name differs
	Removed                  // it is in the lower tree only; of a directory what is below it is not told
)

// Difference says in what a file differs that is in both trees.
type Difference int

// Differences, which are combined.
const (
	DiffersType    Difference = 1 << iota // it is of another type: what is below a directory is told as added or removed
	DiffersContent                        // bytes of a regular file, target of a symbolic link, number of a device
	DiffersMode                           // the twelve bits of chmod
	DiffersOwner                          // user or group
	DiffersXattrs                         // extended attributes, but for those of overlayfs and of the machine's policy
	DiffersTime                           // time of the last modification
	DiffersLinks                          // which other names are the same file
)

// File is what is known of a file in a tree.
type File struct {
	Mode         uint32 // st_mode: type and the twelve bits of chmod
	UID, GID     uint32
	Size         int64 // of a regular file, in bytes
	MTime        time.Time
	Major, Minor uint32            // of a device
	Target       string            // of a symbolic link
	Xattrs       map[string]string // extended attributes; nil: none

	inode  inode
	ctime  time.Time
	linked bool // a regular file that has several names, also outside of the tree
}

// Type is the type of the file, as fs.FileMode has it; fs.ModeIrregular if it has none of these.
func (f *File) Type() fs.FileMode {
	switch f.Mode & 0o170000 {
	case 0o100000:
		return 0
	case 0o040000:
		return fs.ModeDir
	case 0o120000:
		return fs.ModeSymlink
	case 0o010000:
		return fs.ModeNamedPipe
	case 0o140000:
		return fs.ModeSocket
	case 0o020000:
		return fs.ModeDevice | fs.ModeCharDevice
	case 0o060000:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}

type inode struct{ dev, number uint64 }

// Change is a name at which two trees differ.
type Change struct {
	Path         string // relative to the roots, with slashes; "." is the root
	Kind         Kind
	Differs      Difference // of what is Modified
	Lower, Upper *File      // nil: there is none
}
