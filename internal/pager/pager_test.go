package pager_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

const pageSize = 1024

// scan gives the pages of a state whose root is one leaf.
func scan(s *pager.State, used func(page.Extent) error) error {
	p, err := s.Page(s.Meta.Root)
	if err != nil {
		return err
	}
	return used(page.Extent{Start: p.ID(), N: p.Pages()})
}

// env is a pager on a file in memory, whose calls are recorded and can fail.
type env struct {
	*pager.Pager
	t    *testing.T
	mem  *vfs.Mem
	file *vfs.Inject
	ops  []vfs.Op
	fail func(vfs.Op) error // nil: nothing fails
	opts pager.CommitOptions
	log  []string
	dead bool // a call has panicked, and may have left locks held
}

// giveUp is deferred where a panic is to fail the test, and not be hidden by a Close
// that waits for ever.
func (e *env) giveUp() {
	if r := recover(); r != nil {
		e.dead = true
		e.t.Fatalf("panic: %v\n%s", r, debug.Stack())
	}
}

func newEnv(t *testing.T) *env { return newEnvWith(t, pager.Options{}) }

func newEnvWith(t *testing.T, opts pager.Options) *env {
	e := &env{t: t, mem: vfs.NewMem("mem"), opts: pager.CommitOptions{AllocSize: 1 << 20}}
	e.open(opts)
	t.Cleanup(func() {
		if !e.dead {
			_ = e.Close(pager.CloseOptions{Commit: e.opts})
		}
	})
	return e
}

func (e *env) tryOpen(opts pager.Options) error {
	opts.PageSize = pageSize
	opts.Scan = scan
	if opts.PlainDelay == 0 {
		opts.PlainDelay = -1 // what a test writes is not to depend on how long it takes
	}
	if opts.PeriodicDelay == 0 {
		opts.PeriodicDelay = time.Hour // the same
	}
	opts.Log = func(format string, args ...any) { e.log = append(e.log, fmt.Sprintf(format, args...)) }
	e.ops = nil
	e.file = vfs.NewInject(e.mem.Open(), func(op vfs.Op) error {
		e.ops = append(e.ops, op)
		if e.fail != nil {
			return e.fail(op)
		}
		return nil
	})
	p, err := pager.Open(e.file, opts)
	if err == nil {
		e.Pager = p
	}
	return err
}

func (e *env) open(opts pager.Options) {
	e.t.Helper()
	if err := e.tryOpen(opts); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) close() {
	e.t.Helper()
	if err := e.Close(pager.CloseOptions{Commit: e.opts}); err != nil {
		e.t.Fatal(err)
	}
}

// commit replaces the root, a leaf of n pages, by one that holds text.
func (e *env) commit(text string, n uint64) error {
	e.t.Helper()
	w, err := e.BeginWrite()
	if err != nil {
		return err
	}
	prepared := false
	defer func() {
		if !prepared && !e.dead { // after a Fatal Close waits for the writer lock
			w.Rollback()
		}
	}()
	defer e.giveUp()
	old, err := w.Page(w.Base().Meta.Root)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := w.Free(old.ID(), old.Pages()); err != nil {
		e.t.Fatal(err)
	}
	id, buf, err := w.Allocate(n, true)
	if err != nil {
		e.t.Fatal(err)
	}
	if w.PageSize() != pageSize || len(buf) != int(n)*pageSize {
		e.t.Fatalf("a buffer of %d bytes for %d pages", len(buf), n)
	}
	enc := page.NewLeaf(buf, id, 1, uint32(n-1))
	enc.Leaf(0, []byte("k"), []byte(text))
	enc.Finish(true)
	prepared = true // or rolled back by Prepare
	pr, err := w.Prepare(id, uint64(len(text)), e.opts)
	if err != nil {
		return err
	}
	return pr.Finish()
}

func (e *env) mustCommit(text string, n uint64) {
	e.t.Helper()
	if err := e.commit(text, n); err != nil {
		e.t.Fatal(err)
	}
}

// read is the text of the current state.
func (e *env) read() string {
	e.t.Helper()
	snap, err := e.Begin()
	if err != nil {
		e.t.Fatal(err)
	}
	defer snap.Release()
	return textOf(e.t, snap.Value())
}

func textOf(t *testing.T, s *pager.State) string {
	t.Helper()
	p, err := s.Page(s.Meta.Root)
	if err != nil {
		t.Fatal(err)
	}
	if p.Count() == 0 {
		return ""
	}
	el, err := p.Leaf(0)
	if err != nil {
		t.Fatal(err)
	}
	return string(el.Value)
}

// slots reads both metas from the file.
func (e *env) slots() page.Slots {
	b := e.mem.Bytes()
	return page.DecodeSlots(b, b[pageSize:])
}

// written gives the calls since from that change the file, in short: p for
// pages, m0 and m1 for metas, s for a flush.
func (e *env) written() string {
	var all []string
	for _, op := range e.ops {
		switch {
		case op.Kind == vfs.KindSync:
			all = append(all, "s")
		case op.Kind == vfs.KindWrite && op.Off >= 2*pageSize:
			all = append(all, "p")
		case op.Kind == vfs.KindWrite && op.Off%pageSize == 0 && op.Len == pageSize:
			all = append(all, fmt.Sprint("m", op.Off/pageSize))
		case op.Kind == vfs.KindWrite, op.Kind == vfs.KindTruncate:
			all = append(all, fmt.Sprintf("%v %d+%d", op.Kind, op.Off, op.Len))
		}
	}
	e.ops = nil
	return strings.Join(all, " ")
}

// A commit is one flush, of pages and meta, or with StrictCompat two in the right
// order: pages, flush, meta, flush. A reader or a transaction that is rolled back
// writes nothing.
func TestCommitOrder(t *testing.T) {
	t.Run("one flush", func(t *testing.T) { commitOrder(t, pager.Options{}, "p m%d s") })
	t.Run("StrictCompat", func(t *testing.T) { commitOrder(t, pager.Options{StrictCompat: true}, "p s m%d s") })
}

func commitOrder(t *testing.T, opts pager.Options, want string) {
	e := newEnvWith(t, opts)
	if got := e.written(); got != "s p s write 0+2048 s" {
		t.Errorf("a new file: %s", got)
	}
	for i := range 3 {
		e.mustCommit("text", uint64(i+1))
		if got := e.written(); got != fmt.Sprintf(want, i%2) {
			t.Errorf("commit %d: %s, want %s", i, got, fmt.Sprintf(want, i%2))
		}
	}
	e.read()
	w, err := e.BeginWrite()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Allocate(3, true); err != nil {
		t.Fatal(err)
	}
	w.Rollback()
	if got := e.written(); got != "" {
		t.Errorf("reading and rolling back: %s", got)
	}
	e.opts.Mode = pager.None
	e.mustCommit("text", 1)
	if got := e.written(); got != "p m1" {
		t.Errorf("without flushes: %s", got)
	}
	if err := e.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := e.written(); got != "s" {
		t.Errorf("Sync: %s", got)
	}
	e.opts.Mode = pager.Full
	e.close()
	if got := e.written(); got != "p s m0 s" {
		t.Errorf("closing: %s", got)
	}
	e.open(pager.Options{})
	var kinds []string
	for _, op := range e.ops {
		kinds = append(kinds, op.Kind.String())
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "lock size sync read") || strings.Contains(got, "write") {
		t.Errorf("opening again: %s", got)
	}
	e.close()
	if got := e.written(); got != "s" { // of opening
		t.Errorf("closing what was not changed: %s", got)
	}
}

// Opening for reading writes nothing. It flushes once, or might report what a power
// failure takes back.
func TestReadOnlyWritesNothing(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("text", 1)
	e.close()
	e.open(pager.Options{ReadOnly: true})
	if !e.ReadOnly() || e.Name() != "mem" || e.Pager.PageSize() != pageSize {
		t.Error("the pager forgot what it is")
	}
	if e.read() != "text" {
		t.Error("reads something else")
	}
	if _, err := e.BeginWrite(); err != pager.ErrDatabaseReadOnly {
		t.Errorf("BeginWrite: %v", err)
	}
	if _, err := e.IsFree(3); err != pager.ErrFreePagesNotLoaded {
		t.Errorf("IsFree: %v", err)
	}
	snap, err := e.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Account(snap.Value()); err != pager.ErrFreePagesNotLoaded {
		t.Errorf("Account: %v", err)
	}
	for range 2 {
		if err := e.LoadFree(snap.Value()); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := e.Account(snap.Value()); err != nil || len(a.Free) == 0 || !a.Exact {
		t.Errorf("Account: %+v, %v", a, err)
	}
	snap.Release()
	e.close()
	if got := e.written(); got != "s" {
		t.Errorf("opening for reading: %s", got)
	}
}

// Each commit writes the slot that bbolt would not open, with the smallest
// label of its parity that is above the other's; the other slot's bytes stay.
func TestSlotsAlternate(t *testing.T) {
	e := newEnv(t)
	for label := page.Label(2); label < 12; label++ {
		slot := int(label % 2)
		other := bytes.Clone(e.mem.Bytes()[(1-slot)*pageSize:][:pageSize])
		e.mustCommit(fmt.Sprint("text ", label), 1)
		s := e.slots()
		if s.Err[slot] != nil || s.Meta[slot].Label != label || s.Meta[slot].Freelist != page.NoFreelist {
			t.Errorf("slot %d holds %+v, %v; want label %d", slot, s.Meta[slot], s.Err[slot], label)
		}
		if !bytes.Equal(other, e.mem.Bytes()[(1-slot)*pageSize:][:pageSize]) {
			t.Errorf("label %d: the other slot was written too", label)
		}
	}
	// Two equal slots, as bbolt's "surgery revert-meta-page" leaves them, and
	// labels without their slot's parity.
	for _, c := range []struct {
		labels [2]page.Label
		want   []page.Label // of the next commits
	}{
		{[2]page.Label{20, 20}, []page.Label{22, 23, 24}},
		{[2]page.Label{21, 21}, []page.Label{23, 24, 25}},
		{[2]page.Label{31, 40}, []page.Label{42, 43}},
		{[2]page.Label{51, 40}, []page.Label{53, 54}},
	} {
		e.close()
		s := e.slots()
		best, err := s.Best()
		if err != nil {
			t.Fatal(err)
		}
		look := e.mem.Open()
		for slot, label := range c.labels {
			m := s.Meta[best]
			m.Label = label
			buf := make([]byte, pageSize)
			page.EncodeMeta(buf, page.ID(slot), m, nil)
			if _, err := look.WriteAt(buf, int64(slot)*pageSize); err != nil {
				t.Fatal(err)
			}
		}
		_ = look.Close()
		e.open(pager.Options{})
		for i, label := range c.want {
			e.mustCommit(fmt.Sprint("label ", label), 1)
			if got := e.slots().Meta[label%2].Label; got != label {
				t.Errorf("labels %v, commit %d: label %d, want %d", c.labels, i, got, label)
			}
		}
	}
}

// A freelist page that a slot names is kept until that slot is overwritten: it
// is reserved, not free, and its bytes stay.
func TestFreelistPageIsKept(t *testing.T) {
	strict := pager.Options{StrictCompat: true}
	e := newEnvWith(t, strict)
	for i := range 5 {
		e.mustCommit(fmt.Sprint(i), uint64(1+i%3))
	}
	e.close()
	s := e.slots()
	named, err := s.Best()
	if err != nil {
		t.Fatal(err)
	}
	list := s.Meta[named].Freelist
	if list == page.NoFreelist {
		t.Fatal("Close left no freelist page")
	}
	listBytes := func() string { return string(e.mem.Bytes()[list*pageSize:][:pageSize]) }
	before := listBytes()
	e.open(strict)
	reserved := func() []page.Extent {
		snap, err := e.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Release()
		a, err := e.Account(snap.Value())
		if err != nil {
			t.Fatal(err)
		}
		return a.Reserved
	}
	want := []page.Extent{{Start: list, N: 1}}
	if got := reserved(); !slices.Equal(got, want) {
		t.Errorf("reserved after opening: %v, want %v", got, want)
	}
	for i := range 4 { // rolled back and failed ones do not count
		e.fail = func(op vfs.Op) error {
			if op.Kind == vfs.KindWrite && op.Off >= 2*pageSize {
				return syscall.ENOSPC
			}
			return nil
		}
		if err := e.commit("fails", 1); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("failing commit %d: %v", i, err)
		}
	}
	e.fail = nil
	e.mustCommit("first", 1)
	if got := e.slots(); got.Meta[named].Freelist != list || !slices.Equal(reserved(), want) || listBytes() != before {
		t.Errorf("after the commit to the other slot: reserved %v, want %v", reserved(), want)
	}
	if free, err := e.IsFree(list); free || err != nil {
		t.Error("the freelist page is free while a slot names it")
	}
	e.mustCommit("second", 1) // over the meta that names it,
	e.mustCommit("third", 1)  // frees it
	if got := reserved(); len(got) > 0 {
		t.Errorf("two commits after: reserved %v", got)
	}
	for i := range 3 {
		e.mustCommit(fmt.Sprint("more ", i), 1)
	}
	if free, err := e.IsFree(list); !free && listBytes() == before || err != nil {
		t.Error("the freelist page is never used again")
	}
}
