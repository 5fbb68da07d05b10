package fstree

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// This file goes down into trees of any depth, as commands make them, with a bounded number of open
// directories and without paths: below 50,000 directories a path is longer than the kernel takes. Remove,
// which may change the tree, moves what is deep up instead; Digest has one directory open.

// maxOpen is how many directories of a descent are open besides the deepest: those that are highest up.
// Back in one that is not, a descent comes by "..", and compares.
const maxOpen = 64

// descent is a position in a tree.
type descent struct {
	levels []openLevel // from the top to where it is
}

type openLevel struct {
	fd    int // -1: closed meanwhile
	inode inode
}

// begin opens the directory at the top.
func (d *descent) begin(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return d.push(fd)
}

// push makes the open directory fd the deepest.
func (d *descent) push(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	if n := len(d.levels); n > maxOpen {
		_ = unix.Close(d.levels[n-1].fd)
		d.levels[n-1].fd = -1
	}
	d.levels = append(d.levels, openLevel{fd, inode{st.Dev, st.Ino}})
	return nil
}

// fd is the deepest directory.
func (d *descent) fd() int { return d.levels[len(d.levels)-1].fd }

// down goes into a directory.
func (d *descent) down(name string) error {
	fd, err := unix.Openat(d.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return d.push(fd)
}

// up goes back. If the deepest directory was moved elsewhere the error is ErrChanged, and the descent is
// where surface then leaves it.
func (d *descent) up() error {
	deepest := d.fd()
	d.levels = d.levels[:len(d.levels)-1]
	defer func() { _ = unix.Close(deepest) }()
	n := len(d.levels)
	if n == 0 || d.levels[n-1].fd >= 0 {
		return nil
	}
	fd, err := unix.Openat(deepest, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if is := (inode{st.Dev, st.Ino}); err == nil && is != d.levels[n-1].inode {
		err = fmt.Errorf("a directory was moved: %w", ErrChanged)
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	d.levels[n-1].fd = fd
	return nil
}

// surface goes up, after an error of up, to the next directory that is still open, and returns how many
// levels there are then.
func (d *descent) surface() int {
	for len(d.levels) > 0 && d.levels[len(d.levels)-1].fd < 0 {
		d.levels = d.levels[:len(d.levels)-1]
	}
	return len(d.levels)
}

// path names what is called so in the deepest directory; "." is that itself.
func (d *descent) path(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd(), name) }

// end closes what is open.
func (d *descent) end() {
	for _, l := range d.levels {
		if l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
	}
	d.levels = nil
}
