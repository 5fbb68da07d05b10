// Package blobcmd has the command blob, with those below it: put, get, cat, ls, rm, stat, diff, check,
// gc, push, pull, serve and key.
package blobcmd

import (
	"encoding/hex"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
)

const blobHelp = `Store files of any size in a database, and get them out again.

A store is a bucket. It keeps each blob in pieces that are named by their digests, so what is there
already is not stored again, and all that is read is verified.

STORE is the path of the bucket, with a / between the names. REF names a blob: by its digest, as
OCI writes it (sha256:...), by the reference that put prints (sha256-tree:...), by seven or more of the
first hexadecimal digits of either, by the bytes of a reference in hexadecimal, as "get" prints
them of a row, or by the row that "put --into" gave the reference to: BUCKET/KEY.`

// otherWords are what other tools call commands.
var otherWords = map[string][]string{
	"create": {"init", "make", "new"}, "put": {"add", "backup"}, "get": {"extract", "restore"}, "cat": {"dump"}, "ls": {"find", "list"},
	"rm": {"delete", "forget", "remove"}, "gc": {"collect", "prune"}, "check": {"fsck", "repair", "verify"}, "stat": {"info", "leases", "stats"},
	"push": {"copy", "sync"},
}

// NewCommand makes the command blob.
func NewCommand(a *cli.App) *cobra.Command {
	cmd := cli.Group("blob", "Store files of any size, and get them out again", blobHelp)
	cmd.AddCommand(newBlobCreate(a), newBlobPut(a), newBlobGet(a), newBlobCat(a), newBlobLs(a), newBlobRm(a),
		newBlobStat(a), newBlobDiff(a), newBlobCheck(a), newBlobGC(a), newBlobPush(a), newBlobPull(a), newBlobServe(a))
	for _, child := range cmd.Commands() {
		completeStore(a, child)
		a.AddKeyFlag(child)
		child.SuggestFor = otherWords[child.Name()]
	}
	cmd.AddCommand(newBlobKey(a))
	return cmd
}

// fileAndStore are the arguments that all commands on blobs begin with.
func fileAndStore(c *cli.Call, n cli.StoreName) (file string, path [][]byte, err error) {
	path, err = n.Path(c.Args[1])
	return c.Args[0], path, err
}

// store opens the store in the bucket at path.
func store(a *cli.App, file string, tx *holdfast.Tx, path [][]byte) (*blob.Store, error) {
	in, err := a.Locate(file, tx, path)
	if err != nil {
		return nil, cli.WithSlash(tx, path, err)
	}
	return a.OpenStore(file, in, path)
}

// viewStore opens the database for reading, and the store that the arguments name in it.
func viewStore(c *cli.Call, n cli.StoreName, fn func(*cli.Database, *blobs) error) error {
	file, path, err := fileAndStore(c, n)
	if err != nil {
		return err
	}
	return explainBlob(c, file, c.View(file, false, func(d *cli.Database, tx *holdfast.Tx) error {
		s, err := store(c.App, file, tx, path)
		if err != nil {
			return err
		}
		return fn(d, &blobs{Store: s, call: c, file: file, path: path, tx: tx})
	}))
}

// lookStore is an error if the file has no such store. Opening it for writing can change it: that is left
// to what can succeed.
func lookStore(c *cli.Call, file string, path [][]byte) error {
	return explainBlob(c, file, c.View(file, false, func(_ *cli.Database, tx *holdfast.Tx) error {
		_, err := store(c.App, file, tx, path)
		return err
	}))
}

// blobs is an open store with what the command knows of it.
type blobs struct {
	*blob.Store
	call *cli.Call
	file string
	path [][]byte
	tx   *holdfast.Tx // nil: rows are not looked at
}

// explainBlob says the next step of an error of a store that is damaged.
func explainBlob(c *cli.Call, file string, err error) error {
	var corrupt *blob.CorruptError
	if err == nil || !errors.As(err, &corrupt) && !errors.Is(err, blob.ErrMissing) && !errors.Is(err, blob.ErrCorrupt) {
		return c.Explain(file, err)
	}
	var known *cli.FileError
	what := err.Error()
	if errors.As(err, &known) {
		if what = known.What; known.Next != "" {
			return err
		}
	}
	line := c.Name() + " blob check --data " + cli.ShellWord(file)
	if len(c.Args) > 1 {
		line += " " + cli.ShellWord(c.Args[1])
	}
	return &cli.FileError{File: file, What: "damaged: " + what, Next: "all that is wrong shows: " + line, Err: err}
}

// parseDigest reads a SHA-256 digest, as OCI writes it or without the name of the algorithm.
func parseDigest(s string) (digest [32]byte, err error) {
	text := strings.TrimPrefix(s, "sha256:")
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(digest) {
		return digest, cli.Usagef("%q is not a SHA-256 digest: sha256: and 64 hexadecimal digits", s)
	}
	return [32]byte(b), nil
}
