package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"holdfast"
)

// Update opens the database at path for writing and runs fn in a transaction.
// It creates the database only if create is set.
func (c *Call) Update(path string, create bool, fn func(*holdfast.Tx) error) (created bool, err error) {
	info, err := c.Look(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		err = c.IsDatabase(path)
	}
	if err != nil {
		if missing && !create {
			return false, c.HintCreate(path, err)
		}
		if !create || !missing && !errors.Is(err, holdfast.ErrInvalid) {
			return false, err
		}
		created = true
	}
	if !missing {
		return created, c.Explain(path, c.Change(path, info, func(d *Database) error { return d.Update(fn) }))
	}
	// It gets its name when it is whole: what another program makes there meanwhile stays.
	o := OutputFile{Path: path}
	dst, err := c.Destination(o, nil, nil)
	if err == nil {
		err = c.MakeFile(dst, o, func(_ context.Context, temp string) error {
			d, err := c.OpenMade(temp, path, &holdfast.Options{})
			if err != nil {
				return err
			}
			return errors.Join(d.Update(fn), d.Close())
		})
	}
	return created, c.Explain(path, err)
}

// Change opens the database at path for writing, which is there, and calls fn with it.
func (c *Call) Change(path string, info os.FileInfo, fn func(*Database) error) error {
	d, err := c.Open(path, info, &holdfast.Options{})
	if err != nil {
		return err
	}
	if err = errors.Join(fn(d), d.Close()); err == nil {
		c.Made = path
	}
	return err
}

// CannotHaveValue says, of an error of Put, that the key is that of a bucket.
func CannotHaveValue(file, key, in string, err error) error {
	if !errors.Is(err, holdfast.ErrIncompatibleValue) {
		return err
	}
	return &FileError{File: file, Err: err, What: fmt.Sprintf("%s in %s is a bucket and cannot have a value", key, in)}
}

// HintCreate adds to the error of a missing file how to create it, after the
// files of similar names that are there.
func (c *Call) HintCreate(path string, err error) error {
	var e *FileError
	if !errors.As(err, &e) || !errors.Is(err, fs.ErrNotExist) && e.Next != "" || c.Cmd.Flags().Lookup("create") == nil {
		return err
	}
	next := "--create makes it"
	if e.Next != "" {
		next = e.Next + "; --create makes a new one"
	}
	return &FileError{File: path, What: e.What, Next: next, Err: err}
}

// LocateOrCreate opens the bucket at path and creates what is missing of it, if
// it may.
func (c *Call) LocateOrCreate(file string, tx *holdfast.Tx, path [][]byte, create bool) (at Container, created int, err error) {
	if !create {
		at, err = c.Locate(file, tx, path)
		return at, 0, err
	}
	at = Container{Tx: tx}
	for i, name := range path {
		next := at.Child(name)
		if next == nil {
			if next, err = at.Create(name); err != nil {
				return at, created, c.badBucket(file, path[:i+1], err)
			}
			created++
		}
		at.Bucket = next
	}
	return at, created, nil
}

func (c *Call) badBucket(file string, path [][]byte, err error) error {
	if errors.Is(err, holdfast.ErrIncompatibleValue) {
		return &FileError{File: file, What: fmt.Sprintf("%s is a key and cannot be a bucket", PathText(path)), Err: err}
	}
	return c.Explain(file, err)
}

// WithCreate adds to the error of a bucket that does not exist how to create it.
func WithCreate(err error) error {
	var e *FileError
	if errors.As(err, &e) && errors.Is(err, ErrNoBucket) && !strings.Contains(e.Next, "--bucket-format") && !strings.Contains(e.Next, "with the slash in it") {
		e.Next += "; --create creates it"
	}
	return err
}

// ErrConflict is wrapped by errors of putting what does not go with what is there.
var ErrConflict = errors.New("the database holds something else")
