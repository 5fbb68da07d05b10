package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
)

// logged is a place for a log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

// chain commits snapshots on each other, from one number to another.
func chain(t *testing.T, n *snapshot.Namespace, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		parent := ""
		if i > 1 {
			parent = fmt.Sprint(i - 1)
		}
		if _, err := n.Prepare(ctx, "active", parent); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if err := n.Commit(ctx, fmt.Sprint(i), "active"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongChain: a chain of more than 128 is a warning, once for each end.
func TestLongChain(t *testing.T) {
	var log logged
	s := open(t, t.TempDir(), snapshot.Options{Driver: nothing{}, Durability: holdfast.None, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	n := namespace(t, s, "t")
	warnings := func(want int) {
		t.Helper()
		if got := log.count("stands on many others"); got != want {
			t.Errorf("%d warnings, and should be %d", got, want)
		}
	}
	chain(t, n, 1, snapshot.DeepChain+1)
	warnings(0)
	for i := range 3 {
		if _, err := n.Prepare(ctx, fmt.Sprint("p", i), fmt.Sprint(snapshot.DeepChain+1)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.View(ctx, fmt.Sprint("v", i), fmt.Sprint(snapshot.DeepChain+1)); err != nil {
			t.Fatal(err)
		}
	}
	warnings(1)
	chain(t, n, snapshot.DeepChain+2, snapshot.DeepChain+4)
	warnings(3)
	if log.count("layers=129") != 1 || log.count("snapshot=129") != 1 || log.count("layers=131") != 1 {
		t.Error("it does not say which and how many:", log.text.String())
	}
}

// TestTooLongForOverlay: more layers than the kernel stacks are an error that says so.
func TestTooLongForOverlay(t *testing.T) {
	d := overlay.New()
	s := open(t, t.TempDir(), snapshot.Options{Driver: unprobed{d}, Durability: holdfast.None})
	n := namespace(t, s, "t")
	chain(t, n, 1, overlay.MaxLayers)
	if _, err := n.Prepare(ctx, "top", fmt.Sprint(overlay.MaxLayers)); err != nil {
		t.Errorf("on %d: %v", overlay.MaxLayers, err)
	}
	if err := n.Commit(ctx, "top one", "top"); err != nil {
		t.Fatal(err)
	}
	_, err := n.Prepare(ctx, "more", "top one")
	want(t, "one more", err, overlay.ErrTooDeep)
	_, err = n.View(ctx, "more", "top one")
	want(t, "a view of that", err, overlay.ErrTooDeep)
	if err != nil && !strings.Contains(err.Error(), "501 parents, 500 are possible") {
		t.Errorf("it does not say how many: %v", err)
	}
}

// unprobed is a driver that is not asked whether it works here, and flushes nothing.
type unprobed struct{ snapshot.Driver }

func (unprobed) Sync(context.Context, snapshot.Tree) error { return nil }

// TestTrashUsage: what is to be deleted is counted until it is, also after a restart, and also what was never measured.
func TestTrashUsage(t *testing.T) {
	root := t.TempDir()
	f := &faulty{Driver: nothing{}}
	o := snapshot.Options{Driver: f, Durability: holdfast.Periodic}
	s := open(t, root, o)
	n := namespace(t, s, "t")
	chain(t, n, 1, 5)
	if _, err := n.Prepare(ctx, "active", ""); err != nil {
		t.Fatal(err)
	}
	info, err := n.Stat(ctx, "active")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "snapshots", info.ID.String(), "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.set("remove", errors.New("not yet"))
	check := func(want, measured, inodes int64) {
		t.Helper()
		totals, err := s.Totals(ctx)
		if err != nil || totals.TrashBytes != want {
			t.Errorf("%+v, %v; it should be %d", totals, err, want)
		}
		if got, err := s.TrashUsage(ctx); err != nil || got != (snapshot.Usage{Size: measured, Inodes: inodes}) {
			t.Errorf("measured: %+v, %v; it should be %d bytes in %d inodes", got, err, measured, inodes)
		}
	}
	check(0, 0, 0)
	for _, name := range []string{"5", "4"} {
		if err := n.Remove(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	check(8192, 8192, 2)
	if err := n.Remove(ctx, "active"); err != nil {
		t.Fatal(err)
	}
	check(8192, 8192+8192, 4) // a directory and a file
	if err := s.Cleanup(ctx); err == nil {
		t.Error("what cannot be deleted is deleted")
	}
	check(16384, 16384, 4)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, root, o)
	if _, err := s.Reconciled(ctx); err != nil {
		t.Fatal(err)
	}
	check(8192, 16384, 4)
	f.set("remove", nil)
	if err := s.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	check(0, 0, 0)
}

// TestPruneFor: as many as the time allows, at least one; the list is followed in its order.
func TestPruneFor(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Driver: nothing{}, Durability: holdfast.None})
	n := namespace(t, s, "t")
	chain(t, n, 1, 50)
	var list []snapshot.Doomed
	for i := 50; i > 0; i-- {
		info, err := n.Stat(ctx, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, snapshot.Doomed{ID: info.ID, LastUsed: info.LastUsed})
	}
	p, err := s.PruneFor(ctx, list, 1)
	if err != nil || p.Looked != 1 || len(p.Removed) != 1 || p.Removed[0] != list[0].ID || p.Bytes != 4096 || p.Held <= 0 {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = s.PruneFor(ctx, list[1:], time.Hour)
	if err != nil || p.Looked != 49 || len(p.Removed) != 49 || p.Bytes != 49*4096 {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = s.PruneFor(ctx, list, time.Hour)
	if err != nil || p.Looked != 50 || len(p.Removed) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	sound(t, s)
}

// TestCandidates: in order of use, parents after their children, with what expired leases have held; and
// nothing twice, nor what is taken.
func TestCandidates(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Driver: nothing{}, Durability: holdfast.None})
	n := namespace(t, s, "t")
	chain(t, n, 1, 3)
	layer := func(name string) {
		t.Helper()
		if _, err := n.Prepare(ctx, name+" active", ""); err != nil {
			t.Fatal(err)
		}
		if err := n.Commit(ctx, name, name+" active"); err != nil {
			t.Fatal(err)
		}
	}
	layer("x")
	layer("expired")
	layer("leased")
	layer("y")
	for _, err := range []error{n.Lease(ctx, "a", "expired", 1), n.Lease(ctx, "b", "expired", time.Nanosecond), n.Lease(ctx, "a", "leased", 1), n.Lease(ctx, "b", "leased", time.Hour)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	err := s.Read(ctx, func(m *snapshot.ReadTx) error {
		all, err := m.Candidates(time.Now(), "")
		if err != nil {
			return err
		}
		names := func(takes ...string) (names []string) {
			for {
				c, found, err := all.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !found {
					return names
				}
				names = append(names, c.Name)
				if slices.Contains(takes, c.Name) {
					if err := all.Take(c); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, step := range []struct{ take, want []string }{
			{nil, []string{"3", "x", "expired", "y"}},
			{[]string{"x", "2"}, []string{"3", "x", "expired", "y"}}, // 2 is not there as long as 3 is not taken
			{[]string{"3"}, []string{"3", "2", "expired", "y"}},
			{[]string{"expired"}, []string{"2", "expired", "y"}},
			{[]string{"2", "1", "y"}, []string{"2", "1", "y"}},
			{nil, nil},
		} {
			all.Rewind()
			if got := names(step.take...); !slices.Equal(got, step.want) {
				t.Errorf("there are %q, and should be %q", got, step.want)
			}
		}
		later, err := m.Candidates(time.Now().Add(2*time.Hour), "")
		if err != nil {
			return err
		}
		all = later
		if got := names(); !slices.Equal(got, []string{"3", "x", "expired", "leased", "y"}) {
			t.Errorf("later there are %q", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if held, err := n.Leases(ctx, "expired"); err != nil || len(held) != 2 {
		t.Errorf("the leases were changed: %v, %v", held, err)
	}
	ended, cancel := context.WithCancel(ctx)
	err = s.Read(ended, func(m *snapshot.ReadTx) error {
		all, err := m.Candidates(time.Now(), "")
		if err != nil {
			return err
		}
		cancel()
		_, _, err = all.Next()
		return err
	})
	want(t, "canceled", err, context.Canceled)
}

// TestFullTwice: a transaction that finds the disk full is tried again, once, if there may be room.
func TestFullTwice(t *testing.T) {
	asked, answer := 0, false
	s := open(t, t.TempDir(), snapshot.Options{Driver: nothing{}, Durability: holdfast.None, Full: func() bool { asked++; return answer }})
	tries := 0
	attempt := func(full int) error {
		tries = 0
		return s.Attempt(func() error {
			if tries++; tries <= full {
				return fmt.Errorf("write: %w", syscall.ENOSPC)
			}
			return nil
		})
	}
	want(t, "no room", attempt(1), syscall.ENOSPC)
	if tries != 1 || asked != 1 {
		t.Errorf("%d tries, asked %d times", tries, asked)
	}
	answer = true
	if err := attempt(1); err != nil || tries != 2 || asked != 2 {
		t.Errorf("%v: %d tries, asked %d times", err, tries, asked)
	}
	want(t, "no room after all", attempt(5), syscall.ENOSPC)
	if tries != 2 {
		t.Errorf("%d tries", tries)
	}
	if err := attempt(0); err != nil || asked != 3 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
