package command

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
	"holdfast/command/cli"
	"holdfast/internal/vfs"
)

// output is a file that a command makes, as the command line has it.
type output struct {
	path      string
	force     bool // replace what is there
	unflushed bool // leave flushing it to the system
}

// addFlags adds the flags that say where to write.
func (o *output) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.path, "output", "o", "", "file to write (required)")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace the file that is written if it exists")
	_ = cmd.MarkFlagFilename("output")
}

// given is an error of the command line if there is no output.
func (o *output) given() error {
	if o.path == "" {
		return usagef("required flag(s) \"output\" not set: -o says which file to write")
	}
	return nil
}

// destination is the path to give to the output in the end: what a symbolic link
// points to. It is an error if something is there that must stay: src, from which it
// is made, or, without --force, what may not be replaced. replaceable may be nil.
func (c *call) destination(o output, src fs.FileInfo, replaceable func(fs.FileInfo) bool) (string, error) {
	if o.path == "-" { // which elsewhere is standard output
		return "", usagef("- is not taken for a file to write; give ./- for one of that name")
	}
	info, err := os.Stat(o.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(o.path)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return "", &fileError{file: o.path, what: "the directory " + cli.OneLine(dir) + " does not exist", next: "make it first", err: err}
		}
		if target, linkErr := os.Readlink(o.path); linkErr == nil { // the link would be replaced, and its target stay missing
			return "", &fileError{file: o.path, what: "is a symbolic link to " + cli.OneLine(target) + ", which does not exist", next: "give that name, or remove the link", err: err}
		}
		return o.path, nil
	case err != nil:
		return "", c.explain(o.path, err)
	case os.SameFile(src, info):
		return "", usagef("%s: the output cannot replace the database that it is made from; give another file with -o", o.path)
	case !info.Mode().IsRegular():
		return "", &fileError{file: o.path, what: "is not a regular file", err: fs.ErrExist}
	case !o.force && (replaceable == nil || !replaceable(info)):
		return "", &fileError{file: o.path, what: "exists already", next: "--force replaces it", err: fs.ErrExist}
	}
	path, err := filepath.EvalSymlinks(o.path)
	return path, c.explain(o.path, err)
}

// makeFile calls write with the path of an empty file next to dst and then gives that
// file the name dst: there is never half a file under that name, and whatever fails,
// nothing is left behind. write flushes the file, and returns when its context ends: an
// interruption ends it. What comes to be at dst meanwhile is replaced only with --force,
// and a database that a program has open is not replaced at all: what the program stores
// from then on would be in a file without a name.
func (c *call) makeFile(dst string, o output, write func(ctx context.Context, temp string) error) error {
	ctx, stop := c.interruptible()
	defer stop()
	unlock, err := lockReplaced(dst, o) // before there is work that would be in vain
	if err != nil {
		return c.explain(o.path, err)
	}
	unlock()
	before, _ := os.Lstat(dst)
	temp, err := os.CreateTemp(filepath.Dir(dst), "."+filepath.Base(dst)+".*.tmp")
	if err != nil {
		return c.explain(o.path, err)
	}
	defer os.Remove(temp.Name()) // which it is not called any more if all went well
	_ = temp.Close()
	err = write(ctx, temp.Name())
	var known *fileError
	if errors.As(err, &known) && known.file == temp.Name() {
		known.file = o.path // a reader of the error knows that name
	}
	if ctx.Err() != nil {
		return &fileError{file: o.path, what: "interrupted, nothing was written", err: ctx.Err()}
	}
	if err == nil && !o.force {
		err = o.untouched(dst, before)
	}
	if err == nil {
		err = replace(temp.Name(), dst, o)
	}
	if err == nil && !o.unflushed { // from here on an interruption comes too late
		err = flushDir(filepath.Dir(dst))
	}
	if err == nil {
		c.made = o.path
	}
	return err
}

// untouched is an error if there is something else at dst than there was before.
func (o *output) untouched(dst string, before fs.FileInfo) error {
	now, err := os.Lstat(dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case before == nil || !os.SameFile(before, now) || before.Size() != now.Size() || !before.ModTime().Equal(now.ModTime()):
		return &fileError{file: o.path, what: "another program has made it or written to it meanwhile", next: "nothing was written", err: fs.ErrExist}
	}
	return nil
}

// replace gives the file temp the name dst.
func replace(temp, dst string, o output) error {
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
func lockReplaced(dst string, o output) (unlock func(), err error) {
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
		return nil, &fileError{file: o.path, what: "cannot be replaced: locked by another process" + holders(dst), next: "stop that program, or give another file", err: holdfast.ErrTimeout}
	}
	return func() { _ = file.Close() }, nil
}

// closeMade closes a database that was made with NoSync. If it is whole it is flushed first: then Close leaves
// nothing in it that depends on the file it is in, and two that are made of the same source are the same, byte
// by byte.
func closeMade(db interface {
	Sync() error
	Close() error
}, whole bool) (err error) {
	if whole {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// finishFile ends the database at path: it cuts off what is beyond size bytes, by which it
// grew too much, and does what finish does.
func finishFile(path string, size int64, like fs.FileInfo, flush bool) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return err
	}
	return finish(file, like, flush)
}

// finish ends a new file, before it gets its name: it gives it the mode and the owner of
// the file that it stands for, or whose content it has, if there is one, flushes it, and
// closes it.
func finish(file *os.File, like fs.FileInfo, flush bool) error {
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
