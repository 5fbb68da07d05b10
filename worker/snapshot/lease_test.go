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
