package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"holdfast"
)

// FS is a read-only file system of the blobs that rows of a bucket name: the key of a row is a path with slashes, its value a
// reference, as Ref.AppendBinary makes it and "holdfast blob put --into" writes it. open opens the store, and rows gives the
// bucket. Each call shows the newest committed state; an open file is a DetachedReader with ctx, so also an io.ReaderAt and
// io.Seeker, as http.FileServerFS needs it.
//
// Keys that are not paths (fs.ValidPath) and nested buckets are not shown. A key that is also a directory of others is that
// directory. A file whose row has no valid reference is ErrInvalidRef. Files have no times, and the Sys of their fs.FileInfo is the
// Ref. The file system is an fs.StatFS and an fs.ReadDirFS. A listing of a directory is in memory as a whole.
func FS(ctx context.Context, db *holdfast.DB, open func(*holdfast.Tx) (*Store, error), rows func(*holdfast.Tx) (*holdfast.Bucket, error)) fs.FS {
	return &fileSystem{ctx: ctx, db: db, open: open, rows: rows}
}

type fileSystem struct {
	ctx  context.Context
	db   *holdfast.DB
	open func(*holdfast.Tx) (*Store, error)
	rows func(*holdfast.Tx) (*holdfast.Bucket, error)
}

var (
	errNoRows       = errors.New("there is no bucket of names")
	errDirectory    = errors.New("is a directory")
	errNotDirectory = errors.New("not a directory")
)

// view calls read with the rows. Its error is a *fs.PathError.
func (f *fileSystem) view(op, name string, read func(b *holdfast.Bucket) error) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	err := f.ctx.Err()
	if err == nil {
		err = f.db.View(func(tx *holdfast.Tx) error {
			b, err := f.rows(tx)
			if err == nil && b == nil {
				err = cmp.Or(tx.Err(), errNoRows)
			}
			if err != nil {
				return err
			}
			err = read(b.KeepDamage())
			return cmp.Or(tx.Err(), err)
		})
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// Stat describes a file or directory.
func (f *fileSystem) Stat(name string) (fs.FileInfo, error) {
	info, err := f.stat("stat", name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (f *fileSystem) stat(op, name string) (info *fileInfo, err error) {
	err = f.view(op, name, func(b *holdfast.Bucket) error {
		info = find(b, name)
		if info == nil {
			return fs.ErrNotExist
		}
		return info.err
	})
	return info, err
}

// Open opens a file or directory.
func (f *fileSystem) Open(name string) (fs.File, error) {
	info, err := f.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &directory{f: f, name: name, info: info}, nil
	}
	r, err := OpenReader(f.ctx, f.db, f.open, info.ref)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &file{r, info}, nil
}

// ReadDir lists a directory, in the order of names.
func (f *fileSystem) ReadDir(name string) (list []fs.DirEntry, err error) {
	err = f.view("readdir", name, func(b *holdfast.Bucket) error {
		at := map[string]int{}
		for info := range below(b, name) {
			if i, again := at[info.name]; again { // the directory of that name
				list[i] = info
				continue
			}
			at[info.name] = len(list)
			list = append(list, info)
		}
		switch {
		case len(list) > 0 || name == ".":
			return nil
		case find(b, name) != nil:
			return errNotDirectory
		}
		return fs.ErrNotExist
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// find describes what stands under name; nil if nothing does.
func find(b *holdfast.Bucket, name string) *fileInfo {
	dir := name == "."
	if !dir {
		for range below(b, name) {
			dir = true
			break
		}
	}
	if dir {
		return directoryInfo(path.Base(name))
	}
	if v := b.Get([]byte(name)); v != nil {
		return rowInfo(path.Base(name), v)
	}
	return nil
}

// below iterates over what is in a directory, in the order of keys: a name that is a file and a directory is given twice, as the
// directory then.
func below(b *holdfast.Bucket, dir string) func(yield func(*fileInfo) bool) {
	prefix := []byte(dir + "/")
	if dir == "." {
		prefix = nil
	}
	return func(yield func(*fileInfo) bool) {
		c := b.Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); {
			name, _, isDir := strings.Cut(string(k[len(prefix):]), "/")
			switch {
			case v == nil || !fs.ValidPath(string(k)) || string(k) == ".":
				k, v = c.Next()
			case !isDir:
				if !yield(rowInfo(name, v)) {
					return
				}
				k, v = c.Next()
			default:
				if !yield(directoryInfo(name)) {
					return
				}
				k, v = c.Seek(slices.Concat(prefix, []byte(name), []byte{'/' + 1})) // after all that is in it
			}
		}
	}
}

// fileInfo describes a file or directory, also as an entry of its directory.
type fileInfo struct {
	name string
	mode fs.FileMode
	ref  Ref
	err  error // of the reference
}

func directoryInfo(name string) *fileInfo { return &fileInfo{name: name, mode: fs.ModeDir | 0o555} }

func rowInfo(name string, v []byte) *fileInfo {
	i := &fileInfo{name: name, mode: 0o444}
	i.err = i.ref.UnmarshalBinary(v)
	return i
}

func (i *fileInfo) Name() string               { return i.name }
func (i *fileInfo) Size() int64                { return i.ref.size }
func (i *fileInfo) Mode() fs.FileMode          { return i.mode }
func (i *fileInfo) Type() fs.FileMode          { return i.mode.Type() }
func (i *fileInfo) ModTime() time.Time         { return time.Time{} }
func (i *fileInfo) IsDir() bool                { return i.mode.IsDir() }
func (i *fileInfo) Info() (fs.FileInfo, error) { return i, i.err }
func (i *fileInfo) String() string             { return fs.FormatDirEntry(i) }

func (i *fileInfo) Sys() any {
	if i.IsDir() {
		return nil
	}
	return i.ref
}

// file is an open file.
type file struct {
	*DetachedReader
	info *fileInfo
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// directory is an open directory. Its listing is as of the first ReadDir.
type directory struct {
	f      *fileSystem
	name   string
	info   *fileInfo
	listed bool
	list   []fs.DirEntry // that are left
	closed bool
}

func (d *directory) Stat() (fs.FileInfo, error) { return d.info, nil }

func (d *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errDirectory}
}

func (d *directory) Close() error {
	d.closed = true
	return nil
}

func (d *directory) ReadDir(n int) (list []fs.DirEntry, err error) {
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	if !d.listed {
		if d.list, err = d.f.ReadDir(d.name); err != nil {
			return nil, err
		}
		d.listed = true
	}
	if n <= 0 {
		n = len(d.list)
	} else if len(d.list) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.list))
	list, d.list = d.list[:n:n], d.list[n:]
	return list, nil
}
