package command

import (
	"context"
	"errors"
	"fmt"
	"holdfast/command/internal/hook"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"holdfast"
)

const putHelp = `Set a key to a value. The command prints what it did.

Neither the file nor a bucket is created unless --create is given.`

type putFlags struct {
	naming
	valueFormat string
	valueFile   string
	create      bool
}

type putReport struct {
	File           string   `json:"file"`
	Bucket         []string `json:"bucket"`
	Key            string   `json:"key"`
	KeyEncoding    string   `json:"key_encoding"`
	ValueBytes     int      `json:"value_bytes"`
	Replaced       bool     `json:"replaced"`
	ReplacedBytes  int      `json:"replaced_bytes"`
	CreatedFile    bool     `json:"created_file"`
	CreatedBuckets int      `json:"created_buckets"`
}

func (a *app) newPut() *cobra.Command {
	var f putFlags
	cmd := &cobra.Command{
		Use:   "put FILE BUCKET... KEY VALUE",
		Short: "Set a key to a value",
		Long:  putHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.valueFile != "" {
				return cobra.MinimumNArgs(3)(cmd, args)
			}
			return cobra.MinimumNArgs(4)(cmd, args)
		},
		RunE: a.action(func(c *call) error { return c.put(f) }),
	}
	f.addBucketFlag(cmd)
	f.addKeyFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.valueFormat, "value-format", "ascii-encoded", "how VALUE is given: ascii-encoded|hex")
	flags.StringVar(&f.valueFile, "value-file", "", "take the value from this file instead of VALUE; -: from standard input")
	flags.BoolVar(&f.create, "create", false, "create the file and the buckets if they do not exist")
	return cmd
}

// value gives the value to put and the arguments without it.
func (c *call) value(f putFlags) (value []byte, args []string, err error) {
	if err := checkFormat("value-format", f.valueFormat, inputFormats); err != nil {
		return nil, nil, err
	}
	switch f.valueFile {
	case "":
		last := len(c.args) - 1
		value, err = parseBytes("value", c.args[last], f.valueFormat)
		return value, c.args[:last], err
	case "-":
		value, err = readValue("standard input", c.cmd.InOrStdin())
		return value, c.args, err
	}
	file, err := openFile(f.valueFile)
	if err != nil {
		return nil, nil, c.explain(f.valueFile, err)
	}
	defer file.Close()
	value, err = readValue(f.valueFile, file)
	return value, c.args, c.explain(f.valueFile, err)
}

// readValue reads the file of that name to its end. One that is longer than a value can be, or has no end, is not
// taken into memory as a whole.
func readValue(name string, from io.Reader) ([]byte, error) {
	tooLong := &fileError{file: name, what: fmt.Sprintf("longer than a value can be: %s", sizeExactly(hook.LongestValue)), next: "nothing was set; \"blob put\" stores files of any size", err: holdfast.ErrValueTooLarge}
	if file, ok := from.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > hook.LongestValue {
			return nil, tooLong
		}
	}
	value, err := io.ReadAll(io.LimitReader(from, hook.LongestValue+1))
	if err == nil && int64(len(value)) > hook.LongestValue {
		return nil, tooLong
	}
	return value, err // never nil
}

func (c *call) put(f putFlags) error {
	value, args, err := c.value(f)
	if err != nil {
		return err
	}
	path, key, err := f.pathAndKey(args[1:])
	if err != nil {
		return err
	}
	r := putReport{File: c.args[0], ValueBytes: len(value)}
	r.Key, r.KeyEncoding = encodeBytes(key, "auto")
	r.CreatedFile, err = c.update(r.File, f.create, func(tx *holdfast.Tx) error {
		if path, err = f.singleNames(c.app, tx, path); err != nil {
			return err
		}
		r.Bucket = pathNames(path)
		if err := c.notInStore(r.File, tx, path, "\"blob put\" stores a blob there"); err != nil {
			return err
		}
		in, created, err := c.locateOrCreate(r.File, tx, path, f.create)
		if err != nil {
			return err
		}
		r.CreatedBuckets = created
		if err := c.notRow(r.File, in.Bucket, path, key, value); err != nil {
			return err
		}
		if old := in.Get(key); old != nil {
			r.Replaced, r.ReplacedBytes = true, len(old)
		}
		return cannotHaveValue(r.File, r.Key, pathText(path), in.Put(key, value))
	})
	switch {
	case err != nil:
		return err
	case c.json:
		return c.printJSON(r)
	}
	c.printPut(r, path)
	return nil
}

func (c *call) printPut(r putReport, path [][]byte) {
	if r.CreatedFile {
		fmt.Fprintf(c.out, "created the database %s\n", r.File)
	}
	if r.CreatedBuckets > 0 {
		fmt.Fprintf(c.out, "created %s of %s\n", plural(r.CreatedBuckets, "bucket"), pathText(path))
	}
	was := "a new key"
	if r.Replaced {
		was = fmt.Sprintf("it had %s", plural(r.ReplacedBytes, "byte"))
	}
	fmt.Fprintf(c.out, "set %s in %s to %s (%s)\n", r.Key, pathText(path), plural(r.ValueBytes, "byte"), was)
}

// update opens the database at path for writing and runs fn in a transaction.
// It creates the database only if create is set.
func (c *call) update(path string, create bool, fn func(*holdfast.Tx) error) (created bool, err error) {
	info, err := c.look(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		err = c.isDatabase(path)
	}
	if err != nil {
		if missing && !create {
			return false, c.hintCreate(path, err)
		}
		if !create || !missing && !errors.Is(err, holdfast.ErrInvalid) {
			return false, err
		}
		created = true
	}
	if !missing {
		return created, c.explain(path, c.change(path, info, func(d *database) error { return d.Update(fn) }))
	}
	// It gets its name when it is whole: what another program makes there meanwhile stays.
	o := output{path: path}
	dst, err := c.destination(o, nil, nil)
	if err == nil {
		err = c.makeFile(dst, o, func(_ context.Context, temp string) error {
			d, err := c.openMade(temp, &holdfast.Options{})
			if err != nil {
				return err
			}
			return errors.Join(d.Update(fn), d.Close())
		})
	}
	return created, c.explain(path, err)
}

// change opens the database at path for writing, which is there, and calls fn with it.
func (c *call) change(path string, info os.FileInfo, fn func(*database) error) error {
	d, err := c.open(path, info, &holdfast.Options{})
	if err != nil {
		return err
	}
	if err = errors.Join(fn(d), d.Close()); err == nil {
		c.made = path
	}
	return err
}

// cannotHaveValue says, of an error of Put, that the key is that of a bucket.
func cannotHaveValue(file, key, in string, err error) error {
	if !errors.Is(err, holdfast.ErrIncompatibleValue) {
		return err
	}
	return &fileError{file: file, err: err, what: fmt.Sprintf("%s in %s is a bucket and cannot have a value", key, in)}
}

// hintCreate adds to the error of a missing file how to create it, after the
// files of similar names that are there.
func (c *call) hintCreate(path string, err error) error {
	var e *fileError
	if !errors.As(err, &e) || !errors.Is(err, fs.ErrNotExist) && e.next != "" || c.cmd.Flags().Lookup("create") == nil {
		return err
	}
	next := "--create makes it"
	if e.next != "" {
		next = e.next + "; --create makes a new one"
	}
	return &fileError{file: path, what: e.what, next: next, err: err}
}

// locateOrCreate opens the bucket at path and creates what is missing of it, if
// it may.
func (c *call) locateOrCreate(file string, tx *holdfast.Tx, path [][]byte, create bool) (at container, created int, err error) {
	if !create {
		at, err = c.locate(file, tx, path)
		return at, 0, err
	}
	at = container{tx: tx}
	for i, name := range path {
		next := at.child(name)
		if next == nil {
			if next, err = at.create(name); err != nil {
				return at, created, c.badBucket(file, path[:i+1], err)
			}
			created++
		}
		at.Bucket = next
	}
	return at, created, nil
}

func (c *call) badBucket(file string, path [][]byte, err error) error {
	if errors.Is(err, holdfast.ErrIncompatibleValue) {
		return &fileError{file: file, what: fmt.Sprintf("%s is a key and cannot be a bucket", pathText(path)), err: err}
	}
	return c.explain(file, err)
}
