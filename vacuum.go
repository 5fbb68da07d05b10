package holdfast

import (
	"context"
	"time"

	"holdfast/internal/pager"
	"holdfast/internal/vacuum"
)

// VacuumOptions say how DB.Vacuum goes about it. The zero value is a good choice.
type VacuumOptions struct {
	// StepPages is how many pages one step writes at most; a longer value is a step of its
	// own. 0 or less: 64, and up to 512 beside transactions that stay open for long. StepTime
	// is about how long a step keeps writers waiting at most, 0 or less: 5 milliseconds.
	StepPages int
	StepTime  time.Duration

	// Hurry leaves no pause between steps. Otherwise, while others commit, Vacuum waits
	// after each step for 128 commits or 50 milliseconds, whichever comes first, so that
	// only about one commit in a hundred meets a step; on a busy database a GiB then takes
	// minutes.
	Hurry bool

	// DryRun only looks: VacuumResult.Expected is what would be left.
	DryRun bool

	// Progress is called between steps, by the goroutine that called Vacuum. It must
	// neither vacuum nor close the database. nil: nothing is called.
	Progress func(VacuumProgress)
}

// VacuumProgress is how far a vacuum is.
type VacuumProgress struct {
	Pass     int   // walk over the file: 0 only looks what there is to do
	Done     int64 // pages looked at in this walk
	Total    int64 // of about so many
	FileSize int64 // of the moment, in bytes
	Expected int64 // size of the file that will be left, about; 0: not known yet
}

// VacuumResult is what a vacuum did.
type VacuumResult struct {
	SizeBefore, SizeAfter int64 // of the file, in bytes
	FreeBefore, FreeAfter int64 // bytes of it that are free pages
	Expected              int64 // about how many bytes all pages in use take when they are well filled

	PagesWritten int64 // besides metas and records of free pages
	Steps        int   // transactions that wrote pages
	Passes       int   // walks over the file
	Duration     time.Duration
	LongestStep  time.Duration // that kept writers waiting; the end is cut off in pieces besides, of some 2 ms each

	// Pinned is how many bytes of free pages readers still see. The file can become shorter
	// by as much when they have ended, often by far more: one page near the end that a
	// reader sees keeps all before it. Reader is the oldest of them.
	Pinned int64
	Reader OldReader

	// Stuck is how many runs of pages, long values as a rule, found no room at the front in the last walk.
	Stuck int
}

// OldReader is the oldest state of the database that a transaction still reads.
type OldReader struct {
	Tx     uint64        // number of the transaction that made it, as Tx.ID says; 0: no old state is read
	Behind int           // transactions that were committed since
	Age    time.Duration // since the first of them: the reader has been open for longer than that
}

func oldReader(h pager.Held) OldReader {
	if h.Since.IsZero() {
		return OldReader{}
	}
	return OldReader{Tx: uint64(h.Tx), Behind: int(h.Age), Age: time.Since(h.Since)}
}

// Vacuum makes the file shorter: it moves what lies at its end to free pages at the
// front, joins pages that are half empty, and cuts the end off. Others read and write
// meanwhile. No reader waits; a writer waits for a step at most, which writes
// VacuumOptions.StepPages pages. It needs no room on the disk beyond a few steps, 1 MiB as a rule, 3 beside transactions that stay open for long. It
// must not be called within Update: it would wait for itself.
//
// It returns ctx's error when that ends, and with any error what was done so far. That is done when ctx
// ends, an error occurs or the process is killed, and the next Vacuum goes on from there. It first reads
// every page in use: one that is not the page that is named there, has elements beyond its end or a wrong
// seal, or is recorded as free, ends it, with a *CorruptError, before anything was changed. (Values longer
// than 8 pages have their seals checked when they are moved.) It looks neither at the order of keys, nor
// for pages that two places name: Verify does. A step that meets such damage changes nothing and ends it,
// and what the steps before did stays done. ErrDatabaseReadOnly is returned for a database that was opened
// for reading, unless DryRun is set.
//
// Pages that an open transaction sees can neither be used again nor cut off:
// VacuumResult.Pinned. If nothing else is left to do, Vacuum does not wait for it.
//
// Of several calls at once one works, and the others wait for it.
func (db *DB) Vacuum(ctx context.Context, options VacuumOptions) (VacuumResult, error) {
	if db.pager == nil {
		return VacuumResult{}, ErrDatabaseNotOpen
	}
	if db.readOnly && !options.DryRun {
		return VacuumResult{}, ErrDatabaseReadOnly
	}
	select {
	case db.vacuuming <- struct{}{}:
		defer func() { <-db.vacuuming }()
	case <-ctx.Done():
		return VacuumResult{}, ctx.Err()
	}
	return db.vacuum(ctx, vacuum.Options{StepPages: options.StepPages, StepTime: options.StepTime, DryRun: options.DryRun, Hurry: options.Hurry}, options.Progress)
}

// vacuum is Vacuum for a caller that has the right to.
func (db *DB) vacuum(ctx context.Context, o vacuum.Options, progress func(VacuumProgress)) (VacuumResult, error) {
	o.Commit, o.Unsealed = db.commitOptions(), db.noSeals
	if progress != nil {
		o.Progress = func(p vacuum.Progress) {
			progress(VacuumProgress{Pass: p.Pass, Done: int64(p.Done), Total: int64(p.Total), FileSize: p.FileSize, Expected: p.Expected})
		}
	}
	begin := time.Now()
	r, err := vacuum.Run(ctx, db.pager, o)
	return VacuumResult{
		SizeBefore: r.SizeBefore, SizeAfter: r.SizeAfter, FreeBefore: r.FreeBefore, FreeAfter: r.FreeAfter,
		Expected: r.Expected, PagesWritten: r.PagesWritten, Steps: r.Steps, Passes: r.Passes,
		Duration: time.Since(begin), LongestStep: r.Longest,
		Pinned: r.Pinned, Reader: oldReader(r.Reader), Stuck: r.Stuck,
	}, db.corrupt(err)
}
