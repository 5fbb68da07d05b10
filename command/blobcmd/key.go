package blobcmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

const blobKeyHelp = `Make a random key for encrypted stores, in a new file that other users cannot read. "blob put --create
--encrypt" makes a store with it; from then on all commands on the store need it. Without the key nothing of such
a store can be read again: keep a copy of it, and not with the database. The key of a store stays: for another
one, put what "blob cat" writes into a new store.`

func newBlobKey(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "key KEYFILE",
		Short: "Make a key for encrypted stores",
		Long:  blobKeyHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return blobKey(c, c.Args[0]) }),
	}
}

func blobKey(c *cli.Call, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return &cli.FileError{File: path, What: "exists", Next: "give a new file: what was encrypted with a key that is replaced is lost", Err: fs.ErrExist}
	}
	// Its name is durable when it is made: a store that is made with it next must not outlive it.
	err := c.MakeFile(path, cli.OutputFile{Path: path}, func(_ context.Context, temp string) error {
		f, err := os.OpenFile(temp, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // it has no errors
		_, err = fmt.Fprintf(f, "%x\n", secret)
		return errors.Join(err, cli.Finish(f, nil, true))
	})
	if err != nil {
		return c.Explain(path, err)
	}
	return c.Report(map[string]string{"file": path}, func() { fmt.Fprintf(c.Out, "made the key %s\n", cli.OneLine(path)) })
}
