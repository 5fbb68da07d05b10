package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
)

type bucketsReport struct {
	File    string        `json:"file"`
	Bucket  []string      `json:"bucket"` // in which they are
	Buckets []bucketEntry `json:"buckets"`
}

type bucketEntry struct {
	Name     string `json:"name"`
	Encoding string `json:"encoding"`
}

type listFlags struct {
	naming
	format string
}

// keysFlags are the flags of keys.
type keysFlags struct {
	listFlags
	prefix string
	from   []byte // prefix, read
	limit  int64
	count  bool
}

func (a *app) newBuckets() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "buckets FILE [BUCKET...]",
		Short: "List the buckets at the top level or in a bucket",
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.action(func(c *call) error { return c.buckets(f) }),
	}
	format := "auto"
	if a.stock {
		format = "bytes"
		cmd.Use, cmd.Args = "buckets FILE", cobra.ExactArgs(1)
	}
	f.addFormatFlag(cmd, format)
	f.addBucketFlag(cmd)
	return cmd
}

func (f *listFlags) addFormatFlag(cmd *cobra.Command, format string) {
	cmd.Flags().StringVarP(&f.format, "format", "f", format, "how to print: "+strings.Join(outputFormats, "|"))
}

func (c *call) buckets(f listFlags) error {
	if err := checkFormat("format", f.format, outputFormats); err != nil {
		return err
	}
	path, err := f.buckets(c.args[1:])
	if err != nil {
		return err
	}
	r := bucketsReport{File: c.args[0], Buckets: []bucketEntry{}}
	err = c.view(c.args[0], false, func(_ *database, tx *holdfast.Tx) error {
		in, err := f.find(c.app, c.args[0], tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = pathNames(path)
		walk := newWalk(c.ctx, tx)
		return in.eachBucket(func(name []byte) error {
			if err := walk.met(name, nil); err != nil {
				return err
			}
			if c.json {
				value, encoding := encodeBytes(name, f.format)
				r.Buckets = append(r.Buckets, bucketEntry{value, encoding})
				return nil
			}
			_, err := fmt.Fprintln(c.out, formatBytes(name, f.format))
			return err
		})
	})
	if err != nil || !c.json {
		return err
	}
	return c.printJSON(r)
}

type keyEntry struct {
	Key      string `json:"key"`
	Encoding string `json:"encoding"`
	Bucket   bool   `json:"bucket"` // it is a nested bucket
}

func (a *app) newKeys() *cobra.Command {
	var f keysFlags
	cmd := &cobra.Command{
		Use:   "keys FILE BUCKET...",
		Short: "List the keys of a bucket, nested buckets among them",
		Args:  cobra.MinimumNArgs(2),
		RunE:  a.action(func(c *call) error { return c.keys(f) }),
	}
	f.addFormatFlag(cmd, "auto")
	f.addBucketFlag(cmd)
	if !a.stock {
		f.addKeyFlag(cmd)
		cmd.Flags().Lookup("parse-format").Usage = "how --prefix is given: " + strings.Join(inputFormats, "|")
		cmd.Flags().StringVar(&f.prefix, "prefix", "", "only keys that begin with this")
		cmd.Flags().Int64Var(&f.limit, "limit", 0, "so many keys at most; 0: all")
		cmd.Flags().BoolVar(&f.count, "count", false, "print how many keys there are, and not the keys")
	}
	return cmd
}

func (c *call) keys(f keysFlags) error {
	if err := checkFormat("format", f.format, outputFormats); err != nil {
		return err
	}
	path, err := f.buckets(c.args[1:])
	if err != nil {
		return err
	}
	if f.limit < 0 {
		return usagef("--limit is %d; give 0 for all, or more", f.limit)
	}
	if f.prefix != "" {
		if f.from, err = f.key(f.prefix); err != nil {
			return err
		}
	}
	return c.view(c.args[0], false, func(_ *database, tx *holdfast.Tx) error {
		in, err := f.find(c.app, c.args[0], tx, &path)
		if err != nil {
			return err
		}
		switch {
		case f.count:
			return c.countKeys(f, in, path)
		case c.json:
			return c.keysJSON(f, in, path)
		}
		return c.eachKey(f, in, func(k, _ []byte) error {
			_, err := fmt.Fprintln(c.out, formatBytes(k, f.format))
			return err
		})
	})
}

// eachKey calls fn with the keys that are asked for.
func (c *call) eachKey(f keysFlags, in container, fn func(k, v []byte) error) error {
	n, walk := int64(0), newWalk(c.ctx, in.tx)
	for k, v := range in.Prefix(f.from) {
		if n++; f.limit > 0 && n > f.limit {
			break
		}
		if err := walk.met(k, nil); err != nil {
			return err
		}
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return in.tx.Err()
}

// keysJSON prints the keys one by one, so that a bucket of any size does.
func (c *call) keysJSON(f keysFlags, in container, path [][]byte) error {
	return c.listJSON("bucket", path, "keys", func(add func(any) error) error {
		return c.eachKey(f, in, func(k, v []byte) error {
			value, encoding := encodeBytes(k, f.format)
			return add(keyEntry{value, encoding, v == nil})
		})
	})
}

type countReport struct {
	File   string   `json:"file"`
	Bucket []string `json:"bucket"`
	Count  int64    `json:"count"`
}

// countKeys prints how many keys there are.
func (c *call) countKeys(f keysFlags, in container, path [][]byte) error {
	r := countReport{File: c.args[0], Bucket: pathNames(path)}
	if err := c.eachKey(f, in, func(_, _ []byte) error { r.Count++; return nil }); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(r)
	}
	_, err := fmt.Fprintln(c.out, r.Count)
	return err
}

// listJSON prints what there is of some kind in the bucket at path, and how many, one by one, so that any number does.
func (c *call) listJSON(in string, path [][]byte, kind string, each func(add func(any) error) error) error {
	file, err := compactJSON(c.args[0])
	if err != nil {
		return err
	}
	names, err := compactJSON(pathNames(path))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "{\n  \"file\": %s,\n  %q: %s,\n  %q: [", file, in, names, kind)
	n := 0
	err = each(func(entry any) error {
		line, err := compactJSON(entry)
		if err != nil {
			return err
		}
		separator := ",\n    "
		if n == 0 {
			separator = "\n    "
		}
		n++
		_, err = fmt.Fprintf(c.out, "%s%s", separator, line)
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "\n  ],\n  \"count\": %d\n}\n", n)
	return err
}
