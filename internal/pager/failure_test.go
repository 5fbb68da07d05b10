package pager_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// next fails the n-th call of a kind from now on.
func (e *env) next(kind vfs.Kind, n int64, err error) {
	at := e.file.Count(kind) + n
	e.fail = func(op vfs.Op) error {
		if op.Kind == kind && op.N == at {
			return err
		}
		return nil
	}
}

// accounted fails the test unless each page of the current state is what it
// should be: in use once, free, or reserved.
func (e *env) accounted() {
	e.t.Helper()
	snap, err := e.Begin()
	if err != nil {
		e.t.Fatal(err)
	}
	defer snap.Release()
	s := snap.Value()
	a, err := e.Account(s)
	if err != nil || !a.Exact {
		e.t.Fatalf("account: %+v, %v", a, err)
	}
	seen := make([]int, s.Meta.HighWater)
	mark := func(ex page.Extent) error {
		for id := ex.Start; id < ex.End(); id++ {
			seen[id]++
		}
		return nil
	}
	_ = mark(page.Extent{Start: 0, N: 2})
	if err := scan(s, mark); err != nil {
		e.t.Fatal(err)
	}
	for _, ex := range append(a.Free, a.Reserved...) {
		_ = mark(ex)
	}
	for id, n := range seen {
		if n != 1 {
			e.t.Errorf("page %d is counted %d times", id, n)
		}
	}
}

// A page write that fails, wholly or in part, undoes its transaction and
// nothing else: the next one goes on, in the same pages.
func TestPageWriteFails(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, &vfs.PartialWrite{Bytes: 700, Err: syscall.EIO}} {
		e := newEnv(t)
		e.mustCommit("before", 2)
		for i := range 3 {
			high := e.slots().Meta[0].HighWater
			e.next(vfs.KindWrite, 1, cause)
			err := e.commit("lost", 5)
			var partial *vfs.PartialWrite
			if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EIO) || errors.Is(err, pager.ErrStopped) || errors.As(err, &partial) {
				t.Fatalf("round %d: %v", i, err)
			}
			e.accounted()
			if e.read() != "before" || e.slots().Meta[0].HighWater != high {
				t.Error("the failed transaction left something behind")
			}
		}
		e.fail = nil
		e.mustCommit("after", 5)
		e.accounted()
		e.close()
		e.open(pager.Options{})
		e.accounted()
		if e.read() != "after" {
			t.Errorf("reads %q after opening again", e.read())
		}
	}
}

// A flush or a meta write that fails leaves it open what the disk holds.
// Nothing is written from then on; readers go on with the last state that was
// made visible; opening again finds a whole state: the old or the new one.
func TestStopped(t *testing.T) {
	for name, c := range map[string]struct {
		kind   vfs.Kind
		n      int64
		cause  error
		after  string // what opening again finds
		strict bool
	}{
		"the flush":          {vfs.KindSync, 1, syscall.EIO, "lost", false},
		"first flush":        {vfs.KindSync, 1, syscall.EIO, "before", true},
		"meta":               {vfs.KindWrite, 2, syscall.EIO, "before", false},
		"meta, in part":      {vfs.KindWrite, 2, &vfs.PartialWrite{Bytes: 50, Err: syscall.EIO}, "before", false},
		"meta, mostly":       {vfs.KindWrite, 2, &vfs.PartialWrite{Bytes: 100, Err: syscall.EIO}, "before", false},
		"meta, all the same": {vfs.KindWrite, 2, &vfs.PartialWrite{Bytes: pageSize, Err: syscall.EIO}, "lost", false},
		"second flush":       {vfs.KindSync, 2, syscall.EIO, "lost", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnvWith(t, pager.Options{StrictCompat: c.strict})
			e.mustCommit("older", 1)
			e.mustCommit("before", 1)
			held, err := e.Begin()
			if err != nil {
				t.Fatal(err)
			}
			release := sync.OnceFunc(held.Release)
			defer release()
			e.next(c.kind, c.n, c.cause)
			err = e.commit("lost", 1)
			if !errors.Is(err, pager.ErrStopped) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "mem") {
				t.Fatalf("commit: %v", err)
			}
			e.fail = nil
			e.ops = nil
			w, again := e.BeginWrite()
			if again == nil {
				w.Rollback()
			}
			if again == nil || again.Error() != err.Error() || !errors.Is(again, pager.ErrStopped) {
				t.Fatalf("the next writer: %v", again)
			}
			if again := e.Sync(); !errors.Is(again, pager.ErrStopped) {
				t.Errorf("Sync: %v", again)
			}
			if e.read() != "before" || textOf(t, held.Value()) != "before" {
				t.Error("readers see something else")
			}
			release()
			e.accounted()
			if err := e.Close(pager.CloseOptions{Commit: e.opts}); err != nil {
				t.Errorf("Close: %v", err)
			}
			if got := e.written(); got != "" {
				t.Errorf("written after the failure: %s", got)
			}
			e.open(pager.Options{})
			if e.read() != c.after {
				t.Errorf("opening again finds %q, want %q", e.read(), c.after)
			}
			e.accounted()
			e.mustCommit("goes on", 1)
			e.accounted()
		})
	}
}

// A flush that was asked for fails: what was written without flushes before may
// be lost, so this stops the writer too.
func TestSyncFails(t *testing.T) {
	e := newEnv(t)
	e.opts.Mode = pager.None
	e.mustCommit("not flushed", 1)
	e.next(vfs.KindSync, 1, syscall.EIO)
	for range 2 {
		if err := e.Sync(); !errors.Is(err, pager.ErrStopped) || !errors.Is(err, syscall.EIO) {
			t.Errorf("Sync: %v", err)
		}
	}
	if _, err := e.BeginWrite(); !errors.Is(err, pager.ErrStopped) {
		t.Errorf("BeginWrite: %v", err)
	}
	if e.read() != "not flushed" {
		t.Error("readers see something else")
	}
}

// The file cannot grow, or not be mapped any further: the transaction is undone
// and all else goes on, also growing, later.
func TestGrowFails(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.KindGrow, vfs.KindMap} {
		t.Run(kind.String(), func(t *testing.T) {
			e := newEnv(t)
			e.mustCommit("before", 1)
			held, err := e.Begin()
			if err != nil {
				t.Fatal(err)
			}
			e.fail = func(op vfs.Op) error {
				if op.Kind == kind {
					return syscall.ENOMEM
				}
				return nil
			}
			const pages = 48 << 20 / pageSize // more than is mapped ahead
			for range 2 {
				err := e.commit("too large", pages)
				if !errors.Is(err, syscall.ENOMEM) || errors.Is(err, pager.ErrStopped) || (kind == vfs.KindMap) != errors.Is(err, vfs.ErrMapping) {
					t.Errorf("commit: %v", err)
				}
				e.accounted()
				if e.read() != "before" {
					t.Error("readers see something else")
				}
			}
			e.fail = nil
			e.mustCommit("fits now", pages)
			e.accounted()
			if e.read() != "fits now" || textOf(t, held.Value()) != "before" {
				t.Error("readers see something else")
			}
			held.Release()
		})
	}
}

// With room for a mapping as long as the file, but none ahead, mapping that is
// tried again without room succeeds.
func TestMapWithoutRoom(t *testing.T) {
	e := newEnv(t)
	e.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindMap && op.Len > 50<<20 {
			return syscall.ENOMEM
		}
		return nil
	}
	e.mustCommit("large", 40<<20/pageSize)
	if e.read() != "large" {
		t.Error("reads something else")
	}
}

// Close that cannot write a freelist page (for want of space) leaves none, and
// says so in the log only; one whose flush fails reports it. Either file opens.
func TestCloseFails(t *testing.T) {
	for name, c := range map[string]struct {
		kind vfs.Kind
		n    int64
		want error
	}{
		"list page":    {vfs.KindWrite, 1, nil},
		"first flush":  {vfs.KindSync, 1, pager.ErrStopped},
		"meta":         {vfs.KindWrite, 2, pager.ErrStopped},
		"second flush": {vfs.KindSync, 2, pager.ErrStopped},
		"unmap":        {vfs.KindUnmap, 1, syscall.EIO},
		"unlock":       {vfs.KindUnlock, 1, syscall.EIO},
		"close":        {vfs.KindClose, 1, syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.mustCommit("a", 3)
			e.mustCommit("text", 1)
			e.log = nil
			e.next(c.kind, c.n, syscall.EIO)
			err := e.Close(pager.CloseOptions{Commit: e.opts})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("Close: %v, want %v", err, c.want)
			}
			if c.want == nil && !strings.Contains(strings.Join(e.log, "\n"), "without a freelist page") {
				t.Errorf("the log says %q", e.log)
			}
			if err := e.Close(pager.CloseOptions{}); err != nil {
				t.Errorf("second Close: %v", err)
			}
			if _, err := e.Begin(); err != pager.ErrDatabaseNotOpen {
				t.Errorf("Begin: %v", err)
			}
			if _, err := e.BeginWrite(); err != pager.ErrDatabaseNotOpen {
				t.Errorf("BeginWrite: %v", err)
			}
			if err := e.Sync(); err != pager.ErrDatabaseNotOpen {
				t.Errorf("Sync: %v", err)
			}
			if e.Data() != nil {
				t.Error("a mapping is left")
			}
			e.fail = nil
			e.open(pager.Options{})
			if e.read() != "text" {
				t.Errorf("opening again finds %q", e.read())
			}
			e.accounted()
		})
	}
}

// When opening fails, at whichever call, the error comes back with its cause,
// and the file is closed and its lock given back.
func TestOpenFails(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		for _, fresh := range []bool{false, true} {
			if fresh && readOnly {
				continue
			}
			e := newEnv(t)
			e.mustCommit("a", 3)
			e.mustCommit("text", 1)
			e.close()
			tried := 0
			for kind := range vfs.KindClose {
				for n := int64(1); ; n++ {
					if fresh {
						e.mem = vfs.NewMem("mem")
					}
					e.fail = vfs.FailNth(kind, n, syscall.EIO)
					err := e.tryOpen(pager.Options{ReadOnly: readOnly, LoadFreeList: true, Lock: true})
					if e.file.Count(kind) < n {
						if err != nil {
							t.Fatal(err)
						}
						e.fail = nil
						e.close()
						break
					}
					if kind == vfs.KindMap && n == 1 { // tried again without room ahead
						if err != nil {
							t.Fatal(err)
						}
						e.fail = nil
						e.close()
						continue
					}
					if readOnly && kind == vfs.KindSync { // a reader says that it could not flush
						if err != nil || !e.Finding().Unflushed {
							t.Fatalf("%v %d fails: %v", kind, n, err)
						}
						e.fail = nil
						e.close()
						continue
					}
					tried++
					if !errors.Is(err, syscall.EIO) {
						t.Errorf("%v %d fails: %v", kind, n, err)
					}
					if e.file.Count(vfs.KindClose) != 1 || e.file.Count(vfs.KindMap)-e.file.Count(vfs.KindUnmap) > 1 {
						t.Errorf("%v %d fails: the file is not closed", kind, n)
					}
				}
			}
			if tried < 4 {
				t.Errorf("only %d calls failed", tried)
			}
			e.fail = nil
			e.open(pager.Options{ReadOnly: readOnly}) // the lock is free
			e.close()
		}
	}
}

// The file grows in powers of two up to the step, then by the step; not beyond
// its greatest size.
func TestGrowthSteps(t *testing.T) {
	e := newEnv(t)
	e.opts.AllocSize = 256 << 10
	for _, pages := range []uint64{1, 20, 40, 100, 200, 1000} {
		high := e.highWater()
		e.mustCommit("text", pages)
		size := int64(len(e.mem.Bytes()))
		need := int64(e.highWater()) * pageSize
		if size < need {
			t.Errorf("%d pages: %d bytes for %d", pages, size, need)
		}
		if need <= 256<<10 && size&(size-1) != 0 {
			t.Errorf("%d pages above %d: %d bytes, not a power of two", pages, high, size)
		}
		if need > 256<<10 && size > need+256<<10 {
			t.Errorf("%d pages above %d: %d bytes for %d", pages, high, size, need)
		}
	}
	e.opts.MaxSize = int64(len(e.mem.Bytes()))
	if err := e.commit("too large", 5000); err != pager.ErrMaxSizeReached {
		t.Errorf("beyond the greatest size: %v", err)
	}
	e.accounted()
	e.mustCommit("fits", 1)
}

func (e *env) highWater() page.ID {
	snap, err := e.Begin()
	if err != nil {
		e.t.Fatal(err)
	}
	defer snap.Release()
	return snap.Value().Meta.HighWater
}

// noRoom is a file that cannot be mapped beyond its end, as on Windows.
type noRoom struct{ *vfs.Inject }

func (noRoom) MapBeyondEnd() bool { return false }

func (f noRoom) Map(length int64, opts vfs.MapOptions) (vfs.Mapping, error) {
	size, err := f.Size()
	if err != nil || length > size {
		return nil, fmt.Errorf("%w: beyond the end", vfs.ErrMapping)
	}
	return f.Inject.Map(length, opts)
}

// Without room ahead each growth takes a new mapping; old states keep theirs,
// and none is left when they have gone.
func TestGenerations(t *testing.T) {
	mem := vfs.NewMem("mem")
	inject := vfs.NewInject(mem.Open(), nil)
	p, err := pager.Open(noRoom{inject}, pager.Options{PageSize: pageSize, Scan: scan})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Pager: p, t: t, mem: mem, file: inject, opts: pager.CommitOptions{AllocSize: 4096}}
	var held []pager.Snapshot
	for i := range 20 {
		e.mustCommit(fmt.Sprint("state ", i), uint64(10*i+1))
		snap, err := e.Begin()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, snap)
	}
	if inject.Count(vfs.KindMap) < 10 {
		t.Errorf("only %d mappings", inject.Count(vfs.KindMap))
	}
	if inject.Count(vfs.KindUnmap) > 1 {
		t.Errorf("%d mappings were taken away while readers hold their states", inject.Count(vfs.KindUnmap))
	}
	for i, snap := range held {
		if got := textOf(t, snap.Value()); got != fmt.Sprint("state ", i) {
			t.Errorf("state %d reads %q", i, got)
		}
	}
	now, ever := e.Readers()
	if now != 20 || ever < 20 {
		t.Errorf("%d readers now, %d ever", now, ever)
	}
	for _, snap := range held {
		snap.Release()
	}
	e.mustCommit("last", 1)
	e.mustCommit("very last", 1)
	if maps, unmaps := inject.Count(vfs.KindMap), inject.Count(vfs.KindUnmap); maps-unmaps != 1 {
		t.Errorf("%d mappings, %d of them taken away; want all but one", maps, unmaps)
	}
	e.close()
	if maps, unmaps := inject.Count(vfs.KindMap), inject.Count(vfs.KindUnmap); maps != unmaps {
		t.Errorf("%d mappings are left after Close", maps-unmaps)
	}
}

// A disk counted as full when the step by which the file grows did not fit,
// though there was room for what the commit needed: half of a small disk was
// never used.
func TestGrowthOnAFullDisk(t *testing.T) {
	for _, room := range []int64{300 << 10, 400 << 10, 2 << 20} {
		e := newEnv(t)
		e.mustCommit("before", 1)
		e.fail = func(op vfs.Op) error {
			if op.Kind == vfs.KindGrow && op.Len > room {
				return syscall.ENOSPC
			}
			return nil
		}
		var err error
		for n := uint64(1); err == nil && n < 4000; n++ {
			err = e.commit("more", n)
		}
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, pager.ErrStopped) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
		if size := int64(len(e.mem.Bytes())); size > room || size < room-128<<10 {
			t.Errorf("room for %d bytes: the file has %d", room, size)
		}
		e.accounted()
		e.mustCommit("fits", 1)
	}
}

// The last flush of a creation failed, and the metas that only the page cache
// had were taken for those of a database by the next opening, and for none once
// it had dropped them. (Then the file keeps its length, see TestFailedCreation in
// test/crash: cut off, it could be damaged.)
func TestCreationFlushFails(t *testing.T) {
	for nth := int64(1); nth <= 3; nth++ {
		e := &env{t: t, mem: vfs.NewMem("mem")}
		e.fail = func(op vfs.Op) error {
			if op.Kind == vfs.KindSync && op.N == nth {
				return syscall.EIO
			}
			return nil
		}
		if err := e.tryOpen(pager.Options{}); !errors.Is(err, syscall.EIO) {
			t.Fatalf("flush %d fails: %v", nth, err)
		}
		want := 0
		if nth == 3 {
			want = 4 * pageSize
		}
		if n := len(e.mem.Bytes()); n != want {
			t.Errorf("flush %d fails: the file has %d bytes, want %d", nth, n, want)
		}
		e.fail = nil
		e.open(pager.Options{})
		e.mustCommit("goes on", 1)
		e.close()
	}
}
