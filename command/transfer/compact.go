package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const compactHelp = `Copy all buckets and keys of FILE to OUT, in order and without free pages in
between. FILE is only read and stays as it is.

The copy is made under another name next to OUT, flushed to the disk, and gets
its name at the very end: OUT is never half a database. If OUT exists, nothing
is done unless --force is given, which replaces it.`

type compactFlags struct {
	cli.OutputFile
	txMaxSize int64
	noSync    bool
}

type compactReport struct {
	File        string `json:"file"`
	Output      string `json:"output"`
	SizeBytes   int64  `json:"size_bytes"`
	OutputBytes int64  `json:"output_bytes"`
}

func newCompact(a *cli.App) *cobra.Command {
	var f compactFlags
	cmd := &cobra.Command{
		Use:   "compact -o OUT FILE",
		Short: "Copy a database without its free pages",
		Long:  compactHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runCompact(c, f) }),
	}
	if a.Stock {
		cmd.Args = cobra.MinimumNArgs(1)
	}
	f.AddFlags(cmd)
	flags := cmd.Flags()
	cli.SizeVar(flags, &f.txMaxSize, "tx-max-size", 0, "bytes of the copy that are held in memory, about; 0: a few MiB, which is the most")
	flags.BoolVar(&f.noSync, "no-sync", false, "do not flush the copy to the disk before it gets its name")
	return cmd
}

func runCompact(c *cli.Call, f compactFlags) error {
	if err := f.Given(); err != nil {
		return err
	}
	info, err := c.Look(c.Args[0])
	if err != nil {
		return err
	}
	f.Unflushed = f.noSync
	dst, err := c.Destination(f.OutputFile, info, func(old fs.FileInfo) bool { return c.Stock && hasNoBuckets(c, f.Path, old) })
	if err != nil {
		return err
	}
	src, err := c.Read(c.Args[0], false)
	if err != nil {
		return err
	}
	defer src.Close()
	r := compactReport{File: src.FilePath, Output: f.Path, SizeBytes: src.FileSize}
	if r.OutputBytes, err = compactTo(c, dst, info, src, f); err != nil {
		return err
	}
	switch {
	case c.JSON:
		return c.PrintJSON(r)
	case c.Stock:
		fmt.Fprintf(c.Out, "%d -> %d bytes (gain=%.2fx)\n", r.SizeBytes, r.OutputBytes, float64(r.SizeBytes)/float64(r.OutputBytes))
	default:
		fmt.Fprintf(c.Out, "%s -> %s: %s -> %s\n", r.File, r.Output, cli.SizeExactly(r.SizeBytes), cli.SizeExactly(r.OutputBytes))
		if r.OutputBytes > r.SizeBytes {
			fmt.Fprintf(c.Out, "The copy is larger: %s had little to gain, and the pages of a copy have room for a checksum.\n", r.File)
		}
	}
	return nil
}

// hasNoBuckets tells whether the file is empty, or a database without buckets.
// bbolt fills such a file, so in its shape that is not a reason to refuse.
func hasNoBuckets(c *cli.Call, path string, info fs.FileInfo) bool {
	if info.Size() == 0 {
		return true
	}
	empty := false
	err := c.View(path, false, func(_ *cli.Database, tx *holdfast.Tx) error {
		name, _ := tx.Cursor().First()
		empty = name == nil
		return nil
	})
	return err == nil && empty
}

// compactTo writes the copy of src to dst and returns its size.
func compactTo(c *cli.Call, dst string, info fs.FileInfo, src *cli.Database, f compactFlags) (size int64, err error) {
	err = c.MakeFile(dst, f.OutputFile, func(ctx context.Context, temp string) error {
		if size, err = writeCopy(c, ctx, temp, src, f); err != nil {
			return err
		}
		return cli.FinishFile(temp, size, info, !f.noSync)
	})
	if cli.IsDamage(err) || cli.IsOwnerLost(err) {
		return 0, c.Explain(src.FilePath, err)
	}
	return size, c.Explain(f.Path, err)
}

// writeCopy copies src to the empty file at temp and returns the bytes of it
// that belong to the database. It ends early when ctx does.
func writeCopy(c *cli.Call, ctx context.Context, temp string, src *cli.Database, f compactFlags) (int64, error) {
	// The copy is flushed when it is complete.
	d, err := c.OpenMade(temp, f.Path, &holdfast.Options{NoSync: true, PageSize: src.Info().PageSize})
	if err != nil {
		return 0, err
	}
	d.AllocSize = cli.CompactGrowth
	cancel := context.AfterFunc(ctx, func() { _ = d.File.Close() }) // every later write fails
	defer cancel()
	var done func() int64
	total := liveBytes(src)
	if total > 0 {
		done = func() int64 { return d.Stats().BytesWritten }
	}
	stop := c.Progress("copying", total, done)
	err = src.View(func(tx *holdfast.Tx) error {
		return cli.EachTop(tx, func([]byte, *holdfast.Bucket) error { return nil })
	})
	if err == nil {
		err = blameSource(holdfast.Compact(d.DB, src.DB, f.txMaxSize))
	}
	pageSize := d.Info().PageSize
	err = errors.Join(err, cli.CloseMade(d, err == nil))
	stop()
	if err != nil {
		return 0, err
	}
	return cli.DatabaseBytes(temp, pageSize)
}

// blameSource makes errors of putting what no database can hold into errors of
// damage: it came from the source.
func blameSource(err error) error {
	for _, e := range []error{
		holdfast.ErrKeyRequired, holdfast.ErrBucketNameRequired, holdfast.ErrKeyTooLarge,
		holdfast.ErrBucketExists, holdfast.ErrIncompatibleValue,
	} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", cli.ErrDamage, err)
		}
	}
	return err
}

// liveBytes is the size of the pages in use, if that is known without a scan.
func liveBytes(d *cli.Database) int64 {
	m, free, err := d.NewestFree()
	if err != nil || free == nil {
		return 0
	}
	return (int64(m.HighWater) - int64(*free)) * int64(m.PageSize)
}
