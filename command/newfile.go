package command

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
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
	info, err := os.Stat(o.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(o.path)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return "", &fileError{file: o.path, what: "the directory " + dir + " does not exist", next: "make it first", err: err}
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
// interruption ends it. What comes to be at dst meanwhile is replaced only with --force.
func (c *call) makeFile(dst string, o output, write func(ctx context.Context, temp string) error) error {
	ctx, stop := signal.NotifyContext(c.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	before, _ := os.Lstat(dst)
	temp, err := os.CreateTemp(filepath.Dir(dst), "."+filepath.Base(dst)+".*.tmp")
	if err != nil {
		return c.explain(o.path, err)
	}
	defer os.Remove(temp.Name()) // which it is not called any more if all went well
	_ = temp.Close()
	err = write(ctx, temp.Name())
	if ctx.Err() != nil {
		return &fileError{file: o.path, what: "interrupted, nothing was written", err: ctx.Err()}
	}
	if err == nil && !o.force {
		err = o.untouched(dst, before)
	}
	if err == nil {
		err = os.Rename(temp.Name(), dst)
	}
	if err == nil && !o.unflushed { // from here on an interruption comes too late
		err = flushDir(filepath.Dir(dst))
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
