package repair

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const vacuumHelp = `Make the file of a database shorter, in place: what lies at its end is moved to free
pages at the front, pages that are half empty are joined, and the end is cut off.

"bbolt compact" and "holdfast compact" write a second file, which needs room for it
and has to take the place of the first; "etcdctl defrag" does the same within etcd.
This command needs no second file and next to no room. The file keeps its name,
owner and mode. bbolt opens the result.

It can be interrupted at any time, also by kill -9 or a power failure: the content
is never at risk, what was done is done, and the next run goes on from there.

The file is locked as for writing, so the program that uses it has to be stopped.
Before anything is written the file is checked, as "holdfast check" does; a damaged
one stays as it is. Where next to nothing can be given back nothing is written.

--dry-run only says how much can be given back. It opens the file for reading, and
does not check it.`

// vacuumStep is how many pages a step writes, and vacuumTime about how long it may
// take: no writer waits for the steps of this command, so each shares its flush among
// more pages than in a program. An interruption takes effect after a step.
const (
	vacuumStep = 512
	vacuumTime = 100 * time.Millisecond
)

// What the shortest file has besides its content: a share of it, and pages, for records
// of free pages and for branches that are written anew while it is made.
const (
	vacuumSpare      = 128 // one page for so many
	vacuumSparePages = 16
)

// It is worth writing if so much of the file is given back.
const (
	vacuumLeastShare = 0.01
	vacuumLeastBytes = 64 << 10
)

type vacuumReport struct {
	File         string `json:"file"`
	DryRun       bool   `json:"dry_run"`
	Done         bool   `json:"vacuumed"` // it was worth it, and was run
	Interrupted  bool   `json:"interrupted"`
	SizeBefore   int64  `json:"size_before_bytes"`
	SizeAfter    int64  `json:"size_after_bytes"`
	GivenBack    int64  `json:"given_back_bytes"`
	SizeEstimate int64  `json:"size_after_bytes_estimate"`
	GainEstimate int64  `json:"given_back_bytes_estimate"`
	FreeBefore   int64  `json:"free_before_bytes"`
	FreeAfter    int64  `json:"free_after_bytes"`
	Written      int64  `json:"written_bytes"`
	Steps        int    `json:"steps"`
	Passes       int    `json:"passes"`
	DurationMS   int64  `json:"duration_ms"`
	LongestUS    int64  `json:"longest_step_us"`
	Stuck        int    `json:"stuck_values"`
	Pinned       int64  `json:"pinned_bytes"`
}

func newVacuum(a *cli.App) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "vacuum FILE",
		Short: "Make the file of a database shorter, in place",
		Long:  vacuumHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runVacuum(c, dryRun) }),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say how much can be given back")
	return cmd
}

func runVacuum(c *cli.Call, dryRun bool) error {
	path := c.Args[0]
	info, err := c.Look(path)
	if err != nil {
		return err
	}
	if err := c.IsDatabase(path); err != nil {
		return inProgram(err)
	}
	ctx, stop := c.Interruptible()
	defer stop()
	d, err := c.Open(path, info, &holdfast.Options{ReadOnly: dryRun, PreLoadFreelist: true})
	if err != nil {
		return inProgram(err)
	}
	r := &vacuumReport{File: path, DryRun: dryRun}
	begin := time.Now()
	before := d.Stats()
	err = vacuumFile(c, ctx, d, r)
	closed := d.Close()
	after := d.Stats()
	r.Written = after.Sub(&before).BytesWritten
	r.DurationMS = time.Since(begin).Milliseconds()
	if now, err := os.Stat(path); err == nil { // Windows cuts off at Close only
		r.SizeAfter = now.Size()
	}
	r.GivenBack = r.SizeBefore - r.SizeAfter
	if r.Done {
		c.Made = path
	}
	r.Interrupted = ctx.Err() != nil && errors.Is(err, ctx.Err())
	if err = errors.Join(err, closed); err != nil && !r.Interrupted {
		return explainVacuum(c, r, err)
	}
	if c.JSON {
		if err := c.PrintJSON(r); err != nil {
			return err
		}
	} else if r.Done && !r.Interrupted {
		printVacuumed(c, r)
	}
	if r.Interrupted {
		return &cli.FileError{File: path, What: "interrupted" + r.sofar(), Next: "run it again", Err: err}
	}
	return nil
}

// vacuumFile finds out what there is to do, tells it, and does it.
func vacuumFile(c *cli.Call, ctx context.Context, d *cli.Database, r *vacuumReport) error {
	slots, err := d.Metas()
	if err != nil {
		return err
	}
	for _, note := range d.Notes(slots) { // afterwards nothing tells of it any more
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: %s\n", c.Name(), note)
	}
	bar := vacuumBar{Call: c, pageSize: int64(d.Info().PageSize)}
	defer bar.end()
	found, err := d.Vacuum(ctx, holdfast.VacuumOptions{DryRun: true, Progress: bar.show})
	r.add(found)
	if err != nil {
		return err
	}
	r.estimate(found.Expected, bar.pageSize)
	bar.end()
	worth := r.worthIt()
	if !c.JSON {
		printEstimate(c, r, worth)
	}
	if r.DryRun || !worth {
		return nil
	}
	if err := checkFirst(c, ctx, d, r); err != nil {
		return err
	}
	done, err := d.Vacuum(ctx, holdfast.VacuumOptions{StepPages: vacuumStep, StepTime: vacuumTime, Progress: bar.show})
	r.Done = done.Steps > 0 || err == nil
	r.add(done)
	return err
}

// checkFirst checks the whole file. What a vacuum reads before its first step is not all:
// it looks neither at the order of keys nor for pages that two places name, and of files
// that bbolt wrote no seal tells.
func checkFirst(c *cli.Call, ctx context.Context, d *cli.Database, r *vacuumReport) error {
	var done atomic.Int64
	pageSize := uint64(d.Info().PageSize)
	stop := c.Progress("checking", r.SizeBefore, done.Load)
	defer stop()
	faults, err := d.Verify(ctx, holdfast.WithKVStringer(cli.Stringer{}), holdfast.WithProgress(func(pages, _ uint64) {
		done.Store(int64(pages * pageSize))
	}))
	if err == nil && len(faults) > 0 {
		err = faults[0]
	}
	return err
}

// add takes over what a vacuum found and did.
func (r *vacuumReport) add(v holdfast.VacuumResult) {
	r.SizeBefore, r.SizeAfter = v.SizeBefore, v.SizeAfter
	r.FreeBefore, r.FreeAfter = v.FreeBefore, v.FreeAfter
	r.Steps, r.Passes = v.Steps, v.Passes
	r.LongestUS = v.LongestStep.Microseconds()
	r.Stuck, r.Pinned = v.Stuck, v.Pinned
}

// estimate is what the file will have, if its content takes so many bytes.
func (r *vacuumReport) estimate(content, pageSize int64) {
	pages := content / pageSize
	r.SizeEstimate = min((pages+pages/vacuumSpare+vacuumSparePages)*pageSize, r.SizeBefore)
	r.GainEstimate = r.SizeBefore - r.SizeEstimate
}

// worthIt tells whether so much can be given back that writing is worth it. What a
// vacuum leaves never is: run once more, nothing is written.
func (r *vacuumReport) worthIt() bool {
	return r.GainEstimate >= vacuumLeast(r.SizeBefore)
}

func vacuumLeast(size int64) int64 {
	return max(vacuumLeastBytes, int64(math.Ceil(vacuumLeastShare*float64(size))))
}

// sofar says what was done before a vacuum ended early.
func (r *vacuumReport) sofar() string {
	switch {
	case r.Steps == 0 && r.GivenBack <= 0:
		return ", nothing was changed"
	case r.GivenBack > 0:
		return fmt.Sprintf(" after %s; what was done stays done: %s -> %s so far, most is cut off at the end", cli.Plural(r.Steps, "step"), cli.Size(r.SizeBefore), cli.Size(r.SizeAfter))
	}
	return fmt.Sprintf(" after %s; what was done stays done, and the file is not shorter yet", cli.Plural(r.Steps, "step"))
}

// inProgram adds to an error of a file that another program has open that vacuum does
// not need the program to stop, if that one calls it.
func inProgram(err error) error {
	var e *cli.FileError
	if errors.As(err, &e) && errors.Is(err, holdfast.ErrTimeout) {
		e.Next = "stop that program, or wait longer with --timeout; a program can also vacuum its own file while it runs: see docs/operating.md"
	}
	return err
}

// explainVacuum is explain, with what was done before.
func explainVacuum(c *cli.Call, r *vacuumReport, err error) error {
	err = c.Explain(r.File, err)
	var e *cli.FileError
	if !errors.As(err, &e) {
		return err
	}
	if !r.DryRun {
		e.What = strings.TrimPrefix(strings.TrimPrefix(r.sofar(), ", "), " ") + ": " + e.What
	}
	if errors.Is(err, syscall.ENOSPC) {
		e.Next = "free some space on that disk, a few MiB, and run it again to go on"
	}
	return err
}

// vacuumBar shows how far a vacuum is, each walk over the file for itself.
type vacuumBar struct {
	*cli.Call
	pageSize int64
	pass     int
	total    int64 // bytes, when the walk began
	done     *atomic.Int64
	stop     func() // nil: nothing is shown
}

func (b *vacuumBar) show(p holdfast.VacuumProgress) {
	if b.stop == nil || p.Pass != b.pass {
		b.end()
		b.pass, b.total, b.done = p.Pass, max(p.Total, 1)*b.pageSize, new(atomic.Int64)
		what := "reading"
		if p.Pass > 0 {
			what = "moving pages to the front"
			if p.Pass > 1 {
				what += " again"
			}
		}
		b.stop = b.ProgressOf(what, b.total, b.done.Load, false)
	}
	b.done.Store(int64(float64(b.total) * float64(p.Done) / float64(max(p.Total, 1))))
}

func (b *vacuumBar) end() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}
