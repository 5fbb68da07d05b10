package snapshot_test

import (
	"math"
	"testing"
	"time"

	"holdfast/worker/snapshot"
)

// TestLongLease: the end of a lease of the longest time was said to be in the year 1734.
func TestLongLease(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "one", "")
	if err := n.Lease(ctx, "long", "one", math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	held, err := n.Leases(ctx, "one")
	if err != nil || len(held) != 1 || held[0].Expires.Before(time.Now().AddDate(200, 0, 0)) {
		t.Errorf("%v, %v", held, err)
	}
	if err := s.ExpireLeases(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, "remove", n.Remove(ctx, "one"), snapshot.ErrInUse)
	sound(t, s)
}

// TestHold: what is held is a use, and not removed until all have released it; another of its name is not held.
func TestHold(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	if _, err := n.Prepare(ctx, "one", ""); err != nil {
		t.Fatal(err)
	}
	before, err := n.Stat(ctx, "one")
	want(t, "stat", err, nil)
	var releases []func()
	for range 2 {
		release, err := n.Hold(ctx, "one")
		want(t, "hold", err, nil)
		releases = append(releases, release)
	}
	if after, err := n.Stat(ctx, "one"); err != nil || !after.LastUsed.After(before.LastUsed) {
		t.Errorf("%v, %v, %v", before.LastUsed, after.LastUsed, err)
	}
	for _, release := range releases {
		want(t, "remove", n.Remove(ctx, "one"), snapshot.ErrInUse)
		_, err := n.Prepare(ctx, "one", "", snapshot.Replacing(before.ID))
		want(t, "replace", err, snapshot.ErrInUse)
		release()
	}
	want(t, "remove", n.Remove(ctx, "one"), nil)
	_, err = n.Hold(ctx, "one")
	want(t, "hold", err, snapshot.ErrNotFound)
	sound(t, s)
}
