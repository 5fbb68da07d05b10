package snapshot_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
)

const weak = snapshot.WeakPrefix + "w"

// prunable are the names of the snapshots that can be pruned, and could be if those were pruned, despite a lease.
func prunable(t *testing.T, s *snapshot.Store, at time.Time, despite string) (names []string) {
	t.Helper()
	err := s.Read(ctx, func(m *snapshot.ReadTx) error {
		all, err := m.Candidates(at, despite)
		for err == nil {
			var c snapshot.Candidate
			var found bool
			if c, found, err = all.Next(); err != nil || !found {
				break
			}
			names = append(names, c.Name)
			err = all.Take(c)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestWeakLease: a weak lease keeps from pruning, and not from removing.
func TestWeakLease(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "one", "")
	layer(t, n, "two", "one")
	if err := n.Lease(ctx, weak, "two", time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := prunable(t, s, time.Now(), ""); len(got) != 0 {
		t.Errorf("%v can be pruned", got)
	}
	if got := prunable(t, s, time.Now(), "another"); len(got) != 0 {
		t.Errorf("%v can be pruned despite another lease", got)
	}
	for _, got := range [][]string{prunable(t, s, time.Now(), weak), prunable(t, s, time.Now().Add(2*time.Hour), "")} {
		if len(got) != 2 || got[0] != "two" {
			t.Errorf("%v can be pruned", got)
		}
	}
	// Another lease keeps it all the same.
	if err := n.Lease(ctx, "strong", "two", time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := prunable(t, s, time.Now(), weak); len(got) != 0 {
		t.Errorf("%v can be pruned", got)
	}
	want(t, "remove", n.Remove(ctx, "two"), snapshot.ErrInUse)
	if err := n.Release(ctx, "strong", "two"); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	// One without an end, which others than the Runner could take, is kept despite it: nothing says that it is left
	// over.
	if err := n.Lease(ctx, weak, "one", 0); err != nil {
		t.Fatal(err)
	}
	if got := prunable(t, s, time.Now(), weak); len(got) != 0 {
		t.Errorf("%v can be pruned", got)
	}
	if gone := pruneDespite(t, s, n, "one"); len(gone) != 0 {
		t.Errorf("%v were pruned", gone)
	}
	sound(t, s)
}

// pruneDespite prunes snapshots that may have the lease weak.
func pruneDespite(t *testing.T, s *snapshot.Store, n *snapshot.Namespace, names ...string) []snapshot.ID {
	t.Helper()
	var list []snapshot.Doomed
	for _, name := range names {
		i, err := n.Stat(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, snapshot.Doomed{ID: i.ID, LastUsed: i.LastUsed, Despite: weak})
	}
	gone, err := s.Prune(ctx, list)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

// TestPruneDespite: what is to go in spite of a lease goes with that, and its parent after it; another lease, and what
// is used meanwhile, stays as it is.
func TestPruneDespite(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "base", "")
	layer(t, n, "leaf", "base")
	layer(t, n, "strong", "")
	layer(t, n, "used", "")
	for name, leases := range map[string][]string{"base": {weak}, "leaf": {weak}, "strong": {weak, "another"}, "used": {weak}} {
		for _, lease := range leases {
			if err := n.Lease(ctx, lease, name, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	if gone, err := s.Prune(ctx, []snapshot.Doomed{{ID: 1 << 40, Despite: weak}}); err != nil || len(gone) != 0 {
		t.Errorf("%v, %v", gone, err)
	}
	before, err := n.Stat(ctx, "used")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Touch(ctx, "used"); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.Prune(ctx, []snapshot.Doomed{{ID: before.ID, LastUsed: before.LastUsed, Despite: weak}}); err != nil || len(gone) != 0 {
		t.Errorf("%v, %v", gone, err)
	}
	if held, err := n.Leases(ctx, "used"); err != nil || len(held) != 1 {
		t.Errorf("%v, %v", held, err)
	}
	if gone := pruneDespite(t, s, n, "leaf", "base", "strong"); len(gone) != 2 {
		t.Errorf("%v were pruned", gone)
	}
	sound(t, s)
}

// TestPassingLease: a snapshot takes the lease of its parent in the transaction that commits it.
func TestPassingLease(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "one", "")
	for _, lease := range []string{weak, "another"} {
		if err := n.Lease(ctx, lease, "one", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(name, parent string) {
		t.Helper()
		if _, err := n.Prepare(ctx, "active", parent); err != nil {
			t.Fatal(err)
		}
		if err := n.Commit(ctx, name, "active", snapshot.PassingLease(weak, time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	commit("two", "one")
	commit("alone", "")
	for name, lease := range map[string]string{"one": "another", "two": weak, "alone": weak} {
		held, err := n.Leases(ctx, name)
		if err != nil || len(held) != 1 || held[0].Lease != lease {
			t.Errorf("%s: %v, %v", name, held, err)
		}
	}
	commit("three", "one") // there is nothing to pass
	listed := map[string]bool{}
	err := n.Leased(ctx, weak, func(i snapshot.Info, h snapshot.Held) bool {
		listed[i.Name] = !h.Expires.IsZero() && h.Lease == weak
		return true
	})
	if err != nil || len(listed) != 3 || !listed["two"] || !listed["alone"] || !listed["three"] {
		t.Errorf("%v, %v", listed, err)
	}
	_, err = n.Prepare(ctx, "active", "", snapshot.PassingLease(weak, time.Hour))
	want(t, "prepare", err, snapshot.ErrInvalid)
	sound(t, s)
}

// TestPassingShorter: a lease that lasted an hour was taken from the parent by one of a second, and after that second
// nothing held it.
func TestPassingShorter(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	for i, c := range []struct {
		parent, child time.Duration // 0: for ever
		stays         bool
	}{{time.Hour, time.Second, true}, {time.Hour, 2 * time.Hour, false}, {0, time.Hour, true}, {time.Hour, 0, false}, {0, 0, false}} {
		parent, child := fmt.Sprintf("parent %d", i), fmt.Sprintf("child %d", i)
		layer(t, n, parent, "")
		if err := n.Lease(ctx, weak, parent, c.parent); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Prepare(ctx, "active", parent); err != nil {
			t.Fatal(err)
		}
		if err := n.Commit(ctx, child, "active", snapshot.PassingLease(weak, c.child)); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{parent: c.stays, child: true} {
			held, err := n.Leases(ctx, name)
			if err != nil || (len(held) == 1) != want || len(held) > 1 {
				t.Errorf("of %v passed to %v, %s has %v, %v", c.parent, c.child, name, held, err)
			}
		}
	}
	sound(t, s)
}

// TestUse: a use is written down, with its lease, unless that is so already.
func TestUse(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Durability: holdfast.None})
	n := namespace(t, s, "t")
	layer(t, n, "one", "")
	use := func(lease string, ttl, grain time.Duration, write bool) {
		t.Helper()
		before, err := n.Stat(ctx, "one")
		if err != nil {
			t.Fatal(err)
		}
		pages := s.Written()
		info, written, err := n.Use(ctx, "one", lease, ttl, grain)
		if err != nil || written != write || info.LastUsed.After(before.LastUsed) != write || (s.Written() > pages) != write {
			t.Errorf("lease %q of %v, grain %v: written %t, %d pages, used %v, before %v, %v", lease, ttl, grain, written, s.Written()-pages, info.LastUsed, before.LastUsed, err)
		}
		if after, err := n.Stat(ctx, "one"); err != nil || !after.LastUsed.Equal(info.LastUsed) {
			t.Errorf("used %v, and said was %v, %v", after.LastUsed, info.LastUsed, err)
		}
		sound(t, s)
	}
	use("", 0, time.Hour, false)
	use("", 0, 0, true)
	use(weak, time.Hour, time.Hour, true) // it has no lease
	use(weak, time.Hour, time.Hour, false)
	use(weak, time.Hour, time.Minute, false)
	use(weak, 2*time.Hour, time.Minute, true) // that would end before
	use(weak, time.Hour, time.Minute, false)
	use(weak, time.Nanosecond, time.Hour, false)
	use(weak, time.Hour, 0, true)
	if got := prunable(t, s, time.Now(), ""); len(got) != 0 {
		t.Errorf("%v can be pruned", got)
	}
	if _, err := s.Prune(ctx, nil); err != nil {
		t.Fatal(err)
	}
	use(weak, 0, time.Minute, true) // for ever
	use(weak, time.Hour, time.Minute, false)
	if err := n.Release(ctx, weak, "one"); err != nil {
		t.Fatal(err)
	}
	use(weak, time.Nanosecond, time.Hour, true)
	use(weak, time.Nanosecond, time.Hour, true) // it is over
	if got := prunable(t, s, time.Now(), ""); len(got) != 1 {
		t.Errorf("%v can be pruned", got)
	}
	if _, err := n.Prepare(ctx, "active", "one"); err != nil {
		t.Fatal(err)
	}
	_, _, err := n.Use(ctx, "active", weak, time.Hour, 0)
	want(t, "use of an active one", err, snapshot.ErrKind)
	_, _, err = n.Use(ctx, "none", weak, time.Hour, 0)
	want(t, "use of none", err, snapshot.ErrNotFound)
	if _, _, err = n.Use(ctx, "one", weak, -1, 0); !errors.Is(err, snapshot.ErrInvalid) {
		t.Error(err)
	}
}
