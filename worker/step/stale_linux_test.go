package step

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdfast/worker/snapshot"
)

// A hit showed what an earlier run had printed, with what a later one had left, when the process had ended
// between the commit of the later result and its record, and at that moment also to steps that asked. So it
// was when an older results.db or metadata.db was put back.
func TestRecordIsOfItsResult(t *testing.T) {
	s := newStand(t, Options{})
	n := "0"
	step := func() Step {
		must(t, os.WriteFile(filepath.Join(s.dir, "n"), []byte(n), 0o644))
		step := sh("base", "cat /c/n; cat /c/n >/n")
		step.Mounts = []Mount{{Cache: "n", Target: "/c"}}
		return step
	}
	first := step()
	put := func(text string) {
		n = text
		fill := sh("base", "echo "+text+" >/c/n")
		fill.Mounts = first.Mounts
		s.ok(fill)
	}
	check := func(when string) {
		t.Helper()
		if _, err := s.Lookup(s.ctx, first); err != nil && !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		res := s.ok(first)
		tree := s.read(res.Snapshot, "n")
		if !res.Hit || !res.Adopted && string(res.Output) != tree || res.Adopted && len(res.Output) > 0 {
			t.Errorf("%s: hit %t, adopted %t, printed %q, and left %q", when, res.Hit, res.Adopted, res.Output, tree)
		}
	}
	put("1")
	s.ok(first)
	check("first")
	put("2")
	again := first
	again.NoCache = true
	s.hook = func(p point, _ ID) {
		if p == atCommitted {
			s.hook = nil
			check("before the record")
		}
	}
	s.ok(again)
	check("after it")
	old, _, err := s.results.get(s.ok(first).ID)
	must(t, err)
	put("3")
	s.ok(again)
	must(t, s.results.put(s.ok(first).ID, &old, []byte("2\n")))
	check("with an older record")
	s.ok(again)
	older := old
	older.flags, older.layer = 0, 0
	must(t, s.results.put(s.ok(first).ID, &older, []byte("2\n")))
	check("with a record that does not know its snapshot")
	s.clean()
}

// A result whose directory was gone, as after an older metadata.db was put back, was a hit for ever:
// nothing could be copied out of it, and no step run on it.
func TestResultIsMissing(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "echo x | cat >/x; echo y")
	res := s.ok(step)
	info, err := s.namespace.Stat(s.ctx, res.Snapshot)
	must(t, err)
	must(t, s.mounts.DropIdle(s.ctx))
	must(t, os.RemoveAll(filepath.Join(s.root(), "snapshots", info.ID.String())))
	if _, err := s.Lookup(s.ctx, step); !errors.Is(err, snapshot.ErrMissing) {
		t.Error(err)
	}
	if res = s.ok(step); res.Hit || string(res.Output) != "y\n" || s.read(res.Snapshot, "x") != "x\n" {
		t.Errorf("%+v", res)
	}
	if res = s.ok(step); !res.Hit {
		t.Errorf("%+v", res)
	}
	s.clean()
}
