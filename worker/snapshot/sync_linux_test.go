package snapshot_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/worker/snapshot"
)

// TestUncleanBoot: what was committed and not flushed when the machine went down is not used until
// somebody says that it is complete.
func TestUncleanBoot(t *testing.T) {
	defer snapshot.SetBootID("")
	defer snapshot.SetFlushDelay(0)
	snapshot.SetFlushDelay(time.Hour)
	root := t.TempDir()
	deferred := snapshot.Options{Sync: snapshot.SyncDeferred}
	snapshot.SetBootID("one")
	s := open(t, root, deferred)
	n := namespace(t, s, "t")
	layer(t, n, "flushed", "")
	if err := s.FlushDeferred(); err != nil {
		t.Fatal(err)
	}
	layer(t, n, "lost", "flushed")
	layer(t, n, "on lost", "lost")
	s.Crash()

	s = open(t, root, deferred) // the same boot: the page cache has it
	n = namespace(t, s, "t")
	if _, err := n.View(ctx, "view of lost", "on lost"); err != nil {
		t.Errorf("after a crash of the process: %v", err)
	}
	s.Crash()

	for _, boot := range []string{"two", "two", "three"} { // it stays so
		snapshot.SetBootID(boot)
		s = open(t, root, deferred)
		n = namespace(t, s, "t")
		for _, name := range []string{"lost", "on lost"} {
			_, err := n.Prepare(ctx, "a", name)
			want(t, "prepare on "+name, err, snapshot.ErrDistrusted)
			_, err = n.View(ctx, "a", name)
			want(t, "view of "+name, err, snapshot.ErrDistrusted)
			if info, err := n.Stat(ctx, name); err != nil || !info.Distrusted {
				t.Errorf("stat of %s: %+v, %v", name, info, err)
			}
		}
		_, err := n.Mounts(ctx, "view of lost")
		want(t, "mounts", err, snapshot.ErrDistrusted)
		layer(t, n, "new in "+boot+fmt.Sprint(len(boot)), "flushed")
		if err := n.Remove(ctx, "new in "+boot+fmt.Sprint(len(boot))); err != nil {
			t.Fatal(err)
		}
		s.Crash()
	}

	s = open(t, root, snapshot.Options{}) // another mode trusts no more
	n = namespace(t, s, "t")
	_, err := n.Prepare(ctx, "a", "on lost")
	want(t, "prepare with SyncCommit", err, snapshot.ErrDistrusted)
	if err := errors.Join(n.Trust(ctx, "lost"), n.Trust(ctx, "on lost")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Prepare(ctx, "a", "on lost"); err != nil {
		t.Errorf("after Trust: %v", err)
	}
	for _, name := range []string{"flushed", "lost", "on lost"} {
		if info, err := n.Stat(ctx, name); err != nil || info.Distrusted {
			t.Errorf("%+v, %v", info, err)
		}
	}
	sound(t, s)
}

// TestCleanBoot: after Close everything is on the disk.
func TestCleanBoot(t *testing.T) {
	defer snapshot.SetBootID("")
	defer snapshot.SetFlushDelay(0)
	snapshot.SetFlushDelay(time.Hour)
	root := t.TempDir()
	snapshot.SetBootID("one")
	s := open(t, root, snapshot.Options{Sync: snapshot.SyncDeferred})
	layer(t, namespace(t, s, "t"), "a", "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	snapshot.SetBootID("two")
	s = open(t, root, snapshot.Options{Sync: snapshot.SyncDeferred})
	if _, err := namespace(t, s, "t").Prepare(ctx, "b", "a"); err != nil {
		t.Error(err)
	}
}

// TestFlushFails: after a flush has failed nothing is committed that was begun before it.
func TestFlushFails(t *testing.T) {
	defer snapshot.SetSyncError(nil)
	defer snapshot.SetFlushDelay(0)
	snapshot.SetFlushDelay(time.Hour)
	broken := errors.New("broken")
	root := t.TempDir()
	s := open(t, root, snapshot.Options{})
	n := namespace(t, s, "t")
	for _, name := range []string{"one", "two"} {
		if _, err := n.Prepare(ctx, name, ""); err != nil {
			t.Fatal(err)
		}
	}
	snapshot.SetSyncError(func() error { return broken })
	want(t, "commit", n.Commit(ctx, "c1", "one"), broken)
	snapshot.SetSyncError(nil)
	for range 2 {
		for i, name := range []string{"one", "two"} {
			want(t, "commit of "+name, n.Commit(ctx, fmt.Sprint("c", i), name), snapshot.ErrSuspect)
		}
		layer(t, n, fmt.Sprint("begun later ", name(n)), "")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, root, snapshot.Options{}) // it is remembered
		n = namespace(t, s, "t")
	}
}

// name is one that the namespace does not have.
func name(n *snapshot.Namespace) string {
	for i := 0; ; i++ {
		if _, err := n.Stat(ctx, fmt.Sprint("begun later ", i)); err != nil {
			return fmt.Sprint(i)
		}
	}
}

// TestDeferredFlushFails: commits that were put off are distrusted, at once and later.
func TestDeferredFlushFails(t *testing.T) {
	defer snapshot.SetSyncError(nil)
	defer snapshot.SetFlushDelay(0)
	snapshot.SetFlushDelay(time.Hour)
	broken := errors.New("broken")
	root := t.TempDir()
	s := open(t, root, snapshot.Options{Sync: snapshot.SyncDeferred})
	n := namespace(t, s, "t")
	layer(t, n, "flushed", "")
	if err := s.FlushDeferred(); err != nil {
		t.Fatal(err)
	}
	layer(t, n, "lost", "flushed")
	snapshot.SetSyncError(func() error { return broken })
	want(t, "flush", s.FlushDeferred(), broken)
	snapshot.SetSyncError(nil)
	for range 2 {
		_, err := n.Prepare(ctx, "a", "lost")
		want(t, "prepare", err, snapshot.ErrDistrusted)
		if _, err := n.Prepare(ctx, "b", "flushed"); err != nil {
			t.Error(err)
		}
		if err := n.Remove(ctx, "b"); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, root, snapshot.Options{Sync: snapshot.SyncDeferred})
		n = namespace(t, s, "t")
	}
}
