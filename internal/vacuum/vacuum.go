package vacuum

import (
	"context"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// Options say how to go about it. All fields but Commit have defaults.
type Options struct {
	StepPages int           // most pages that a step writes; a longer run is a step of its own. 0: StepPages, and more beside long transactions
	StepTime  time.Duration // most time that a step keeps writers waiting, about
	Gain      float64       // neighbours are joined if that saves this share of their pages,
	Fill      float64       // and their pages are filled up to this share
	Hurry     bool          // leave others no time between steps
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
	Fill      = 1
)

// Beside writers that hold the writer lock for long, such as etcd until its next commit, steps are few: each may write
// the more pages the longer it has waited for its turn, within StepTime, and up to mostSteps times as many.
const mostSteps = 8

// pagesAfter is how many pages a step may write that waited so long for its turn.
func (v *vac) pagesAfter(waited time.Duration) uint64 {
	pages := uint64(v.o.StepPages)
	if v.stretch {
		pages *= min(mostSteps, 1+uint64(waited/2/v.o.StepTime))
	}
	v.pages = pages
	return pages
}

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

// After a step others make restStep commits, and after a piece that is cut off
// restCut, or none within a nap, or as many as they can for maxRest.
const (
	restStep = 128
	restCut  = 256
	nap      = time.Millisecond
	maxRest  = 50 * time.Millisecond
)

// maxRounds bounds the transactions that lower the high-water mark after a walk.
const maxRounds = 8

// Bounds on walks over the file: in all, and one after the other without a gain.
const (
	maxPasses = 12
	maxIdle   = 3
)

// Run gives back what can be given back. On an error, or if ctx ends, what was done
// stays done, and the result says what that is.
func Run(ctx context.Context, p *pager.Pager, o Options) (Result, error) {
	v := newRun(p, o)
	if p.ReadOnly() {
		if err := v.loadFree(); err != nil {
			return v.result, err
		}
	}
	u, err := p.Usage()
	if err != nil {
		return v.result, err
	}
	v.result.SizeBefore, v.result.FreeBefore = u.FileSize, v.bytes(u.Free+u.Pending)
	if err = v.survey(ctx); err == nil && !o.DryRun {
		err = v.run(ctx)
	}
	u, failed := p.Usage()
	if failed != nil {
		if err == nil {
			err = failed
		}
		return v.result, err
	}
	v.result.SizeAfter, v.result.FreeAfter = u.FileSize, v.bytes(u.Free+u.Pending)
	if err == nil && v.result.SizeAfter >= v.result.SizeBefore {
		err = v.step.full // why
	}
	v.result.Pinned = v.bytes(u.Pending)
	if v.result.Reader = u.Oldest; u.Oldest.Since.IsZero() {
		v.result.Pinned = 0
	}
	return v.result, err
}

// loadFree finds the free pages of a file that was opened for reading.
func (v *vac) loadFree() error {
	snap, err := v.p.Begin()
	if err != nil {
		return err
	}
	defer snap.Release()
	return v.p.LoadFree(snap.Value())
}

func (v *vac) bytes(pages uint64) int64 { return int64(pages) * int64(v.p.PageSize()) }

// vac is one vacuum.
type vac struct {
	p      *pager.Pager
	o      Options
	step   *stepper
	result Result
	left   uint64 // these, once they are joined

	stretch bool   // steps may write more than StepPages,
	pages   uint64 // and the last one might write so many

	own     int64   // commits
	rested  int64   // commits of others at the last rest
	start   page.ID // high-water mark at the beginning
	cut     page.ID // what lies after it is moved,
	clear   pageSet // and what lies here; nil: nothing does
	shorter uint64  // and has fewer pages
	// Of this pass:
	places
	acted bool // something was written
}

// places says what found none.
type places struct {
	stuck        uint64 // pages of runs that were to be moved,
	longestStuck uint64 // and of the longest one
	values       int    // those with more than one page
	joins        uint64 // pages of what was to be joined,
	longestJoin  uint64 // and most at a time
}

func newRun(p *pager.Pager, o Options) *vac {
	stretch := o.StepPages <= 0
	if stretch {
		o.StepPages = StepPages
	}
	if o.StepTime <= 0 {
		o.StepTime = StepTime
	}
	if o.Gain <= 0 {
		o.Gain = Gain
	}
	if o.Fill <= 0 {
		o.Fill = Fill
	}
	o.Commit.AllocSize = 0 // the file grows by no more than a step needs
	v := &vac{p: p, o: o, stretch: stretch, pages: uint64(o.StepPages)}
	v.step = &stepper{run: v}
	v.step.edit.Unsealed = o.Unsealed
	return v
}

func (v *vac) progress(p Progress) {
	if v.o.Progress != nil {
		v.o.Progress(p)
	}
}

// survey finds out how many pages there will be, before anything is written, whether
// all can be read, and whether what says which pages are free names none of them.
func (v *vac) survey(ctx context.Context) error {
	s := newScan(v)
	s.moves, s.audits = func(page.ID, uint64) bool { return false }, true
	for !s.done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.piece(); err != nil {
			return err
		}
		u, err := v.p.Usage()
		if err != nil {
			return err
		}
		v.progress(Progress{Done: s.live, Total: uint64(u.HighWater) - u.Free - u.Pending, FileSize: u.FileSize})
	}
	v.left = s.packed
	v.result.Expected = v.bytes(v.left + uint64(page.FirstDataPage))
	return nil
}

// run walks until the file is as short as it can be, or walks gain nothing. Where
// long runs have found no place, the next walk moves shorter ones to the front, so
// that what they leave lies together, and the one after it the long ones.
func (v *vac) run(ctx context.Context) error {
	v.p.PlaceLow(true)
	defer v.p.PlaceLow(false)
	if err := v.finish(ctx); err != nil { // also what is free as soon as the last commits are settled
		return err
	}
	u, err := v.p.Usage()
	if err != nil {
		return err
	}
	v.start = u.HighWater
	v.aim()
	best, idle := u.HighWater, 0
	for v.result.Passes = 1; ; v.result.Passes++ {
		v.acted, v.places = false, places{}
		err := v.pass(ctx)
		if v.result.Stuck = v.values; err != nil {
			return err
		}
		if err := v.finish(ctx); err != nil {
			return err
		}
		if u, err = v.p.Usage(); err != nil {
			return err
		}
		v.aim()
		if idle++; u.HighWater < best && (best-u.HighWater) > best/64 {
			idle = 0
		}
		best = min(best, u.HighWater)
		if u.HighWater <= v.cut || idle == maxIdle || v.result.Passes == maxPasses {
			return nil
		}
		if idle > 0 && v.stuck > 0 { // holes are few: they are for what lies last, not for what comes first
			v.cut = max(v.cut, u.HighWater-page.ID(u.Free/2))
		}
		cleared := v.clear != nil
		v.clear = nil
		if v.stuck+v.joins > 0 && !cleared {
			made, err := v.makeWay(ctx)
			if err != nil {
				return err
			}
			v.acted = v.acted || made
		}
		if !v.acted {
			return nil
		}
	}
}

// aim sets the cut: as many pages as there will be, with a little room for the
// branches that each step writes anew.
func (v *vac) aim() {
	v.cut = page.FirstDataPage + page.ID(v.left+v.left/128+8)
}

// pass goes through the file once.
func (v *vac) pass(ctx context.Context) error {
	s := newScan(v)
	s.moves = func(id page.ID, pages uint64) bool {
		end := id + page.ID(pages)
		return end > v.cut || v.clear != nil && pages < v.shorter && v.clear.overlaps(id, pages)
	}
	begin, err := v.p.Usage()
	if err != nil {
		return err
	}
	// Who appends all the time is not to be run after: what is new lies after the cut.
	for s.total <= uint64(begin.HighWater)+maxReads && !s.done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.limit = v.pages
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
	if s.done() {
		v.left = s.packed
	}
	return nil
}

// worthCutting tells whether so much is free at the end that it is given back at once.
func worthCutting(u pager.Usage, pageSize int) bool {
	return u.Tail >= uint64(u.HighWater)/8 && int64(u.Tail)*int64(pageSize) >= 1<<20
}

// finish gives back what is free at the end, and what becomes so by that: records of
// free pages move too, and pages that the last transactions have freed are given back
// when these are not needed any more, which takes two rounds.
func (v *vac) finish(ctx context.Context) error {
	for idle, round := 0, 0; idle < 2 && round < maxRounds; round++ {
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
		if idle++; after.HighWater < before.HighWater {
			idle = 0
		}
	}
	_, err := v.p.Shrink(func() error { return v.rest(ctx, restCut) })
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
	_, err := v.p.Shrink(func() error { return v.rest(ctx, restCut) })
	return err
}

// rest lets others commit, after what keeps one of them waiting: enough that it is not
// noticed among a hundred, or for a while. If none is about to it returns at once, or
// after a nap.
func (v *vac) rest(ctx context.Context, enough int64) error {
	begin := time.Now()
	for first := v.others(); !v.o.Hurry; {
		before := v.others()
		idle := before == v.rested && !v.p.Busy()
		if v.rested = before; idle || before-first >= enough || time.Since(begin) > maxRest {
			break
		}
		if err := sleep(ctx, nap); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// others is how many transactions others have committed.
func (v *vac) others() int64 { return v.p.Counts().Commits.Load() - v.own }
