package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
)

const compactHelp = `Copy all buckets and keys of FILE to OUT, in order and without free pages in
between. FILE is only read and stays as it is.

The copy is made under another name next to OUT, flushed to the disk, and gets
its name at the very end: OUT is never half a database. If OUT exists, nothing
is done unless --force is given, which replaces it.`

// compactGrowth is by how much the copy grows at a time. What it has too much
// is cut off at the end.
const compactGrowth = 16 << 20

type compactFlags struct {
	output
	txMaxSize int64
	noSync    bool
}

type compactReport struct {
	File        string `json:"file"`
	Output      string `json:"output"`
	SizeBytes   int64  `json:"size_bytes"`
	OutputBytes int64  `json:"output_bytes"`
}

func (a *app) newCompact() *cobra.Command {
	var f compactFlags
	cmd := &cobra.Command{
		Use:   "compact -o OUT FILE",
		Short: "Copy a database without its free pages",
		Long:  compactHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.action(func(c *call) error { return c.compact(f) }),
	}
	if a.stock {
		cmd.Args = cobra.MinimumNArgs(1)
	}
	f.addFlags(cmd)
	flags := cmd.Flags()
	cli.SizeVar(flags, &f.txMaxSize, "tx-max-size", 0, "bytes of the copy that are held in memory, about; 0: a few MiB, which is the most")
	flags.BoolVar(&f.noSync, "no-sync", false, "do not flush the copy to the disk before it gets its name")
	return cmd
}

func (c *call) compact(f compactFlags) error {
	if err := f.given(); err != nil {
		return err
	}
	info, err := c.look(c.args[0])
	if err != nil {
		return err
	}
	f.unflushed = f.noSync
	dst, err := c.destination(f.output, info, func(old fs.FileInfo) bool { return c.stock && c.hasNoBuckets(f.path, old) })
	if err != nil {
		return err
	}
	src, err := c.read(c.args[0], false)
	if err != nil {
		return err
	}
	defer src.Close()
	r := compactReport{File: src.path, Output: f.path, SizeBytes: src.size}
	if r.OutputBytes, err = c.compactTo(dst, info, src, f); err != nil {
		return err
	}
	switch {
	case c.json:
		return c.printJSON(r)
	case c.stock:
		fmt.Fprintf(c.out, "%d -> %d bytes (gain=%.2fx)\n", r.SizeBytes, r.OutputBytes, float64(r.SizeBytes)/float64(r.OutputBytes))
	default:
		fmt.Fprintf(c.out, "%s -> %s: %s -> %s\n", r.File, r.Output, sizeExactly(r.SizeBytes), sizeExactly(r.OutputBytes))
		if r.OutputBytes > r.SizeBytes {
			fmt.Fprintf(c.out, "The copy is larger: %s had little to gain, and the pages of a copy have room for a seal.\n", r.File)
		}
	}
	return nil
}

// hasNoBuckets tells whether the file is empty, or a database without buckets.
// bbolt fills such a file, so in its shape that is no reason to refuse.
func (c *call) hasNoBuckets(path string, info fs.FileInfo) bool {
	if info.Size() == 0 {
		return true
	}
	empty := false
	err := c.view(path, false, func(_ *database, tx *holdfast.Tx) error {
		name, _ := tx.Cursor().First()
		empty = name == nil
		return nil
	})
	return err == nil && empty
}

// compactTo writes the copy of src to dst and returns its size.
func (c *call) compactTo(dst string, info fs.FileInfo, src *database, f compactFlags) (size int64, err error) {
	err = c.makeFile(dst, f.output, func(ctx context.Context, temp string) error {
		if size, err = c.writeCopy(ctx, temp, src, f); err != nil {
			return err
		}
		return finishFile(temp, size, info, !f.noSync)
	})
	if isDamage(err) {
		return 0, c.explain(src.path, err)
	}
	return size, c.explain(f.path, err)
}

// writeCopy copies src to the empty file at path and returns the bytes of it
// that belong to the database. It ends early when ctx does.
func (c *call) writeCopy(ctx context.Context, path string, src *database, f compactFlags) (int64, error) {
	// The copy is flushed when it is complete.
	d, err := c.openMade(path, &holdfast.Options{NoSync: true, PageSize: src.Info().PageSize})
	if err != nil {
		return 0, err
	}
	d.AllocSize = compactGrowth
	cancel := context.AfterFunc(ctx, func() { _ = d.file.Close() }) // every later write fails
	defer cancel()
	var done func() int64
	total := src.liveBytes()
	if total > 0 {
		done = func() int64 { return d.Stats().BytesWritten }
	}
	stop := c.progress("copying", total, done)
	err = src.View(func(tx *holdfast.Tx) error {
		return eachTop(tx, func([]byte, *holdfast.Bucket) error { return nil })
	})
	if err == nil {
		err = blameSource(holdfast.Compact(d.DB, src.DB, f.txMaxSize))
	}
	pageSize := d.Info().PageSize
	err = errors.Join(err, closeMade(d, err == nil))
	stop()
	if err != nil {
		return 0, err
	}
	return databaseBytes(path, pageSize)
}

// blameSource makes errors of putting what no database can hold into errors of
// damage: it came from the source.
func blameSource(err error) error {
	for _, e := range []error{
		holdfast.ErrKeyRequired, holdfast.ErrBucketNameRequired, holdfast.ErrKeyTooLarge,
		holdfast.ErrBucketExists, holdfast.ErrIncompatibleValue,
	} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", errDamage, err)
		}
	}
	return err
}

// liveBytes is the size of the pages in use, if that is known without a scan.
func (d *database) liveBytes() int64 {
	m, free, err := d.newestFree()
	if err != nil || free == nil {
		return 0
	}
	return (int64(m.HighWater) - int64(*free)) * int64(m.PageSize)
}

// databaseBytes is how much of the file at path its metas speak of.
func databaseBytes(path string, pageSize int) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	slots, err := readMetas(f, pageSize)
	if err != nil {
		return 0, err
	}
	var pages page.ID
	for slot, err := range slots.Err {
		if err == nil {
			pages = max(pages, slots.Meta[slot].HighWater)
		}
	}
	return int64(pages) * int64(pageSize), nil
}
