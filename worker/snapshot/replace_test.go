package snapshot_test

import (
	"sync/atomic"
	"testing"

	"holdfast/worker/snapshot"
)

// TestReplacing: there is no moment at which the name is nobody's, which is looked at after each transaction.
func TestReplacing(t *testing.T) {
	var observe atomic.Pointer[func(op string)]
	s := open(t, t.TempDir(), snapshot.Options{Observe: func(op string, _ int) {
		if fn := observe.Load(); fn != nil {
			(*fn)(op)
		}
	}})
	n := namespace(t, s, "t")
	layer(t, n, "one", "")
	layer(t, n, "two", "")
	layer(t, n, "three", "two")
	view := func(parent string, options ...snapshot.Option) error {
		_, err := n.View(ctx, "name", parent, options...)
		return err
	}
	stat := func() snapshot.Info {
		t.Helper()
		info, err := n.Stat(ctx, "name")
		if err != nil {
			t.Error(err)
		}
		return info
	}
	if err := view("one", snapshot.Replacing(12345)); err != nil { // of nothing
		t.Fatal(err)
	}
	first := stat()
	want(t, "without leave", view("two"), snapshot.ErrExists)
	want(t, "of another", view("two", snapshot.Replacing(first.ID+1)), snapshot.ErrExists)
	want(t, "a parent that is not there", view("four", snapshot.Replacing(first.ID)), snapshot.ErrNotFound)
	want(t, "commit", n.Commit(ctx, "x", "name", snapshot.Replacing(first.ID)), snapshot.ErrInvalid)
	for _, hold := range []func() error{
		func() error { return n.Pin(ctx, "name") },
		func() error { return n.Lease(ctx, "l", "name", 0) },
	} {
		if err := hold(); err != nil {
			t.Fatal(err)
		}
		want(t, "one that is held", view("two", snapshot.Replacing(first.ID)), snapshot.ErrInUse)
		_, _ = n.Unpin(ctx, "name"), n.Release(ctx, "l", "name")
	}
	three, err := n.Stat(ctx, "three")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Prepare(ctx, "on it", "three"); err != nil {
		t.Fatal(err)
	}
	_, err = n.Prepare(ctx, "three", "two", snapshot.Replacing(three.ID))
	want(t, "one with a child", err, snapshot.ErrInUse)
	if err := n.Remove(ctx, "on it"); err != nil {
		t.Fatal(err)
	}
	_, err = n.Prepare(ctx, "three", "three", snapshot.Replacing(three.ID))
	want(t, "the parent itself", err, snapshot.ErrNotFound)
	if got := stat(); got.ID != first.ID || got.Parent != "one" {
		t.Errorf("after what failed it is %+v", got)
	}
	sound(t, s)

	var looks atomic.Int32
	look := func(op string) {
		if op == "stat" {
			return
		}
		looks.Add(1)
		if info := stat(); info.Parent != "one" && info.Parent != "two" {
			t.Errorf("after %q the parent is %q", op, info.Parent)
		}
	}
	observe.Store(&look)
	for i := range 20 {
		if err := view([]string{"two", "one"}[i%2], snapshot.Replacing(stat().ID), snapshot.WithLabels(map[string]string{"a": "b"})); err != nil {
			t.Fatal(err)
		}
	}
	observe.Store(nil)
	if looks.Load() < 40 {
		t.Errorf("looked %d times", looks.Load())
	}
	if err := s.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	if got := stat(); got.ID == first.ID || got.Parent != "one" || got.Labels["a"] != "b" {
		t.Errorf("it is %+v", got)
	}
	if totals, err := s.Totals(ctx); err != nil || totals.Snapshots != 4 || totals.Trash != 0 {
		t.Errorf("%+v, %v", totals, err)
	}
	sound(t, s)
}
