package transfer

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

type deleteFlags struct {
	cli.Naming
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

func newDelete(a *cli.App) *cobra.Command {
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
		RunE: a.Action(func(c *cli.Call) error { return runDelete(c, f) }),
	}
	f.AddBucketFlag(cmd)
	f.AddKeyFlag(cmd)
	cmd.Flags().BoolVar(&f.bucket, "bucket", false, "delete the bucket FILE BUCKET... with everything in it; there is no KEY then")
	return cmd
}

func runDelete(c *cli.Call, f deleteFlags) error {
	if f.bucket {
		return deleteBucket(c, f)
	}
	path, key, err := f.PathAndKey(c.Args[1:])
	if err != nil {
		return err
	}
	r := deleteReport{File: c.Args[0], Keys: 1}
	r.Key, r.KeyEncoding = cli.EncodeBytes(key, "auto")
	_, err = c.Update(r.File, false, func(tx *holdfast.Tx) error {
		in, err := f.Find(c.App, r.File, tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = cli.PathNames(path)
		if err := c.NotInStore(r.File, tx, path, "\"blob rm\" removes a blob"); err != nil {
			return err
		}
		value := in.Get(key)
		if value == nil {
			if err := tx.Err(); err != nil {
				return err
			}
			return notDeleted(c, r.File, in.Bucket, path, key)
		}
		r.ValueBytes = len(value)
		return in.Delete(key)
	})
	if err != nil {
		return err
	}
	return c.Report(r, func() {
		fmt.Fprintf(c.Out, "deleted %s from %s (it had %s)\n", r.Key, cli.PathText(path), cli.Plural(r.ValueBytes, "byte"))
	})
}

func notDeleted(c *cli.Call, file string, b *holdfast.Bucket, path [][]byte, key []byte) error {
	if b.Bucket(key) != nil {
		return &cli.FileError{File: file, Err: cli.ErrNoKey, Next: "--bucket deletes it with everything in it",
			What: fmt.Sprintf("%s in %s is a bucket", cli.Show(key), cli.PathText(path))}
	}
	return c.NoKey(file, b, path, key)
}

func deleteBucket(c *cli.Call, f deleteFlags) error {
	path, err := f.Buckets(c.Args[1:])
	if err != nil {
		return err
	}
	r := deleteReport{File: c.Args[0], WholeBucket: true}
	_, err = c.Update(r.File, false, func(tx *holdfast.Tx) error {
		bucket, err := f.Find(c.App, r.File, tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = cli.PathNames(path)
		last := len(path) - 1
		if err := c.NotInStore(r.File, tx, path[:last], "\"blob rm\" removes a blob"); err != nil {
			return err
		}
		in, err := c.Locate(r.File, tx, path[:last])
		if err != nil {
			return err
		}
		r.Keys = bucket.Stats().KeyN
		return errors.Join(tx.Err(), in.Remove(path[last]))
	})
	if err != nil {
		return err
	}
	return c.Report(r, func() {
		fmt.Fprintf(c.Out, "deleted bucket %s with %s\n", cli.PathText(path), cli.Plural(r.Keys, "key"))
	})
}
