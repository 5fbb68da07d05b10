package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
)

type deleteFlags struct {
	naming
	bucket bool
}

type deleteReport struct {
	File        string   `json:"file"`
	Bucket      []string `json:"bucket"`
	Key         string   `json:"key,omitempty"`
	KeyEncoding string   `json:"key_encoding,omitempty"`
	ValueBytes  int      `json:"value_bytes"`
	WholeBucket bool     `json:"whole_bucket"`
	Keys        int      `json:"keys"` // that were deleted
}

func (a *app) newDelete() *cobra.Command {
	var f deleteFlags
	cmd := &cobra.Command{
		Use:   "delete FILE BUCKET... KEY",
		Short: "Delete a key or, with --bucket, a bucket with everything in it",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.bucket {
				return cobra.MinimumNArgs(2)(cmd, args)
			}
			return cobra.MinimumNArgs(3)(cmd, args)
		},
		RunE: a.action(func(c *call) error { return c.delete(f) }),
	}
	f.addBucketFlag(cmd)
	f.addKeyFlag(cmd)
	cmd.Flags().BoolVar(&f.bucket, "bucket", false, "delete the bucket FILE BUCKET... with everything in it; there is no KEY then")
	return cmd
}

func (c *call) delete(f deleteFlags) error {
	if f.bucket {
		return c.deleteBucket(f)
	}
	path, key, err := f.pathAndKey(c.args[1:])
	if err != nil {
		return err
	}
	r := deleteReport{File: c.args[0], Keys: 1}
	r.Key, r.KeyEncoding = encodeBytes(key, "auto")
	_, err = c.update(r.File, false, func(tx *holdfast.Tx) error {
		in, err := f.find(c.app, r.File, tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = pathNames(path)
		if err := c.notInStore(r.File, tx, path, "\"blob rm\" removes a blob"); err != nil {
			return err
		}
		value := in.Get(key)
		if value == nil {
			if err := tx.Err(); err != nil {
				return err
			}
			return c.notDeleted(r.File, in.Bucket, path, key)
		}
		r.ValueBytes = len(value)
		return in.Delete(key)
	})
	switch {
	case err != nil:
		return err
	case c.json:
		return c.printJSON(r)
	}
	fmt.Fprintf(c.out, "deleted %s from %s (it had %s)\n", r.Key, pathText(path), plural(r.ValueBytes, "byte"))
	return nil
}

func (c *call) notDeleted(file string, b *holdfast.Bucket, path [][]byte, key []byte) error {
	if b.Bucket(key) != nil {
		return &fileError{file: file, err: errNoKey, next: "--bucket deletes it with everything in it",
			what: fmt.Sprintf("%s in %s is a bucket", show(key), pathText(path))}
	}
	return c.noKey(file, b, path, key)
}

func (c *call) deleteBucket(f deleteFlags) error {
	path, err := f.buckets(c.args[1:])
	if err != nil {
		return err
	}
	r := deleteReport{File: c.args[0], WholeBucket: true}
	_, err = c.update(r.File, false, func(tx *holdfast.Tx) error {
		bucket, err := f.find(c.app, r.File, tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = pathNames(path)
		last := len(path) - 1
		if err := c.notInStore(r.File, tx, path[:last], "\"blob rm\" removes a blob"); err != nil {
			return err
		}
		in, err := c.locate(r.File, tx, path[:last])
		if err != nil {
			return err
		}
		r.Keys = bucket.Stats().KeyN
		return errors.Join(tx.Err(), in.remove(path[last]))
	})
	switch {
	case err != nil:
		return err
	case c.json:
		return c.printJSON(r)
	}
	fmt.Fprintf(c.out, "deleted bucket %s with %s\n", pathText(path), plural(r.Keys, "key"))
	return nil
}
