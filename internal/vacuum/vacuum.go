// Package vacuum makes the file of an open database shorter while others read and
// write it.
//
// It goes through all buckets in the order of their keys and writes pages that lie
// behind a cut anew, at the front, and neighbours that are half empty together, in
// steps: transactions of their own, of a bounded number of pages and a bounded time.
// What the pages say does not change, so it can stop after any step. When the end of the
// file is free the high-water mark is lowered and the file is cut off.
package vacuum

import (
	"context"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/plant"
)

// Fill is the share up to which pages are filled that are joined: what Compact fills.
const Fill = 0.9

// Options say how to go about it. All fields but Commit have defaults.
type Options struct {
	StepPages int           // most pages that a step writes; a longer run is a step of its own
	StepTime  time.Duration // most time that a step keeps writers waiting, about
	Gain      float64       // neighbours are joined if that saves this share of their pages
	Share     float64       // most of the time in which writers may have to wait; 0: all
	Commit    pager.CommitOptions
	Unsealed  bool
	DryRun    bool           // only look what there is to do
	Progress  func(Progress) // called between steps; may be nil
}

// Defaults of Options.
const (
	StepPages = 64
	StepTime  = 5 * time.Millisecond
	Gain      = 0.05
)

// maxReads is how many pages one reading transaction looks at, at most.
const maxReads = 4096

// Progress is how far it is.
type Progress struct {
	Pass     int    // 0: it looks what there is to do
	Done     uint64 // pages looked at in this pass
	Total    uint64 // of about so many
	FileSize int64  // bytes
	Expected int64  // that will be left, about; 0: not known yet
}

// Result is what was done.
type Result struct {
	SizeBefore, SizeAfter int64 // of the file, in bytes
	FreeBefore, FreeAfter int64 // of that, in free pages
	Expected              int64 // bytes that were to be left, about
	PagesWritten          int64
	Steps, Passes         int
	Longest               time.Duration // that a step kept writers waiting

	// Pinned is bytes of pages at the end that a reader still sees, which are given back
	// after it has ended, and Reader the oldest one.
	Pinned int64
	Reader pager.Held
	// Stuck is how many runs of pages found no place at the front.
	Stuck int
}

// maxPasses bounds the walks over the file.
const maxPasses = 8

// Run gives back what can be given back. On an error, or if ctx ends, what was done
// stays done, and the result says what that is.
func Run(ctx context.Context, p *pager.Pager, o Options) (Result, error) {
	v := newRun(p, o)
	u, err := p.Usage()
	if err != nil {
		return v.result, err
	}
	v.result.SizeBefore, v.result.FreeBefore = u.FileSize, v.bytes(u.Free+u.Pending)
	if err = v.survey(ctx); err == nil && !o.DryRun {
		p.PlaceLow(true)
		err = v.run(ctx)
		p.PlaceLow(false)
	}
	u, failed := p.Usage()
	if failed != nil {
		if err == nil {
			err = failed
		}
		return v.result, err
	}
	v.result.SizeAfter, v.result.FreeAfter = u.FileSize, v.bytes(u.Free+u.Pending)
	v.result.Pinned = v.bytes(u.Pending)
	if v.result.Reader = u.Oldest; u.Oldest.Since.IsZero() {
		v.result.Pinned = 0
	}
	return v.result, err
}

func (v *vac) bytes(pages uint64) int64 { return int64(pages) * int64(v.p.PageSize()) }

// vac is one vacuum.
type vac struct {
	p      *pager.Pager
	o      Options
	step   *stepper
	result Result
	live   uint64 // pages of trees
	left   uint64 // these, once they are joined

	cut   page.ID // what lies behind it is moved
	start page.ID // high-water mark at the beginning
	stuck uint64  // pages of runs that found no place in this pass
	acted bool    // something was written in this pass
}

func newRun(p *pager.Pager, o Options) *vac {
	if o.StepPages <= 0 {
		o.StepPages = StepPages
	}
	if o.StepTime <= 0 {
		o.StepTime = StepTime
	}
	if o.Gain <= 0 {
		o.Gain = Gain
	}
	o.Commit.AllocSize = 0 // the file grows by no more than a step needs
	v := &vac{p: p, o: o}
	v.step = &stepper{run: v}
	v.step.edit.Unsealed = o.Unsealed
	return v
}

func (v *vac) progress(p Progress) {
	if v.o.Progress != nil {
		v.o.Progress(p)
	}
}

// survey finds out how many pages there will be, before anything is written, and
// whether all can be read.
func (v *vac) survey(ctx context.Context) error {
	s := newScan(v.p)
	s.gain = v.o.Gain
	s.where = func(page.ID, uint64) placement { return stays }
	for !s.done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.piece(); err != nil {
			if plant.On(plant.SurveyBlind) {
				break
			}
			return err
		}
		u, err := v.p.Usage()
		if err != nil {
			return err
		}
		v.progress(Progress{Done: s.live, Total: uint64(u.HighWater) - u.Free - u.Pending, FileSize: u.FileSize})
	}
	v.live, v.left = s.live, s.packed
	v.result.Expected = v.bytes(v.left + uint64(page.FirstDataPage))
	return nil
}

func (v *vac) run(ctx context.Context) error {
	for pass := 1; pass <= maxPasses; pass++ {
		u, err := v.p.Usage()
		if err != nil {
			return err
		}
		if pass == 1 {
			v.start = u.HighWater
		}
		// A little room, for the branches that each step writes anew.
		v.cut = page.FirstDataPage + page.ID(v.left+v.left/128+8)
		v.acted, v.stuck, v.result.Stuck = false, 0, 0
		v.result.Passes = pass
		if err := v.pass(ctx); err != nil {
			return err
		}
		before := u.HighWater
		if err := v.finish(ctx); err != nil {
			return err
		}
		if u, err = v.p.Usage(); err != nil {
			return err
		}
		if !v.acted || u.HighWater <= v.cut || pass > 1 && before-u.HighWater <= before/64 {
			break
		}
	}
	return nil
}

// pass goes through the file once.
func (v *vac) pass(ctx context.Context) error {
	s := newScan(v.p)
	s.gain, s.limit = v.o.Gain, uint64(v.o.StepPages)
	s.where = func(id page.ID, pages uint64) placement {
		if id+page.ID(pages) > v.cut {
			return behindCut
		}
		return stays
	}
	for !s.done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.piece(); err != nil {
			return err
		}
		for rest := s.targets; len(rest) > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := v.step.do(ctx, rest)
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
		u, err := v.p.Usage()
		if err != nil {
			return err
		}
		v.progress(Progress{
			Pass: v.result.Passes, Done: s.live, Total: uint64(u.HighWater) - u.Free - u.Pending,
			FileSize: u.FileSize, Expected: v.bytes(v.left),
		})
		if worthCutting(u, v.p.PageSize()) {
			if err := v.cutOff(ctx); err != nil {
				return err
			}
		}
	}
	v.left = s.packed
	return nil
}

// worthCutting tells whether so much is free at the end that it is given back at once.
func worthCutting(u pager.Usage, pageSize int) bool {
	return u.Tail >= uint64(u.HighWater)/8 && int64(u.Tail)*int64(pageSize) >= 1<<20
}

// finish gives back what is free at the end, and what becomes so by that: records of
// free pages move too, and pages that the last transactions have freed are given back
// when nobody needs these any more.
func (v *vac) finish(ctx context.Context) error {
	for range 6 {
		if err := v.p.Sync(); err != nil {
			return err
		}
		before, err := v.p.Usage()
		if err != nil {
			return err
		}
		if before.Tail == 0 && before.LastRecord < before.HighWater {
			break
		}
		if err := v.cutOff(ctx); err != nil {
			return err
		}
		after, err := v.p.Usage()
		if err != nil {
			return err
		}
		if after.HighWater >= before.HighWater && after.FileSize >= before.FileSize {
			break
		}
	}
	_, err := v.p.Shrink()
	return err
}

// cutOff lowers the high-water mark and cuts the file off there.
func (v *vac) cutOff(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := v.step.lower(); err != nil {
		return err
	}
	_, err := v.p.Shrink()
	return err
}
