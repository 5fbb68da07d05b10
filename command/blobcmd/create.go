package blobcmd

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/blob"
	"holdfast/command/cli"
)

const blobCreateHelp = `Create an empty store, and the file if there is none, as "put --create" does. How a store is made stays
as it is. Stores that exchange blobs have the same hash, chunking, leaf size and key.`

func newBlobCreate(a *cli.App) *cobra.Command {
	f := blobPutFlags{create: true}
	cmd := &cobra.Command{
		Use:   "create FILE STORE",
		Short: "Create an empty store",
		Long:  blobCreateHelp,
		Args:  cobra.ExactArgs(2),
		RunE:  a.Action(func(c *cli.Call) error { return blobCreate(c, f) }),
	}
	f.addOptions(cmd.Flags())
	f.AddStoreFlag(cmd)
	return cmd
}

// addOptions adds the flags of a new store.
func (f *blobPutFlags) addOptions(flags *pflag.FlagSet) {
	flags.StringVar(&f.algorithm, "algorithm", "sha256", "of a new store, the hash: sha256|blake3")
	flags.StringVar(&f.chunking, "chunking", "fixed", "of a new store, how blobs are cut, by length or by content: fixed|fastcdc")
	flags.StringVar(&f.compress, "compress", "none", "of a new store, how what is stored is compressed, if that pays: none|zstd|zstd-better")
	flags.BoolVar(&f.encrypt, "encrypt", false, "of a new store: encrypt it with the key of --key-file")
	cli.SizeRangeVar(flags, &f.leafSize, "leaf-size", 0, blob.MinLeafSize, blob.MaxLeafSize, "of a new store, the length of the pieces; default: what fills 16 pages, 65488 bytes")
}

func blobCreate(c *cli.Call, f blobPutFlags) error {
	p := &putter{Call: c, f: f}
	if err := p.arguments(); err != nil {
		return err
	}
	p.r = &blobPutReport{File: p.file, Store: cli.PathNames(p.path), Blobs: []putBlob{}}
	created, err := p.Update(p.file, true, p.begin)
	switch {
	case err != nil:
		return explainBlob(p.Call, p.file, err)
	case !p.r.CreatedStore:
		return &cli.FileError{File: p.file, What: "the store " + cli.BriefPath(p.path) + " is there already", Err: blob.ErrNotEmpty}
	}
	p.r.CreatedFile = created
	return p.print()
}
