package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

const salvageHelp = `Save all that a damaged database still holds into a new one, and say what is lost.
FILE is only read. It need not be one that can be opened: its meta pages, its free
pages and any other of its pages may be damaged or gone.

Buckets and keys whose pages are sound get their places. Where a page is damaged, its
keys are lost, or, if it only named other pages, these are looked for. Nothing is
guessed: what cannot be told to belong to one bucket goes into a bucket of its own,
"lost+found/page-N", and so does a page whose checksum is wrong: its keys and values
may have wrong bytes. Keep FILE: nothing of it is repaired.

If both meta pages are damaged the root of the database is looked for among all pages.
--list prints those that can be it, with what each reaches, and writes nothing; --root
takes another than the first of them.

The copy gets its name when it is complete, has been opened and checked, and holds all
that was saved. The exit code is 0 if nothing is lost, and 3
if something is, or may be. docs/recovering.md says what to do in which order.`

type salvageFlags struct {
	cli.OutputFile
	all      bool
	list     bool
	root     uint64
	pageSize int
}

func newSalvage(a *cli.App) *cobra.Command {
	var f salvageFlags
	cmd := &cobra.Command{
		Use:   "salvage {-o OUT | --list} FILE",
		Short: "Save what a damaged database still holds into a new one",
		Long:  salvageHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runSalvage(c, f) }),
	}
	f.AddFlags(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "save pages that look free too, which hold what was deleted or replaced, into lost+found")
	cmd.Flags().BoolVar(&f.list, "list", false, "list the pages that can be the root of the database, and write nothing")
	cmd.Flags().Uint64Var(&f.root, "root", 0, "take this page for the root of the database; 0: the one that the metas name, or that is found")
	cli.AddPageSize(cmd, &f.pageSize)
	return cmd
}

func runSalvage(c *cli.Call, f salvageFlags) error {
	if err := cli.GoodPageSize(f.pageSize); err != nil {
		return err
	}
	if f.list {
		return listRoots(c, f)
	}
	if err := f.Given(); err != nil {
		return err
	}
	src := c.Args[0]
	info, err := c.Look(src)
	if err != nil {
		return err
	}
	dst, err := c.Destination(f.OutputFile, info, nil)
	if err != nil {
		return err
	}
	file, err := c.OpenRaw(src, true)
	if err != nil {
		return c.Explain(src, err)
	}
	defer file.Close()
	var report *salvage.Report
	err = c.MakeFile(dst, f.OutputFile, func(ctx context.Context, temp string) error {
		report, err = salvageTo(c, ctx, temp, file, info, f)
		return err
	})
	if err != nil {
		return c.Explain(f.Path, salvageError(src, err))
	}
	return printSalvage(c, src, f, report)
}

// salvageTo saves what file holds into the empty file at temp.
func salvageTo(c *cli.Call, ctx context.Context, temp string, file *cli.RawFile, info fs.FileInfo, f salvageFlags) (*salvage.Report, error) {
	report, sink, err := salvageInto(c, ctx, temp, file, f)
	if err != nil {
		return nil, err
	}
	bytes, err := cli.DatabaseBytes(temp, sink.pageSize)
	if err == nil {
		err = os.Truncate(temp, bytes)
	}
	if err != nil {
		return nil, err
	}
	if err := verifySaved(c, ctx, temp, f.Path, bytes, sink.saved); err != nil {
		return nil, &cli.FileError{File: c.Args[0], What: fmt.Sprintf("the copy of it is not what was saved, and is not kept (%v)", err), Next: "keep the file: it is as it was", Err: err}
	}
	return report, cli.FinishFile(temp, bytes, info, true)
}

// salvageInto puts what file holds into a database at temp.
func salvageInto(c *cli.Call, ctx context.Context, temp string, file *cli.RawFile, f salvageFlags) (*salvage.Report, *salvageSink, error) {
	var read atomic.Int64 // bytes
	stop := c.Progress("salvaging", file.Size, read.Load)
	defer stop()
	sink, unit := &salvageSink{ctx: ctx}, uint64(0)
	sink.open = func(pageSize int) (*holdfast.DB, error) {
		unit = uint64(pageSize)
		d, err := c.OpenMade(temp, f.Path, &holdfast.Options{NoSync: true, PageSize: pageSize})
		if err != nil {
			return nil, err
		}
		d.AllocSize = cli.CompactGrowth
		return d.DB, nil
	}
	report, err := salvage.Run(ctx, file, file.Size, sink, salvage.Options{
		All: f.all, Root: page.ID(f.root), PageSize: int64(f.pageSize), Progress: func(pages uint64) { read.Store(int64(pages * unit)) },
	})
	return report, sink, errors.Join(err, sink.close(err == nil))
}

// verifySaved reads the copy at temp as any program would, and tells whether it is sound
// and holds what was put into it: only then can it be said that nothing is lost.
func verifySaved(c *cli.Call, ctx context.Context, temp, path string, size int64, want cli.Contents) (err error) {
	var done atomic.Int64
	stop := c.Progress("checking the copy", size, done.Load)
	defer stop()
	d, err := c.OpenMade(temp, path, &holdfast.Options{ReadOnly: true})
	if err != nil {
		return errors.New(c.Plain(err))
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	pageSize := uint64(d.Info().PageSize)
	faults, err := d.Verify(ctx, holdfast.WithProgress(func(pages, _ uint64) { done.Store(int64(pages * pageSize)) }))
	if err == nil && len(faults) > 0 {
		err = faults[0]
	}
	if err != nil {
		return errors.New(c.Plain(err))
	}
	return d.View(func(tx *holdfast.Tx) error {
		have, err := cli.NewWalk(ctx, tx).Count(cli.Container{Tx: tx})
		if err == nil && have != want {
			err = fmt.Errorf("it has %s, and %s were saved", have.Total(), want.Total())
		}
		return err
	})
}

// salvageLoss is the error of a file of which something is lost.
type salvageLoss struct{ file, saved, command string }

func (e *salvageLoss) Error() string {
	return fmt.Sprintf("%s: something of it is lost, or may be; %s has what could be saved; keep both; what was saved shows: %s inspect %s (docs/recovering.md)", e.file, e.saved, e.command, cli.ShellWord(e.saved))
}

func (e *salvageLoss) Unwrap() error { return cli.ErrDamaged }
