package pager_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// call is asked before each call on the file: it may fail, and while a group is
// written others go on.
func (h *history) call(op vfs.Op) error {
	if op.Kind == vfs.KindTruncate && !h.gone {
		return h.cutOff(op)
	}
	if h.gone || op.Kind != vfs.KindWrite && op.Kind != vfs.KindSync {
		return nil
	}
	meta := op.Kind == vfs.KindWrite && op.Off < 2*momentPage
	h.logf("  %v at page %d, %d pages", op.Kind, op.Off/momentPage, op.Len/momentPage)
	switch {
	case !h.leading:
		return nil
	case h.failNext == "page" && op.Kind == vfs.KindWrite && !meta:
		h.failNext, h.full = "", true
		h.logf("a page is not written")
		return &vfs.PartialWrite{Bytes: h.rng.Int64N(op.Len), Err: syscall.ENOSPC}
	case h.failNext == "room" && meta:
		h.failNext, h.full = "", true
		h.logf("there is no room for a meta")
		h.counts["no room for a meta"]++
		return syscall.ENOSPC
	case h.failNext == "meta" && meta:
		h.failNext, h.stopped = "", true
		h.logf("a meta is not written")
		n := h.rng.Int64N(op.Len + 1)
		if h.oneIn(2) {
			n = page.ExtensionOffset // the meta, and the extension of another
		}
		return &vfs.PartialWrite{Bytes: n, Err: syscall.EIO}
	case h.failNext == "flush" && meta:
		h.failNext = ""
		h.failFlush()
	}
	if h.editing == nil && h.oneIn(3) {
		h.leading = false // its own calls are not a group's
		h.whileWritten()
		h.leading = true
	}
	return nil
}

// failFlush has the next flush fail.
func (h *history) failFlush() {
	h.logf("the next flush is to fail")
	h.disk.FailSync(h.rng, syscall.EIO)
	h.lying = true
}

// foundFull tells whether err is that of a disk that was full, as it was made to be.
func (h *history) foundFull(err error) bool { return h.full && errors.Is(err, syscall.ENOSPC) }

// tryPrepare is Prepare. If that fails it waits for the transaction that this one stands on:
// for ever here, where the goroutine that began the call is the one to finish that.
func (h *history) tryPrepare(w *pager.WriteTx, root page.ID, opts pager.CommitOptions) (*pager.Prepared, error) {
	type result struct {
		pr  *pager.Prepared
		err error
	}
	done := make(chan result, 1)
	go func() {
		pr, err := w.Prepare(root, uint64(h.last), opts)
		done <- result{pr, err}
	}()
	for {
		select {
		case r := <-done:
			return r.pr, r.err
		default:
		}
		if h.Awaited() {
			return nil, errors.New("it has failed, and waits for what it stands on")
		}
		runtime.Gosched()
	}
}

// whileWritten is what another writer does while a group is written.
func (h *history) whileWritten() {
	h.counts["prepared while written"]++
	h.writing = true
	for range h.rng.IntN(3) {
		h.prepare()
	}
	h.writing = false
	if h.fault != nil || h.stopped || h.oneIn(2) {
		return
	}
	var err error
	if h.editing, err = h.BeginWrite(); err != nil {
		h.fail("begin while a group is written: %w", err)
	}
}

// event is called after each call that has changed the file or its disk.
func (h *history) event(kind vfs.Kind) {
	if h.gone || h.fault != nil {
		return
	}
	if kind == vfs.KindSync {
		if h.lying {
			h.lying, h.stopped = false, true
			h.counts["stopped"]++
		} else if !h.stopped {
			h.durable = h.visible
		}
	}
	floor := h.visible
	if h.stopped {
		floor = h.durable
	}
	all := h.disk.Bytes()
	h.verify(kind, "kill", all, floor)
	odds := 200
	switch {
	case !h.isOpen:
		odds = 20
	case h.lax: // it takes many steps until much is visible
		odds = 1000
	}
	if h.fault == nil && h.oneIn(odds) {
		h.ends("kill", all)
		h.durable = floor
	}
	for disk := range h.disk.Disks(h.rng, momentPage, 2) {
		if h.fault == nil && h.oneIn(3) {
			h.verify(kind, "power", disk, h.durable)
		}
		if h.fault == nil && !h.gone && h.oneIn(odds) {
			h.ends("power cut", disk)
		}
	}
}

// ends ends the session within a call.
func (h *history) ends(how string, left []byte) {
	h.logf("%s after this", how)
	h.counts["ends in a call"]++
	h.gone, h.next = true, bytes.Clone(left)
}

// verify opens what is left as we do, as a reader does and as bbolt does.
func (h *history) verify(kind vfs.Kind, how string, content []byte, floor int) {
	if h.fault != nil {
		return
	}
	h.counts[how]++
	err := longEnough(content)
	var n int
	if err == nil {
		n, err = h.finds(how, content, floor)
	}
	if err == nil && h.oneIn(2) {
		h.counts["reader"]++
		err = h.readerFinds(content, n)
	}
	if err == nil && h.oneIn(2) {
		h.counts["stock"]++
		var n int
		if n, err = h.stockFinds(content); err == nil && h.isOpen && h.opts.StrictCompat && n < floor {
			err = fmt.Errorf("finds %d, not %d, with StrictCompat", n, floor)
		}
		if err != nil {
			err = fmt.Errorf("bbolt: %w", err)
		}
	}
	if err != nil {
		h.fail("%s after a %s: %w", how, kind, err)
	}
}

// opened opens content in a file of its own.
func (h *history) opened(content []byte, readOnly bool) (*pager.Pager, *vfs.Mem, error) {
	mem := vfs.NewMem("left")
	f := mem.Open()
	if _, err := f.WriteAt(content, 0); err != nil {
		return nil, nil, err
	}
	p, err := pager.Open(exactly{f}, pager.Options{Scan: scanTree, PlainDelay: -1, ReadOnly: readOnly})
	return p, mem, err
}

func (h *history) finds(how string, content []byte, floor int) (n int, err error) {
	p, _, err := h.opened(content, false)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close(pager.CloseOptions{})) }()
	if n, err = h.current(p); err != nil {
		return n, err
	}
	if err := h.mayBe(n, floor); err != nil {
		return n, err
	}
	found := p.Finding()
	h.count("trailing", found.Trailing)
	h.count("not finished", found.Unfinished)
	h.count("Periodic, behind", n < h.visible)
	h.count("scan", p.OpenPath() == pager.OpenedByScan)
	if how == "kill" && h.recorded && !h.stopped && p.OpenPath() != pager.OpenedByRecord && (found.Recorded || !h.full) {
		return n, fmt.Errorf("opened by %s", p.OpenPath())
	}
	return n, h.accounts(p)
}

func (h *history) count(what string, is bool) {
	if is {
		h.counts[what]++
	}
}

// readerFinds opens for reading: the same is found, and nothing is changed.
func (h *history) readerFinds(content []byte, want int) (err error) {
	p, mem, err := h.opened(content, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(pager.CloseOptions{})) }()
	n, err := h.current(p)
	switch {
	case err != nil:
		return fmt.Errorf("for reading: %w", err)
	case n != want:
		return fmt.Errorf("for reading %d is opened, for writing %d", n, want)
	case !bytes.Equal(mem.Bytes(), content):
		return errors.New("reading has changed the file")
	}
	return nil
}

// stockFinds opens the file as bbolt does, which knows of no extensions.
func (h *history) stockFinds(content []byte) (n int, err error) {
	content = bytes.Clone(content)
	for slot := range 2 {
		clear(content[slot*momentPage+page.ExtensionOffset : (slot+1)*momentPage])
	}
	p, _, err := h.opened(content, false)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close(pager.CloseOptions{})) }()
	h.count("freelist", p.OpenPath() == pager.OpenedByFreelist)
	if n, err = h.current(p); err != nil {
		return n, err
	}
	return n, h.accounts(p)
}

// mayBe tells whether n may be found where nothing below floor may be.
func (h *history) mayBe(n, floor int) error {
	if _, ok := h.trees[n]; !ok || n < floor {
		return fmt.Errorf("%d is found: at least %d is there (acknowledged %d, durable %d, at all %d), %d is one: %t", n, floor, h.visible, h.durable, h.last, n, ok)
	}
	return nil
}

// current is the number of the transaction that a new reader sees.
func (h *history) current(p *pager.Pager) (int, error) {
	snap, err := p.Begin()
	if err != nil {
		return 0, err
	}
	defer snap.Release()
	if err := p.Lost(snap.Value()); err != nil {
		return 0, fmt.Errorf("a new reader: %w", err)
	}
	return h.number(snap.Value())
}

// number is that of the transaction whose state s is, all of which is there.
func (h *history) number(s *pager.State) (int, error) {
	root, err := s.Page(s.Meta.Root)
	if err != nil {
		return 0, err
	}
	n, kids, err := parseRoot(root)
	if err != nil || n == 0 {
		return n, err
	}
	want, ok := h.trees[n]
	if !ok {
		return n, fmt.Errorf("the state of %d is there, which cannot be", n)
	}
	if s.Meta.Sequence != uint64(n) {
		return n, fmt.Errorf("the state of %d has sequence %d", n, s.Meta.Sequence)
	}
	if err := want.root.isIn(root); err != nil {
		return n, fmt.Errorf("the root of %d: %w", n, err)
	}
	for i, id := range kids {
		kid, err := s.Page(id)
		if err == nil {
			err = want.kids[i].isIn(kid)
		}
		if err != nil {
			return n, fmt.Errorf("a leaf of %d: %w", n, err)
		}
	}
	return n, h.addsUp(s)
}

// addsUp is an error if the pages of a state do not add up to what is recorded with it.
func (h *history) addsUp(s *pager.State) error {
	if !s.Sum.Known {
		h.counts["no sum"]++
		return nil
	}
	h.counts["sum"]++
	sum := page.Sum{Known: true}
	err := scanTree(s, func(e page.Extent) error {
		run, err := s.Image().Run(e.Start, e.N)
		if err == nil {
			sum.Add(page.Fingerprint(run, e.Start))
		}
		return err
	})
	if err == nil && sum != s.Sum {
		err = fmt.Errorf("the pages add up to %v, recorded is %v", sum, s.Sum)
	}
	return err
}

// accounts is an error unless each page is used once, free or reserved.
func (h *history) accounts(p *pager.Pager) error {
	snap, err := p.Begin()
	if err != nil {
		return err
	}
	defer snap.Release()
	s := snap.Value()
	a, err := p.Account(s)
	if err != nil || !a.Exact {
		return fmt.Errorf("account: %+v, %w", a, err)
	}
	h.count("log run", len(a.Records) > 0)
	seen := make([]int, s.Meta.HighWater)
	mark := func(e page.Extent) error {
		for id := e.Start; id < e.End(); id++ {
			if id >= page.ID(len(seen)) {
				return fmt.Errorf("page %d is free, past the high-water mark %d", id, len(seen))
			}
			seen[id]++
		}
		return nil
	}
	err = errors.Join(mark(page.Extent{Start: 0, N: uint64(page.FirstDataPage)}), scanTree(s, mark))
	for _, e := range append(a.Free, a.Reserved...) {
		err = errors.Join(err, mark(e))
	}
	for id, n := range seen {
		if n != 1 {
			err = errors.Join(err, fmt.Errorf("page %d is counted %d times", id, n))
		}
	}
	return err
}

// look reads what is held and what is current.
func (h *history) look() {
	if h.fault != nil || h.gone {
		return
	}
	n, err := h.current(h.Pager)
	switch {
	case err != nil:
		h.fail("read: %w", err)
	case n < h.visible && !h.stopped:
		h.fail("%d is read, %d is acknowledged", n, h.visible)
	case n < h.durable: // also of the last flush before writing stopped
		h.fail("%d is read, %d is durable", n, h.durable)
	}
	h.remembers()
	for _, r := range h.held {
		if err := h.Lost(r.snap.Value()); err != nil {
			if !h.stopped || r.n <= h.durable || !errors.Is(err, pager.ErrStopped) {
				h.fail("a reader of %d is told %w, and %d is durable", r.n, err, h.durable)
			}
			continue
		}
		if n, err := h.number(r.snap.Value()); err != nil || n != r.n {
			h.fail("a reader of %d reads %d, %w", r.n, n, err)
		}
		if err := h.canCopy(r.snap.Value()); err != nil {
			h.fail("a reader of %d: %w", r.n, err)
		}
	}
	if len(h.queue) == 0 && !h.stopped && h.fault == nil {
		if err := h.accounts(h.Pager); err != nil {
			h.fail("now: %w", err)
		}
	}
}

// shut closes the file: bbolt finds the newest state in it.
func (h *history) shut() {
	opts := pager.CloseOptions{NoFreelist: h.oneIn(3)}
	h.logf("close, no freelist %t", opts.NoFreelist)
	err := h.Close(opts)
	switch {
	case h.gone:
		return
	case h.stopped:
		h.visible = h.durable
		return
	case err != nil:
		h.fail("close: %w", err)
	}
	h.durable = h.visible
	if n, err := h.stockFinds(h.disk.Bytes()); err != nil || n != h.visible {
		h.fail("after Close bbolt finds %d, not %d, %w", n, h.visible, err)
	}
}
