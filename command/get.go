package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
)

type getReport struct {
	File          string   `json:"file"`
	Bucket        []string `json:"bucket"`
	Key           string   `json:"key"`
	KeyEncoding   string   `json:"key_encoding"`
	Value         string   `json:"value"`
	ValueEncoding string   `json:"value_encoding"`
	ValueBytes    int      `json:"value_bytes"`
}

func (a *app) newGet() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "get FILE BUCKET... KEY",
		Short: "Print the value of a key",
		Args:  cobra.MinimumNArgs(3),
		RunE:  a.action(func(c *call) error { return c.get(f) }),
	}
	f.addFormatFlag(cmd, "auto")
	f.addBucketFlag(cmd)
	f.addKeyFlag(cmd)
	if a.stock { // there, -f is for keys only
		cmd.Flags().Lookup("format").Shorthand = ""
	}
	return cmd
}

// pathAndKey reads the arguments that name a bucket and a key in it.
func (n *naming) pathAndKey(args []string) (path [][]byte, key []byte, err error) {
	last := len(args) - 1
	if path, err = n.buckets(args[:last]); err != nil {
		return nil, nil, err
	}
	key, err = n.key(args[last])
	return path, key, err
}

func (c *call) get(f listFlags) error {
	if err := checkFormat("format", f.format, outputFormats); err != nil {
		return err
	}
	file := c.args[0]
	path, key, err := f.pathAndKey(c.args[1:])
	if err != nil {
		return err
	}
	return c.view(file, false, func(_ *database, tx *holdfast.Tx) error {
		in, err := f.find(c.app, file, tx, &path)
		if err != nil {
			return err
		}
		value := in.Get(key)
		if value == nil {
			if err := tx.Err(); err != nil {
				return err
			}
			return c.noKey(file, in.Bucket, path, key)
		}
		switch {
		case c.json:
		case f.format == "bytes" && !c.stock: // all of them and no more, so that they can go into a file
			_, err := c.out.Write(value)
			return err
		default:
			_, err := fmt.Fprintln(c.out, formatBytes(value, f.format))
			return err
		}
		r := getReport{File: file, Bucket: pathNames(path), ValueBytes: len(value)}
		r.Key, r.KeyEncoding = encodeBytes(key, "auto")
		r.Value, r.ValueEncoding = encodeBytes(value, f.format)
		return c.printJSON(r)
	})
}
