package command

import (
	"context"
	"errors"
	"fmt"
	"holdfast/command/cli"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
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

func (a *app) newReseal() *cobra.Command {
	var missing bool
	cmd := &cobra.Command{
		Use:   "reseal FILE",
		Short: "Mend the seals of pages that a tool changed in place",
		Long:  resealHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.action(func(c *call) error { return c.reseal(missing) }),
	}
	cmd.Flags().BoolVar(&missing, "missing", false, "add missing seals only")
	return cmd
}

func (c *call) reseal(missing bool) error {
	path := c.args[0]
	info, err := c.look(path)
	if err != nil {
		return err
	}
	ctx, cancel := c.interruptible()
	defer cancel()
	done, err := c.runReseal(ctx, path, info, missing)
	var known *fileError
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.As(err, &known) {
		return &fileError{file: path, what: fmt.Sprintf("interrupted after %s", plural(int(done.Added)+len(done.Replaced), "seal")), next: "run it again for the others", err: err}
	}
	if err != nil {
		return c.explain(path, err)
	}
	if done.Added > 0 || len(done.Replaced) > 0 || done.SumAdded || done.SumReplaced {
		c.made = path
	}
	r := &resealReport{
		File: path, Right: done.Right, Added: done.Added, Replaced: uint64(len(done.Replaced)),
		NoRoom: done.NoRoom, Wrong: done.Wrong, Pages: []uint64{},
		SumAdded: done.SumAdded, SumReplaced: done.SumReplaced,
	}
	for _, id := range done.Replaced {
		r.Pages = append(r.Pages, uint64(id))
	}
	if c.json {
		return c.printJSON(r)
	}
	c.printReseal(r)
	return nil
}

func (c *call) runReseal(ctx context.Context, path string, info fs.FileInfo, missing bool) (done holdfast.Resealed, err error) {
	var share atomic.Int64 // of the file, in bytes
	stop := c.progress("resealing", info.Size(), share.Load)
	defer stop()
	err = c.awaitLock(path, func(timeout time.Duration) (err error) {
		done, err = holdfast.Reseal(ctx, path, holdfast.ResealOptions{
			MissingOnly: missing,
			KVStringer:  stringer{},
			Timeout:     timeout,
			Progress: func(done, total uint64) {
				share.Store(int64(float64(info.Size()) * float64(done) / float64(total)))
			},
		})
		return err
	})
	return done, err
}

func (c *call) printReseal(r *resealReport) {
	for _, id := range r.Pages {
		fmt.Fprintf(c.out, "%s the seal was wrong and is replaced\n", c.paint(yellow, fmt.Sprintf("page %d:", id)))
	}
	parts := []string{fmt.Sprintf("%s right", cli.PluralOf(r.Right, "seal was", "seals were"))}
	if r.Replaced > 0 || r.Wrong == 0 {
		parts = append(parts, count(r.Replaced)+" replaced")
	}
	parts = append(parts, count(r.Added)+" added")
	if r.Wrong > 0 {
		parts = append(parts, count(r.Wrong)+" left wrong")
	}
	if r.NoRoom > 0 {
		parts = append(parts, cli.PluralOf(r.NoRoom, "page has", "pages have")+" no room for one")
	}
	fmt.Fprintln(c.out, strings.Join(parts, ", "))
	switch {
	case r.SumAdded:
		fmt.Fprintln(c.out, "what they add up to was not recorded, and is now")
	case r.SumReplaced:
		fmt.Fprintln(c.out, c.paint(yellow, "the pages did not add up to what was recorded:")+" that is replaced")
	}
	if r.SumReplaced && r.Replaced == 0 {
		fmt.Fprintln(c.out, "if no tool changed pages, some are stale, and that does not show any more: restore a copy (docs/recovering.md)")
	}
	if r.Replaced > 0 {
		fmt.Fprintln(c.out, "if no tool changed these pages, they are damaged, and that does not show any more: restore a copy (docs/recovering.md)")
	}
}
