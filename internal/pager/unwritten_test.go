package pager_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// noRoomForMeta makes the next write of a meta page fail with err, once.
func (e *env) noRoomForMeta(err error) {
	e.fail = func(op vfs.Op) error {
		if op.Kind == vfs.KindWrite && op.Off < 2*pageSize {
			e.fail = nil
			return err
		}
		return nil
	}
}

// A file system that writes each page to a new place (btrfs, ZFS, XFS with reflinks) had no room
// for a meta page, which ended all writing until the file was opened again, though the write had
// changed nothing.
func TestNoRoomForMeta(t *testing.T) {
	for name, c := range map[string]struct {
		strict bool
		mode   pager.Durability
		before []pager.Durability // of the commits before it
	}{
		"one flush":                 {false, pager.Full, nil},
		"two flushes":               {true, pager.Full, nil},
		"Periodic, the first":       {false, pager.Periodic, []pager.Durability{pager.Full}},
		"Periodic, the third":       {false, pager.Periodic, []pager.Durability{pager.Periodic, pager.Periodic}},
		"Full after Periodic":       {false, pager.Full, []pager.Durability{pager.Periodic}},
		"None":                      {false, pager.None, []pager.Durability{pager.None}},
		"Full after None":           {false, pager.Full, []pager.Durability{pager.None}},
		"Periodic, after all kinds": {false, pager.Periodic, []pager.Durability{pager.None, pager.Full, pager.Periodic}},
	} {
		for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
			t.Run(fmt.Sprint(name, cause), func(t *testing.T) {
				e := newEnvWith(t, pager.Options{StrictCompat: c.strict})
				e.mustCommit("older", 3)
				for i, mode := range c.before {
					e.opts.Mode = mode
					e.mustCommit(fmt.Sprint(mode, i), uint64(2+i))
				}
				e.opts.Mode = c.mode
				want := e.read()
				for range 3 {
					slots := e.slots()
					e.noRoomForMeta(cause)
					if err := e.commit("no room", 2); !errors.Is(err, cause) || errors.Is(err, pager.ErrStopped) {
						t.Fatalf("commit: %v", err)
					}
					if e.fail != nil {
						t.Fatal("no meta was written")
					}
					if e.read() != want || e.slots().Meta != slots.Meta {
						t.Errorf("readers see %q, the slots are %+v", e.read(), e.slots().Meta)
					}
					e.accounted()
					e.opensAs(want)
				}
				for i, mode := range []pager.Durability{c.mode, pager.Periodic, pager.Full} {
					if mode == pager.Periodic && c.strict {
						continue
					}
					e.opts.Mode, want = mode, fmt.Sprint("goes on", i)
					e.mustCommit(want, 1)
					e.accounted()
					e.opensAs(want)
				}
				if err := e.Sync(); err != nil {
					t.Fatal(err)
				}
				e.close()
				e.open(pager.Options{})
				if e.read() != want {
					t.Errorf("opening again finds %q", e.read())
				}
				e.accounted()
			})
		}
	}
}

// opensAs fails the test unless text is in a copy of the file, as a kill would leave it.
func (e *env) opensAs(text string) {
	e.t.Helper()
	killed := &env{t: e.t, mem: e.mem.Clone(), opts: pager.CommitOptions{AllocSize: 1 << 20}}
	killed.open(pager.Options{})
	defer killed.close()
	if got := killed.read(); got != text {
		e.t.Errorf("after a kill %q is found, not %q", got, text)
	}
	killed.accounted()
}

// A failure of which the slot shows something, or that cannot be looked at, is none to go on after.
func TestNoRoomForHalfAMeta(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		read  bool // reading it back fails
	}{
		"in part":              {&vfs.PartialWrite{Bytes: 100, Err: syscall.ENOSPC}, false},
		"in part, not told":    {&vfs.PartialWrite{Bytes: 100, Err: syscall.ENOSPC, Silent: true}, false},
		"all, not told":        {&vfs.PartialWrite{Bytes: pageSize, Err: syscall.EDQUOT, Silent: true}, false},
		"a byte of the same":   {&vfs.PartialWrite{Bytes: 1, Err: syscall.ENOSPC}, false},
		"not to be read again": {syscall.ENOSPC, true},
		"another error":        {syscall.EIO, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.mustCommit("older", 1)
			e.mustCommit("before", 1)
			e.fail = func(op vfs.Op) error {
				switch {
				case op.Kind == vfs.KindWrite && op.Off < 2*pageSize:
					return c.cause
				case op.Kind == vfs.KindRead && c.read:
					return syscall.EIO
				}
				return nil
			}
			if err := e.commit("lost", 1); !errors.Is(err, pager.ErrStopped) {
				t.Fatalf("commit: %v", err)
			}
			e.fail = nil
			if err := e.commit("later", 1); !errors.Is(err, pager.ErrStopped) {
				t.Errorf("the next commit: %v", err)
			}
		})
	}
}

// Without room for the plain meta that bbolt is to find, Sync says so, and nothing else fails. The
// timer tries once, and again after the next commit: not for as long as the disk is full.
func TestNoRoomForPlainMeta(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("text", 1)
	for range 2 {
		e.noRoomForMeta(syscall.ENOSPC)
		if err := e.Sync(); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, pager.ErrStopped) {
			t.Fatalf("Sync: %v", err)
		}
		if e.Settles() {
			t.Error("it is tried again before the next commit")
		}
		e.opensAs("text")
	}
	e.mustCommit("goes on", 1)
	if !e.Settles() {
		t.Error("it is not tried again after a commit")
	}
	if err := e.Sync(); err != nil {
		t.Fatal(err)
	}
	e.noRoomForMeta(syscall.ENOSPC)
	e.close()
	e.open(pager.Options{})
	if e.read() != "goes on" {
		t.Errorf("opening again finds %q", e.read())
	}
	e.accounted()
}

// An opening that finds no room for the plain meta of what it found says what is missing.
func TestNoRoomForMetaAtOpen(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("text", 1)
	left := e.mem.Clone()
	e.close()
	e.mem = left
	e.noRoomForMeta(syscall.ENOSPC)
	if err := e.tryOpen(pager.Options{}); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, pager.ErrStopped) {
		t.Fatalf("open: %v", err)
	}
	e.open(pager.Options{})
	if e.read() != "text" {
		t.Errorf("opening again finds %q", e.read())
	}
}

// Of a group whose meta finds no room all are aborted, and who edits on top of them, and who
// waits in Sync gets what was durable before.
func TestNoRoomForMetaOfGroup(t *testing.T) {
	g := newGate(t, pager.Options{})
	g.letAll()
	before := g.read()
	var prs []*pager.Prepared
	for i := range 3 {
		prs = append(prs, g.prepare(fmt.Sprint("member ", i), 2))
	}
	top, _ := g.edit()
	g.noRoomForMeta(syscall.EDQUOT)
	for _, pr := range slices.Backward(prs) {
		if err := pr.Finish(); !errors.Is(err, syscall.EDQUOT) || errors.Is(err, pager.ErrStopped) {
			t.Errorf("a member: %v", err)
		}
	}
	if err := top.Rollback(); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("on top of them: %v", err)
	}
	if g.read() != before {
		t.Errorf("readers see %q", g.read())
	}
	g.accounted()
	g.mustCommit("goes on", 3)
	g.accounted()
	g.opensAs("goes on")
}
