package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// OutputFile is a file that a command makes, as the command line has it.
type OutputFile struct {
	Path      string
	Force     bool // replace what is there
	Unflushed bool // leave flushing it to the system
}

// AddFlags adds the flags that say where to write.
func (o *OutputFile) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Path, "output", "o", "", "file to write (required)")
	cmd.Flags().BoolVar(&o.Force, "force", false, "replace the file that is written if it exists")
	_ = cmd.MarkFlagFilename("output")
}

// Given is an error of the command line if there is no output.
func (o *OutputFile) Given() error {
	if o.Path == "" {
		return Usagef("required flag(s) \"output\" not set: -o says which file to write")
	}
	return nil
}

// Destination is the path to give to the output in the end: what a symbolic link
// points to. It is an error if something is there that must stay: src, from which it
// is made, or, without --force, what may not be replaced. replaceable may be nil.
func (c *Call) Destination(o OutputFile, src fs.FileInfo, replaceable func(fs.FileInfo) bool) (string, error) {
	if o.Path == "-" { // which elsewhere is standard output
		return "", Usagef("- is not taken for a file to write; give ./- for one of that name")
	}
	info, err := os.Stat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(o.Path)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return "", &FileError{File: o.Path, What: "the directory " + OneLine(dir) + " does not exist", Next: "make it first", Err: err}
		}
		if target, linkErr := os.Readlink(o.Path); linkErr == nil { // the link would be replaced, and its target stay missing
			return "", &FileError{File: o.Path, What: "is a symbolic link to " + OneLine(target) + ", which does not exist", Next: "give that name, or remove the link", Err: err}
		}
		return o.Path, nil
	case err != nil:
		return "", c.Explain(o.Path, err)
	case os.SameFile(src, info):
		return "", Usagef("%s: the output cannot replace the database that it is made from; give another file with -o", o.Path)
	case !info.Mode().IsRegular():
		return "", &FileError{File: o.Path, What: "is not a regular file", Err: fs.ErrExist}
	case !o.Force && (replaceable == nil || !replaceable(info)):
		return "", &FileError{File: o.Path, What: "exists already", Next: "--force replaces it", Err: fs.ErrExist}
	}
	path, err := filepath.EvalSymlinks(o.Path)
	return path, c.Explain(o.Path, err)
}

// MakeFile calls write with the path of an empty file next to dst and then gives that
// file the name dst: there is never half a file under that name, and whatever fails,
// nothing is left. write flushes the file, and returns when its context ends: an
// interruption ends it. What comes to be at dst meanwhile is replaced only with --force,
// and a database that a program has open is not replaced at all: what the program stores
// from then on would be in a file without a name.
func (c *Call) MakeFile(dst string, o OutputFile, write func(ctx context.Context, temp string) error) error {
	ctx, stop := c.Interruptible()
	defer stop()
	unlock, err := lockReplaced(dst, o) // before there is work that would be in vain
	if err != nil {
		return c.Explain(o.Path, err)
	}
	unlock()
	before, _ := os.Lstat(dst)
	temp, err := os.CreateTemp(filepath.Dir(dst), "."+filepath.Base(dst)+".*.tmp")
	if err != nil {
		return c.Explain(o.Path, err)
	}
	defer os.Remove(temp.Name()) // which it is not called any more if all went well
	_ = temp.Close()
	err = write(ctx, temp.Name())
	var known *FileError
	if errors.As(err, &known) && known.File == temp.Name() {
		known.File = o.Path // a reader of the error knows that name
	}
	if ctx.Err() != nil {
		return &FileError{File: o.Path, What: "interrupted, nothing was written", Err: ctx.Err()}
	}
	if err == nil && !o.Force {
		err = o.untouched(dst, before)
	}
	if err == nil {
		err = place(temp.Name(), dst, o, before == nil)
	}
	if err == nil && !o.Unflushed { // from here on an interruption comes too late
		err = flushDir(filepath.Dir(dst))
	}
	if err == nil {
		c.Made = o.Path
	}
	return err
}

// untouched is an error if there is something else at dst than there was before.
func (o *OutputFile) untouched(dst string, before fs.FileInfo) error {
	now, err := os.Lstat(dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case before == nil || !os.SameFile(before, now) || before.Size() != now.Size() || !before.ModTime().Equal(now.ModTime()):
		return o.madeMeanwhile()
	}
	return nil
}

func (o *OutputFile) madeMeanwhile() error {
	return &FileError{File: o.Path, What: "another program has made it or written to it meanwhile", Next: "nothing was written", Err: fs.ErrExist}
}

// place gives the file temp the name dst. If nothing was there, nothing is replaced, without --force: not what another program
// makes in the last moment either, where the file system has links.
func place(temp, dst string, o OutputFile, absent bool) error {
	if absent && !o.Force {
		err := os.Link(temp, dst)
		switch {
		case err == nil || errors.Is(err, fs.ErrExist) && isLinked(temp, dst): // NFS says so of a link made by a request that was repeated
			return os.Remove(temp)
		case errors.Is(err, fs.ErrExist):
			return o.madeMeanwhile()
		}
	}
	return replace(temp, dst, o)
}

// isLinked tells whether dst is another name of the file temp.
func isLinked(temp, dst string) bool {
	info, err := os.Lstat(temp)
	made, failed := os.Lstat(dst)
	return err == nil && failed == nil && os.SameFile(info, made)
}

// replace gives the file temp the name dst.
func replace(temp, dst string, o OutputFile) error {
	unlock, err := lockReplaced(dst, o)
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // where no file that is open is replaced
		unlock()
		return os.Rename(temp, dst)
	}
	defer unlock()
	return os.Rename(temp, dst)
}

// lockReplaced takes the lock that a program which writes takes of what is at dst, if
// there is something. It is an error if another program has it, or that of readers.
func lockReplaced(dst string, o OutputFile) (unlock func(), err error) {
	if info, err := os.Lstat(dst); err != nil || !info.Mode().IsRegular() {
		return func() {}, nil
	}
	file, err := vfs.OpenOS(dst, os.O_RDWR, 0, nil) // which some systems need for the lock
	if errors.Is(err, fs.ErrPermission) {
		file, err = vfs.OpenOS(dst, os.O_RDONLY, 0, nil)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	// Another error is of a file system without locks, where no program can have it open.
	if errors.Is(file.Lock(true, time.Nanosecond), vfs.ErrTimeout) {
		_ = file.Close()
		return nil, &FileError{File: o.Path, What: "cannot be replaced: locked by another process" + holders(dst), Next: "stop that program, or give another file", Err: holdfast.ErrTimeout}
	}
	return func() { _ = file.Close() }, nil
}

// CloseMade closes a database that was made with NoSync. If it is whole it is flushed first: then Close leaves
// nothing in it that depends on the file it is in, and two that are made of the same source are the same, byte
// by byte.
func CloseMade(db interface {
	Sync() error
	Close() error
}, whole bool) (err error) {
	if whole {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// FinishFile ends the database at path: it cuts off what is beyond size bytes, by which it
// grew too much, and does what finish does.
func FinishFile(path string, size int64, like fs.FileInfo, flush bool) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return err
	}
	return Finish(file, like, flush)
}

// Finish ends a new file, before it gets its name: it gives it the mode and the owner of
// the file that it stands for, or whose content it has, if there is one, flushes it, and
// closes it.
func Finish(file *os.File, like fs.FileInfo, flush bool) error {
	if like != nil {
		copyOwner(file.Name(), like)
		if err := file.Chmod(like.Mode().Perm()); err != nil {
			return err
		}
	}
	if flush {
		if err := file.Sync(); err != nil {
			return err
		}
	}
	return file.Close()
}

// CompactGrowth is by how much the copy grows at a time. What it has too much
// is cut off at the end.
const CompactGrowth = 16 << 20

// DatabaseBytes is how much of the file at path its metas speak of.
func DatabaseBytes(path string, pageSize int) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	slots, err := readMetas(f, pageSize)
	if err != nil {
		return 0, err
	}
	var pages page.ID
	for slot, err := range slots.Err {
		if err == nil {
			pages = max(pages, slots.Meta[slot].HighWater)
		}
	}
	return int64(pages) * int64(pageSize), nil
}
