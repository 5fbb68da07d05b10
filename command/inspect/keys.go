package inspect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

type bucketsReport struct {
	File    string            `json:"file"`
	Bucket  []string          `json:"bucket"` // in which they are
	Buckets []cli.BucketEntry `json:"buckets"`
}

type listFlags struct {
	cli.Naming
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

func newBuckets(a *cli.App) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "buckets FILE [BUCKET...]",
		Short: "List the buckets at the top level or in a bucket",
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runBuckets(c, f) }),
	}
	format := "auto"
	if a.Stock {
		format = "bytes"
		cmd.Use, cmd.Args = "buckets FILE", cobra.ExactArgs(1)
	}
	f.addFormatFlag(cmd, format)
	f.AddBucketFlag(cmd)
	return cmd
}

func (f *listFlags) addFormatFlag(cmd *cobra.Command, format string) {
	cmd.Flags().StringVarP(&f.format, "format", "f", format, "how to print: "+strings.Join(cli.OutputFormats, "|"))
}

func runBuckets(c *cli.Call, f listFlags) error {
	if err := cli.CheckFormat("format", f.format, cli.OutputFormats); err != nil {
		return err
	}
	path, err := f.Buckets(c.Args[1:])
	if err != nil {
		return err
	}
	r := bucketsReport{File: c.Args[0], Buckets: []cli.BucketEntry{}}
	err = c.View(c.Args[0], false, func(_ *cli.Database, tx *holdfast.Tx) error {
		in, err := f.Find(c.App, c.Args[0], tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = cli.PathNames(path)
		walk := cli.NewWalk(c.Ctx, tx)
		return in.EachBucket(func(name []byte) error {
			if err := walk.Met(name, nil); err != nil {
				return err
			}
			if c.JSON {
				value, encoding := cli.EncodeBytes(name, f.format)
				r.Buckets = append(r.Buckets, cli.BucketEntry{Name: value, Encoding: encoding})
				return nil
			}
			_, err := fmt.Fprintln(c.Out, cli.FormatBytes(name, f.format))
			return err
		})
	})
	if err != nil || !c.JSON {
		return err
	}
	return c.PrintJSON(r)
}

type keyEntry struct {
	Key      string `json:"key"`
	Encoding string `json:"encoding"`
	Bucket   bool   `json:"bucket"` // it is a nested bucket
}

func newKeys(a *cli.App) *cobra.Command {
	var f keysFlags
	cmd := &cobra.Command{
		Use:   "keys FILE BUCKET...",
		Short: "List the keys of a bucket, nested buckets among them",
		Args:  cobra.MinimumNArgs(2),
		RunE:  a.Action(func(c *cli.Call) error { return runKeys(c, f) }),
	}
	f.addFormatFlag(cmd, "auto")
	f.AddBucketFlag(cmd)
	if !a.Stock {
		f.AddKeyFlag(cmd)
		cmd.Flags().Lookup("parse-format").Usage = "how --prefix is given: " + strings.Join(cli.InputFormats, "|")
		cmd.Flags().StringVar(&f.prefix, "prefix", "", "only keys that begin with this")
		cmd.Flags().Int64Var(&f.limit, "limit", 0, "so many keys at most; 0: all")
		cmd.Flags().BoolVar(&f.count, "count", false, "print how many keys there are, and not the keys")
	}
	return cmd
}

func runKeys(c *cli.Call, f keysFlags) error {
	if err := cli.CheckFormat("format", f.format, cli.OutputFormats); err != nil {
		return err
	}
	path, err := f.Buckets(c.Args[1:])
	if err != nil {
		return err
	}
	if f.limit < 0 {
		return cli.Usagef("--limit is %d; give 0 for all, or more", f.limit)
	}
	if f.prefix != "" {
		if f.from, err = f.Key(f.prefix); err != nil {
			return err
		}
	}
	return c.View(c.Args[0], false, func(_ *cli.Database, tx *holdfast.Tx) error {
		in, err := f.Find(c.App, c.Args[0], tx, &path)
		if err != nil {
			return err
		}
		switch {
		case f.count:
			return countKeys(c, f, in, path)
		case c.JSON:
			return keysJSON(c, f, in, path)
		}
		return eachKey(c, f, in, func(k, _ []byte) error {
			_, err := fmt.Fprintln(c.Out, cli.FormatBytes(k, f.format))
			return err
		})
	})
}

// eachKey calls fn with the keys that are asked for.
func eachKey(c *cli.Call, f keysFlags, in cli.Container, fn func(k, v []byte) error) error {
	n, walk := int64(0), cli.NewWalk(c.Ctx, in.Tx)
	for k, v := range in.Prefix(f.from) {
		if n++; f.limit > 0 && n > f.limit {
			break
		}
		if err := walk.Met(k, nil); err != nil {
			return err
		}
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return in.Tx.Err()
}

// keysJSON prints the keys one by one, so that a bucket of any size does.
func keysJSON(c *cli.Call, f keysFlags, in cli.Container, path [][]byte) error {
	return c.ListJSON("bucket", path, "keys", func(add func(any) error) error {
		return eachKey(c, f, in, func(k, v []byte) error {
			value, encoding := cli.EncodeBytes(k, f.format)
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
func countKeys(c *cli.Call, f keysFlags, in cli.Container, path [][]byte) error {
	r := countReport{File: c.Args[0], Bucket: cli.PathNames(path)}
	if err := eachKey(c, f, in, func(_, _ []byte) error { r.Count++; return nil }); err != nil {
		return err
	}
	if c.JSON {
		return c.PrintJSON(r)
	}
	_, err := fmt.Fprintln(c.Out, r.Count)
	return err
}
