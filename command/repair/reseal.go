package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const resealHelp = `Give the pages of a database the seals that belong to their content, where they
are wrong or missing. Nothing else is changed.

A seal is a checksum in the last bytes of a page. It is wrong after a tool has
changed the page in place, as "bbolt surgery" does with clear-page-elements and
copy-page: then this command is the one to run. It is also wrong after the disk
has damaged the page: then this command makes the damage look right, and a copy of
the file is what you need. Keep one in any case.

It is missing in pages that bbolt wrote. --missing adds those and leaves wrong ones
alone.

What all seals add up to is recorded with each commit, and "holdfast check" compares
it: a stale page has a right seal. Where it is missing or wrong it is
recorded anew; --missing leaves a wrong one alone.

The database is checked first, but for its seals; if it is damaged otherwise
nothing is changed. Some pages are so full that they have no room for a seal. If
the command is interrupted, run it again.`

type resealReport struct {
	File     string   `json:"file"`
	Right    uint64   `json:"right"`
	Added    uint64   `json:"added"`
	Replaced uint64   `json:"replaced"`
	NoRoom   uint64   `json:"no_room"`
	Wrong    uint64   `json:"wrong"` // left, with --missing
	Pages    []uint64 `json:"replaced_pages"`

	SumAdded    bool `json:"sum_added"`
	SumReplaced bool `json:"sum_replaced"`
}

func newReseal(a *cli.App) *cobra.Command {
	var missing bool
	cmd := &cobra.Command{
		Use:   "reseal FILE",
		Short: "Mend the checksums of pages that a tool changed in place",
		Long:  resealHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runReseal(c, missing) }),
	}
	cmd.Flags().BoolVar(&missing, "missing", false, "add missing checksums only")
	return cmd
}

func runReseal(c *cli.Call, missing bool) error {
	path := c.Args[0]
	info, err := c.Look(path)
	if err != nil {
		return err
	}
	ctx, cancel := c.Interruptible()
	defer cancel()
	done, err := resealFile(c, ctx, path, info, missing)
	var known *cli.FileError
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.As(err, &known) {
		return &cli.FileError{File: path, What: fmt.Sprintf("interrupted after %s", cli.Plural(int(done.Added)+len(done.Replaced), "checksum")), Next: "run it again for the others", Err: err}
	}
	if err != nil {
		return c.Explain(path, err)
	}
	if done.Added > 0 || len(done.Replaced) > 0 || done.SumAdded || done.SumReplaced {
		c.Made = path
	}
	r := &resealReport{
		File: path, Right: done.Right, Added: done.Added, Replaced: uint64(len(done.Replaced)),
		NoRoom: done.NoRoom, Wrong: done.Wrong, Pages: []uint64{},
		SumAdded: done.SumAdded, SumReplaced: done.SumReplaced,
	}
	for _, id := range done.Replaced {
		r.Pages = append(r.Pages, uint64(id))
	}
	return c.Report(r, func() { printReseal(c, r) })
}

func resealFile(c *cli.Call, ctx context.Context, path string, info fs.FileInfo, missing bool) (done holdfast.Resealed, err error) {
	var share atomic.Int64 // of the file, in bytes
	stop := c.Progress("resealing", info.Size(), share.Load)
	defer stop()
	err = c.AwaitLock(path, func(timeout time.Duration) (err error) {
		done, err = holdfast.Reseal(ctx, path, holdfast.ResealOptions{
			MissingOnly: missing,
			KVStringer:  cli.Stringer{},
			Timeout:     timeout,
			Progress: func(done, total uint64) {
				share.Store(int64(float64(info.Size()) * float64(done) / float64(total)))
			},
		})
		return err
	})
	return done, err
}

func printReseal(c *cli.Call, r *resealReport) {
	for _, id := range r.Pages {
		fmt.Fprintf(c.Out, "%s the checksum was wrong and is replaced\n", c.Paint(cli.Yellow, fmt.Sprintf("page %d:", id)))
	}
	parts := []string{fmt.Sprintf("%s right", cli.PluralOf(r.Right, "checksum was", "checksums were"))}
	if r.Replaced > 0 || r.Wrong == 0 {
		parts = append(parts, cli.Count(r.Replaced)+" replaced")
	}
	parts = append(parts, cli.Count(r.Added)+" added")
	if r.Wrong > 0 {
		parts = append(parts, cli.Count(r.Wrong)+" left wrong")
	}
	if r.NoRoom > 0 {
		parts = append(parts, cli.PluralOf(r.NoRoom, "page has", "pages have")+" no room for one")
	}
	fmt.Fprintln(c.Out, strings.Join(parts, ", "))
	switch {
	case r.SumAdded:
		fmt.Fprintln(c.Out, "what they add up to was not recorded, and is now")
	case r.SumReplaced:
		fmt.Fprintln(c.Out, c.Paint(cli.Yellow, "the pages did not add up to what was recorded:")+" that is replaced")
	}
	if r.SumReplaced && r.Replaced == 0 {
		fmt.Fprintln(c.Out, "if no tool changed pages, some are stale, and that does not show any more: restore a copy (docs/recovering.md)")
	}
	if r.Replaced > 0 {
		fmt.Fprintln(c.Out, "if no tool changed these pages, they are damaged, and that does not show any more: restore a copy (docs/recovering.md)")
	}
}
