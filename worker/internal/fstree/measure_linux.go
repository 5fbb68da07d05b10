package fstree

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

type inode struct {
	dev, ino uint64
}

type measurer struct {
	ctx     context.Context
	seen    map[inode]struct{} // files with several names
	usage   Usage
	at      descent
	todo    [][]string // for each level, directories that are still to do
	dirents []byte
}

// Measure is what the tree at path takes, path itself included. A file with several names counts once. What
// goes away meanwhile does not count, and what is moved meanwhile may not; path itself must be there. A
// tree may be of any depth.
func Measure(ctx context.Context, path string) (Usage, error) {
	m := measurer{ctx: ctx, dirents: make([]byte, 1<<15)}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Usage{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	m.add(&st)
	if err := m.tree(path); err != nil {
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

// gone tells of an error that what should be opened is not there any more, or no directory.
func gone(err error) bool { return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP }

func (m *measurer) tree(path string) error {
	defer m.at.end()
	err := m.at.begin(path)
	if gone(err) { // a file
		return nil
	}
	if err == nil {
		err = m.list()
	}
	for err == nil && len(m.todo) > 0 {
		names := &m.todo[len(m.todo)-1]
		if len(*names) == 0 {
			err = m.leave()
			continue
		}
		name := (*names)[len(*names)-1]
		*names = (*names)[:len(*names)-1]
		if err = m.at.down(name); gone(err) {
			err = nil
		} else if err == nil {
			err = m.list()
		}
	}
	return err
}

// leave goes up. Where it was not led back, since something was moved, it goes on above.
func (m *measurer) leave() error {
	m.todo = m.todo[:len(m.todo)-1]
	err := m.at.up()
	if errors.Is(err, ErrChanged) || gone(err) {
		m.todo = m.todo[:m.at.surface()]
		return nil
	}
	return err
}

// list adds what is in the deepest directory, and notes the directories in it.
func (m *measurer) list() error {
	var dirs []string
	err := entriesOf(m.ctx, m.at.fd(), m.dirents, func(name string) error {
		var st unix.Stat_t
		err := unix.Fstatat(m.at.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return err
		}
		m.add(&st)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			dirs = append(dirs, name)
		}
		return nil
	})
	m.todo = append(m.todo, dirs)
	return err
}

// entriesOf calls fn for the names in a directory, which is read from where it is.
func entriesOf(ctx context.Context, dir int, buf []byte, fn func(name string) error) error {
	var names []string
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.ReadDirent(dir, buf)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ENOENT || err == nil && n <= 0 { // ENOENT: it was removed
			return nil
		}
		if err != nil {
			return err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if err := fn(name); err != nil {
				return err
			}
		}
	}
}
