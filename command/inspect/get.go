package inspect

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
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

func newGet(a *cli.App) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "get FILE BUCKET... KEY",
		Short: "Print the value of a key",
		Args:  cobra.MinimumNArgs(3),
		RunE:  a.Action(func(c *cli.Call) error { return runGet(c, f) }),
	}
	f.addFormatFlag(cmd, "auto")
	f.AddBucketFlag(cmd)
	f.AddKeyFlag(cmd)
	if a.Stock { // there, -f is for keys only
		cmd.Flags().Lookup("format").Shorthand = ""
	}
	return cmd
}

func runGet(c *cli.Call, f listFlags) error {
	if err := cli.CheckFormat("format", f.format, cli.OutputFormats); err != nil {
		return err
	}
	file := c.Args[0]
	path, key, err := f.PathAndKey(c.Args[1:])
	if err != nil {
		return err
	}
	return c.View(file, false, func(_ *cli.Database, tx *holdfast.Tx) error {
		in, err := f.Find(c.App, file, tx, &path)
		if err != nil {
			return err
		}
		value := in.Get(key)
		if value == nil {
			if err := tx.Err(); err != nil {
				return err
			}
			return c.NoKey(file, in.Bucket, path, key)
		}
		switch {
		case c.JSON:
		case f.format == "bytes" && !c.Stock: // all of them and no more, so that they can go into a file
			_, err := c.Out.Write(value)
			return err
		default:
			_, err := fmt.Fprintln(c.Out, cli.FormatBytes(value, f.format))
			return err
		}
		r := getReport{File: file, Bucket: cli.PathNames(path), ValueBytes: len(value)}
		r.Key, r.KeyEncoding = cli.EncodeBytes(key, "auto")
		r.Value, r.ValueEncoding = cli.EncodeBytes(value, f.format)
		return c.PrintJSON(r)
	})
}
