package step

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"
)

// This file makes what is mounted on below the root of a step, and takes it away when the command has ended. What was
// made is known by the descriptor of the directory that it is in, so a command that renames directories has nothing
// else taken away; and what the command has put there stays.

// points are mount points in the root of a step, in the order in which they were made.
type points struct {
	ids  idmap.Map
	dirs []*pointDir
}

// pointDir is a directory in which mount points were made.
type pointDir struct {
	fd            int
	before, after [2]unix.Timespec // its times
	made          []madePoint
}

type madePoint struct {
	name  string
	dir   bool
	inode uint64
}

// add adds a directory that is open, which is closed with the points.
func (p *points) add(fd int) (*pointDir, error) {
	d := &pointDir{fd: fd}
	p.dirs = append(p.dirs, d)
	var err error
	d.before, err = timesOf(fd)
	d.after = d.before
	return d, err
}

func timesOf(fd int) (times [2]unix.Timespec, err error) {
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return [2]unix.Timespec{st.Atim, st.Mtim}, err
}

// make makes an empty file or a directory, of root of the step.
func (p *points) make(d *pointDir, name string, dir bool) error {
	err := as(p.ids, func() error {
		if dir {
			return unix.Mkdirat(d.fd, name, 0o755)
		}
		fd, err := unix.Openat(d.fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	d.made = append(d.made, madePoint{name, dir, st.Ino})
	d.after, err = timesOf(d.fd)
	return err
}

// file makes what is missing of the path of a file below a root. Symbolic links lead nowhere else.
func (p *points) file(root int, name string, dir bool) error {
	fd, err := openIn(root, name, unix.O_PATH)
	if err == nil {
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if is := st.Mode&unix.S_IFMT == unix.S_IFDIR; is != dir {
			return fmt.Errorf("%s of the base: a file cannot be mounted there, or a directory made: choose another target", name)
		}
		return nil
	}
	if err != unix.ENOENT || name == "/" {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	if err := p.file(root, path.Dir(name), true); err != nil {
		return err
	}
	above, err := openIn(root, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &os.PathError{Op: "open", Path: path.Dir(name), Err: err}
	}
	d, err := p.add(above)
	if err == nil {
		err = p.make(d, path.Base(name), dir)
	}
	if err == unix.EEXIST {
		return fmt.Errorf("%s of the base is a symbolic link that leads nowhere: choose another target", name)
	}
	if err != nil {
		return &os.PathError{Op: "make", Path: name, Err: err}
	}
	return nil
}

// remove takes away what was made and is still empty, and closes the directories. It can be called once.
func (p *points) remove() (err error) {
	for i := len(p.dirs) - 1; i >= 0; i-- {
		err = errors.Join(err, p.dirs[i].remove(), unix.Close(p.dirs[i].fd))
	}
	p.dirs = nil
	return err
}

func (d *pointDir) remove() error {
	now, err := timesOf(d.fd)
	if err != nil {
		return err
	}
	gone := 0
	for _, m := range d.made {
		var st unix.Stat_t
		// The command can have exchanged it before it was mounted on, or moved it away.
		err := unix.Fstatat(d.fd, m.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || st.Ino != m.inode || !m.dir && st.Size > 0 {
			continue
		}
		flags := 0
		if m.dir {
			flags = unix.AT_REMOVEDIR
		}
		err = unix.Unlinkat(d.fd, m.name, flags)
		if m.dir && (err == unix.ENOTEMPTY || err == unix.EEXIST) {
			continue // the command has put something there
		}
		if err != nil {
			return fmt.Errorf("the mount point %s: %w", m.name, err)
		}
		gone++
	}
	if gone == 0 || now[1] != d.after[1] {
		return nil // the command has changed the directory itself
	}
	return unix.UtimesNanoAt(d.fd, ".", d.before[:], 0)
}
