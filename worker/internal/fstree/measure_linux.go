package fstree

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

type inode struct {
	dev, ino uint64
}

type measurer struct {
	ctx   context.Context
	seen  map[inode]struct{} // files with several names
	usage Usage
}

// Measure is what the tree at path takes, path itself included. A file with several names counts once.
// What goes away meanwhile does not count; path itself must be there.
func Measure(ctx context.Context, path string) (Usage, error) {
	m := measurer{ctx: ctx}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Usage{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	m.add(&st)
	if err := m.directory(unix.AT_FDCWD, path); err != nil {
		return Usage{}, &os.PathError{Op: "measure", Path: path, Err: err}
	}
	return m.usage, nil
}

func (m *measurer) add(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		i := inode{st.Dev, st.Ino}
		if _, again := m.seen[i]; again {
			return
		}
		if m.seen == nil {
			m.seen = map[inode]struct{}{}
		}
		m.seen[i] = struct{}{}
	}
	m.usage.Inodes++
	m.usage.Size += st.Blocks * 512
}

func (m *measurer) directory(dir int, name string) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		entries, err := f.ReadDir(512)
		for _, e := range entries {
			var st unix.Stat_t
			err := unix.Fstatat(fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW)
			if err == unix.ENOENT {
				continue
			}
			if err != nil {
				return err
			}
			m.add(&st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if err := m.directory(fd, e.Name()); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
