package pager_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// After each call that changes the file, in histories of prepared, finished and
// aborted transactions of all durabilities: what a kill and what a power failure
// would leave there is a state that may be found, whole, with each page in use once
// or free, for us, for a reader and for bbolt. The cuts are those of vfs.Crash.
//
// HOLDFAST_SEED=n is history n alone; with HOLDFAST_HISTORIES=m it is m, from n on.
// Without either the seeds are new.
func TestEveryMoment(t *testing.T) {
	number := func(name string, otherwise uint64) (n uint64, set bool) {
		s := os.Getenv(name)
		if s == "" {
			return otherwise, false
		}
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatal(err)
		}
		return n, true
	}
	seed, chosen := number("HOLDFAST_SEED", uint64(time.Now().UnixNano()))
	histories := uint64(momentHistories)
	if chosen {
		histories = 1
	}
	histories, _ = number("HOLDFAST_HISTORIES", histories)
	total := map[string]int{}
	for n := range histories {
		h := &history{rng: rand.New(rand.NewPCG(seed+n, 7)), counts: total, shrinks: (seed+n)%2 == 0}
		if err := h.run(); err != nil {
			t.Fatalf("%s\nHOLDFAST_SEED=%d: %v", strings.Join(h.log, "\n"), seed+n, err)
		}
	}
	t.Log(total)
	for _, what := range []string{"kill", "power", "stock", "reader", "trailing", "not finished", "two prepared", "prepared while written",
		"aborted", "no room for a meta", "stopped", "Periodic, behind", "freelist", "log run", "scan", "ends in a call", "streamed", "streamed and given up",
		"lowered", "lowered and aborted", "cut off", "reader of what is lowered", "prepared past the cut", "sum", "marked", "marked, written again"} {
		if total[what] < 10 && !chosen {
			t.Errorf("%s: %d times, the test tests little", what, total[what])
		}
	}
}

const (
	momentHistories = 150
	momentSteps     = 30
	momentPage      = 512
)

// history is a file, what was done to it, and what may be found in it. It has one
// goroutine: what others do while a group is written is done in calls on the file.
type history struct {
	*pager.Pager
	rng    *rand.Rand
	disk   *vfs.Crash
	file   *mapped
	log    []string
	counts map[string]int
	fault  error // the first that was found
	opts   pager.Options

	last      int           // number of the newest transaction
	trees     map[int]*tree // of each that may be found
	queue     []*waiting    // prepared
	visible   int           // the newest that was acknowledged
	durable   int           // and that power loss may not take
	stopped   bool          // a flush or the write of a meta has failed
	leading   bool          // the file is being written
	editing   *pager.WriteTx
	writing   bool   // a group is, by the goroutine of the test
	gone      bool   // the power is off, or the process ended: what happens counts no more,
	next      []byte // and this is what it left
	recorded  bool   // the free pages are,
	full      bool   // unless the disk was full since the file was opened: then there may be no record
	isOpen    bool
	lax       bool   // most transactions are Periodic, so that many are visible between flushes
	failNext  string // "page", "meta", "cut": the next one fails; "flush": that of the next meta; "room": of a meta, which changes nothing
	lying     bool   // the next flush fails
	held      []*holding
	marked    marked
	shrinks   bool // the file becomes shorter now and then: see moments_shrink_test.go
	low       bool // transactions take the first free pages
	big       bool // and long runs
	cutFailed bool // a truncation has
}

type waiting struct {
	n      int
	pr     *pager.Prepared
	mode   pager.Durability
	lowers bool
}

type holding struct {
	snap pager.Snapshot
	n    int
}

func (h *history) logf(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	if h.fault == nil && !h.gone {
		h.fault = fmt.Errorf(format, args...)
	}
}

func (h *history) oneIn(n int) bool { return h.rng.IntN(n) == 0 }

// run makes the history.
func (h *history) run() error {
	h.trees = map[int]*tree{0: {root: part{0, 1}}}
	mem := vfs.NewMem("new")
	if err := h.create(mem); err != nil {
		return err
	}
	h.onDisk(mem.Bytes())
	if err := h.open(); err != nil {
		return err
	}
	for range momentSteps {
		h.step()
		if h.fault == nil && (h.stopped || h.gone) {
			h.reopen()
		}
		if h.fault != nil {
			return h.fault
		}
	}
	if h.reopen(); h.fault == nil {
		h.shut()
	}
	return h.fault
}

// create makes a database in mem.
func (h *history) create(mem *vfs.Mem) error {
	f := mem.Open()
	if _, err := f.WriteAt(page.NewFile(momentPage, true), 0); err != nil {
		return err
	}
	p, err := pager.Open(f, pager.Options{Scan: scan})
	if err != nil {
		return err
	}
	return p.Close(pager.CloseOptions{})
}

func (h *history) onDisk(content []byte) {
	h.disk, h.lying = vfs.NewCrash("disk", content, h.event), false
}

func (h *history) open() error {
	h.lax = h.oneIn(3)
	h.opts = pager.Options{
		Scan: scanTree, PlainDelay: -1, StrictCompat: h.oneIn(5) && !h.lax, PeriodicDelay: time.Hour, PeriodicBytes: int64(h.rng.IntN(40)) * momentPage,
	}
	if h.lax {
		h.opts.PeriodicBytes *= 4
	}
	h.logf("open, strict %t, lax %t", h.opts.StrictCompat, h.lax)
	h.file = h.handle()
	p, err := pager.Open(h.file, h.opts)
	if errors.Is(err, syscall.EIO) && h.stopped && !h.gone { // its own flush has failed
		h.stopped, h.visible = false, h.durable
		h.file = h.handle()
		p, err = pager.Open(h.file, h.opts)
	}
	if err != nil && !h.gone {
		return fmt.Errorf("open: %w", err)
	}
	if err == nil {
		h.Pager = p
	}
	if h.gone {
		return nil
	}
	n, err := h.current(p)
	if err == nil {
		err = h.mayBe(n, h.visible)
	}
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	h.logf("found %d by %s", n, p.OpenPath())
	h.durable, h.visible, h.recorded = n, n, p.OpenPath() == pager.OpenedByRecord
	h.isOpen, h.low = true, false
	for other := range h.trees { // what was not found is never to come back
		if other > n {
			delete(h.trees, other)
		}
	}
	return nil
}

// step does one thing.
func (h *history) step() {
	if h.shrinks && h.oneIn(3) {
		h.stepShorter()
		h.look()
		return
	}
	switch k := h.rng.IntN(20); {
	case k < 9:
		if h.oneIn(3) {
			h.stream()
		}
		for range 1 + h.rng.IntN(3) {
			h.prepare()
		}
		if len(h.queue) > 1 {
			h.counts["two prepared"]++
		}
		h.finish()
	case k < 11:
		h.prepare()
	case k == 11:
		h.rollback()
	case k < 14:
		h.hold()
	case k == 14:
		h.letGo()
	case k < 16:
		h.sync()
	case k == 16:
		h.flush()
	case k == 17:
		h.failNext = []string{"page", "meta", "room"}[h.rng.IntN(3)]
		h.logf("the next write of a %s is to fail", h.failNext)
	case k == 18 && h.oneIn(2):
		if h.oneIn(2) {
			h.failNext = "flush"
			h.logf("the flush of the next meta is to fail")
		} else {
			h.failFlush()
		}
	default:
		h.reopen()
	}
	h.look()
}

// prepare puts a transaction into the queue.
func (h *history) prepare() {
	if h.stopped || h.fault != nil || h.editing != nil {
		return
	}
	w, err := h.BeginWrite()
	if err != nil {
		h.fail("begin: %w", err)
		return
	}
	h.complete(w)
}

func (h *history) complete(w *pager.WriteTx) {
	if h.writing {
		w.NoFlush()
	}
	root, err := h.edit(w, w)
	if h.stopped && errors.Is(err, pager.ErrStopped) { // it wanted what the last commits have freed, and so a flush
		_ = w.Rollback()
		return
	}
	if err != nil {
		h.fail("edit: %w", err)
		return
	}
	h.enqueue(w, root, h.options())
}

func (h *history) options() pager.CommitOptions {
	opts := pager.CommitOptions{AllocSize: 16 << 10}
	if h.oneIn(2) || h.lax && !h.oneIn(4) {
		opts.Mode = pager.Periodic
	}
	return opts
}

// enqueue ends an edit.
func (h *history) enqueue(w *pager.WriteTx, root page.ID, opts pager.CommitOptions) {
	lowers := h.lower(w)
	pr, err := h.tryPrepare(w, root, opts)
	if err != nil {
		delete(h.trees, h.last)
		if !h.stopped && !h.foundFull(err) {
			h.fail("prepare: %w", err)
		}
		return
	}
	h.logf("prepare %d, %v, mode %d", h.last, *h.trees[h.last], opts.Mode)
	h.queue = append(h.queue, &waiting{h.last, pr, opts.Mode, lowers})
}

// finish finishes what is prepared, one of the queue first.
func (h *history) finish() {
	if h.fault != nil {
		return
	}
	if h.endEdit(); len(h.queue) == 0 {
		return
	}
	all := h.queue
	first := all[h.rng.IntN(len(all))]
	h.logf("finish, %d leads", first.n)
	h.leading = true
	_ = first.pr.Finish()
	h.queue = h.queue[len(all):] // what was prepared meanwhile stays
	h.ended(all)
	h.leading = false
	h.endEdit()
	if h.stopped && !h.gone { // and has failed, too
		for _, w := range h.queue {
			if w.pr.Finish() == nil {
				h.fail("%d is committed by a writer that has stopped", w.n)
			}
		}
		h.queue = nil
	}
}

// ended takes note of what became of transactions.
func (h *history) ended(all []*waiting) {
	for _, w := range all {
		err := w.pr.Finish()
		switch {
		case h.gone: // no caller was told
		case err == nil:
			h.visible, h.recorded = max(h.visible, w.n), true
			if w.mode == pager.Full {
				h.durable = max(h.durable, w.n)
			}
		case h.stopped && (errors.Is(err, pager.ErrStopped) || h.foundFull(err)): // it may be there all the same
			h.logf("%d: %v", w.n, err)
		case h.foundFull(err):
			h.logf("%d: %v", w.n, err)
			h.counts["aborted"]++
			h.count("lowered and aborted", w.lowers)
			delete(h.trees, w.n)
		default:
			h.fail("finish %d: %w", w.n, err)
		}
	}
}

// endEdit ends the transaction that began while a group was written.
func (h *history) endEdit() {
	w := h.editing
	if h.editing = nil; w == nil {
		return
	}
	if root, err := w.Page(w.Base().Meta.Root); err == nil {
		if n, _, err := parseRoot(root); err == nil && h.trees[n] == nil { // it stands on one that was aborted
			h.counts["on top of an aborted one"]++
			if err := w.Rollback(); !h.foundFull(err) {
				h.fail("rollback on top of an aborted one: %w", err)
			}
			return
		}
	}
	if len(h.queue) == 0 && h.oneIn(2) {
		_ = w.Rollback()
		return
	}
	h.complete(w)
}

// rollback begins a transaction and gives it up.
func (h *history) rollback() {
	if len(h.queue) > 0 || h.editing != nil || h.fault != nil {
		return // it would wait for those
	}
	w, err := h.BeginWrite()
	if err != nil {
		h.fail("begin: %w", err)
		return
	}
	if _, err := h.edit(w, w); err != nil {
		h.fail("edit: %w", err)
	}
	delete(h.trees, h.last)
	if err := w.Rollback(); err != nil {
		h.fail("rollback: %w", err)
	}
}

func (h *history) hold() {
	snap, err := h.Begin()
	if err != nil {
		h.fail("begin: %w", err)
		return
	}
	n, err := h.number(snap.Value())
	if err != nil {
		h.fail("a reader: %w", err)
	}
	h.held = append(h.held, &holding{snap, n})
}

func (h *history) letGo() {
	if len(h.held) > 0 {
		h.held[0].snap.Release()
		h.held = h.held[1:]
	}
}

// sync makes all durable that is visible or prepared, for bbolt too.
func (h *history) sync() {
	h.logf("sync")
	all := h.queue
	h.leading = true
	err := h.Sync()
	h.leading = false
	h.queue = h.queue[len(all):]
	h.ended(all)
	switch {
	case h.gone:
	case err == nil:
		h.durable = h.visible
		if n, err := h.stockFinds(h.disk.Bytes()); err != nil || n < h.visible {
			h.fail("after Sync bbolt finds %d, not %d, %w", n, h.visible, err)
		}
	case !h.stopped && !h.foundFull(err):
		h.fail("sync: %w", err)
	}
	h.finish() // of what was prepared meanwhile
}

// flush makes all durable that is visible.
func (h *history) flush() {
	h.logf("flush")
	h.leading = true
	h.FlushVisible()
	h.leading = false
	h.finish() // of what was prepared
}

// reopen ends the session and begins another, in one of three ways.
func (h *history) reopen() {
	if h.fault != nil {
		return
	}
	for h.fault == nil && (len(h.queue) > 0 || h.editing != nil) {
		h.finish()
	}
	if h.fault != nil {
		return
	}
	for len(h.held) > 0 {
		h.letGo()
	}
	for again := true; again && h.fault == nil; again = h.gone {
		h.end(h.rng.IntN(3))
		h.stopped, h.recorded, h.full, h.failNext = false, false, false, ""
		if err := h.open(); err != nil {
			h.fail("%w", err)
		}
	}
}

// end ends the session: by a kill, a power failure, or Close.
func (h *history) end(how int) {
	h.isOpen = false
	next := h.next
	switch {
	case h.gone:
		h.visible = h.durable
	case how == 0: // the page cache stays as it is
		h.logf("kill")
		if h.queue = nil; h.stopped {
			h.visible = h.durable
		}
		h.file.killed()
		return
	case how == 1:
		h.logf("power cut")
		for disk := range h.disk.Disks(h.rng, momentPage, 2) {
			if next = disk; h.oneIn(2) {
				break
			}
		}
		h.visible = h.durable
	default:
		if h.shut(); !h.gone {
			return
		}
		next, h.visible = h.next, h.durable
	}
	h.gone = true
	for _, w := range h.queue {
		_ = w.pr.Finish()
	}
	h.queue = nil
	_ = h.Close(pager.CloseOptions{})
	h.gone, h.next = false, nil
	h.onDisk(next)
}
