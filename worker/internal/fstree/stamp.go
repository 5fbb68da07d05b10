package fstree

import (
	"crypto/sha256"
	"errors"
)

// Sum is a SHA-256.
type Sum = [sha256.Size]byte

// ErrSpecial: something has no content that could be known: it is neither a directory, a regular file nor a
// symbolic link, or the kernel makes it as it is read.
var ErrSpecial = errors.New("its content cannot be known, as of a device, a pipe or a socket")

// Stamp tells, without reading files, whether a tree is still what it was: two stamps with the same Sum are
// of the same content, if the file system is not Foreign, and the first one was taken after Settled.
type Stamp struct {
	Sum     Sum   // of names, and by each name inode, type, permissions, owner, size and times
	Changed int64 // when something was last changed, in nanoseconds since 1970: the latest ctime, which no program can set
	Settled int64 // from when on another change makes another stamp
	Foreign bool  // some of it is on a file system whose times are not known to be those of this machine's clock
	Entries int
}
