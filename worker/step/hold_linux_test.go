package step

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
)

// pruneAll removes all that can be pruned, whatever its age and size, and returns the names.
func (s *stand) pruneAll() (names []string) {
	s.Helper()
	before := s.allResults()
	p, err := prune.New(s.store, prune.Options{Config: prune.Config{Policies: []prune.Policy{{All: true}}}})
	must(s, err)
	_, err = p.Run(s.ctx)
	must(s, err)
	after := s.allResults()
	return slices.DeleteFunc(before, func(name string) bool { return slices.Contains(after, name) })
}

// allResults are the names of the results that are there.
func (s *stand) allResults() (names []string) {
	s.Helper()
	must(s, s.namespace.WalkPrefix(s.ctx, ResultPrefix, func(i snapshot.Info) error {
		names = append(names, i.Name)
		return nil
	}))
	return names
}

// held tells whether there is a HoldLease on a snapshot that has not expired.
func (s *stand) held(name string) (found bool) {
	s.Helper()
	must(s, s.namespace.Leased(s.ctx, HoldLease, func(i snapshot.Info, h snapshot.Held) bool {
		found = found || i.Name == name
		return true
	}))
	return found
}

// TestHitIsHeld: what a hit had given could be pruned before the next step on it began, which then had no base.
func TestHitIsHeld(t *testing.T) {
	natives(t, func(s *stand) {
		s.close()
		s.opt.Hold = -1
		s.open()
		first := s.ok(sh("base", "echo first >/first"))
		if s.held(first.Snapshot) {
			s.Error("it is held by a Runner that holds nothing")
		}
		s.close()
		s.opt.Hold = 0
		s.open()
		if again := s.ok(sh("base", "echo first >/first")); !again.Hit {
			s.Fatalf("%+v", again)
		}
		if gone := s.pruneAll(); len(gone) > 0 {
			s.Fatalf("pruned before the next step: %v", gone)
		}
		// It has the lease until the next result is there, also if the step on it fails.
		_ = s.fails(sh(first.Snapshot, "false"), ErrExit)
		if gone := s.pruneAll(); len(gone) > 0 {
			s.Fatalf("pruned after a step on it has failed: %v", gone)
		}
		second := s.ok(sh(first.Snapshot, "cat /first"))
		if s.held(first.Snapshot) || !s.held(second.Snapshot) {
			s.Errorf("held: the base %t, the result %t", s.held(first.Snapshot), s.held(second.Snapshot))
		}
		if gone := s.pruneAll(); len(gone) > 0 {
			s.Errorf("pruned: %v", gone)
		}
		// Removing does not heed it, and the base is as free as it was.
		must(s, s.namespace.Remove(s.ctx, second.Snapshot))
		if gone := s.pruneAll(); !slices.Equal(gone, []string{first.Snapshot}) {
			s.Errorf("pruned: %v", gone)
		}
		s.clean()
	})
}

// TestShorterHold: a step that held its result for a moment only took the hour away for which its base had
// been promised to others.
func TestShorterHold(t *testing.T) {
	s := newStand(t, Options{})
	first := s.ok(sh("base", "true"))
	s.close()
	s.opt.Hold = time.Nanosecond
	s.open()
	second := s.ok(sh(first.Snapshot, "true"))
	if gone := s.pruneAll(); !slices.Equal(gone, []string{second.Snapshot}) || !s.held(first.Snapshot) {
		t.Errorf("pruned: %v; the first is held: %t", gone, s.held(first.Snapshot))
	}
	s.clean()
}

// TestHoldExpires: what is held becomes free by itself, also after the process that holds it has ended.
func TestHoldExpires(t *testing.T) {
	s := newStand(t, Options{Hold: time.Nanosecond})
	res := s.ok(sh("base", "true"))
	if again := s.ok(sh("base", "true")); !again.Hit {
		t.Fatalf("%+v", again)
	}
	s.close()
	s.open()
	if gone := s.pruneAll(); !slices.Equal(gone, []string{res.Snapshot}) {
		t.Errorf("pruned: %v", gone)
	}
	s.clean()
}

// TestHeldIsReplaced: a result that is held gives way to the one of a run in its place.
func TestHeldIsReplaced(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "true")
	first := s.ok(step)
	if again := s.ok(step); !again.Hit || !s.held(first.Snapshot) {
		t.Fatalf("%+v, held %t", again, s.held(first.Snapshot))
	}
	before, err := s.namespace.Stat(s.ctx, first.Snapshot)
	must(t, err)
	step.NoCache = true
	if again := s.ok(step); again.Snapshot != first.Snapshot || again.Uncached != "" {
		t.Errorf("%+v", again)
	}
	after, err := s.namespace.Stat(s.ctx, first.Snapshot)
	if err != nil || after.ID == before.ID || !s.held(first.Snapshot) {
		t.Errorf("%v and %v, %v", before.ID, after.ID, err)
	}
	s.clean()
}

func init() {
	helpers["hold"] = func() {
		ctx := context.Background()
		base = os.Getenv("TMPDIR")
		s := &stand{ctx: ctx, dir: os.Getenv(envDir)}
		s.prepare()
		if err := s.tryOpen(); err != nil {
			panic(err)
		}
		if _, err := s.Run(ctx, sh("base", "true"), nil); err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString("answered\n")
		select {}
	}
}

// TestHoldOfKilled: a process that is killed after its answer leaves the result held, so that the next one
// can stand on it, and not for ever.
func TestHoldOfKilled(t *testing.T) {
	s := newStand(t, Options{})
	s.close()
	s.Runner, s.store = nil, nil
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envHelper+"=hold", envDir+"="+s.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line := make([]byte, len("answered\n"))
	_, err = out.Read(line)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || string(line) != "answered\n" {
		t.Fatalf("%q, %v", line, err)
	}
	s.open()
	if gone := s.pruneAll(); len(gone) > 0 || len(s.allResults()) != 1 {
		t.Errorf("pruned: %v; there are %v", gone, s.allResults())
	}
	name := s.allResults()[0]
	leases, err := s.namespace.Leases(s.ctx, name)
	if err != nil || len(leases) != 1 || leases[0].Expires.IsZero() || time.Until(leases[0].Expires) > DefaultHold {
		t.Errorf("%+v, %v", leases, err)
	}
	must(t, s.namespace.Remove(s.ctx, name))
	s.clean()
}

// TestHitsWriteNothing: only the first hit in a while writes down that the result is used and held, and
// until when. (That no transaction writes otherwise is tested in package snapshot.)
func TestHitsWriteNothing(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "true")
	name := s.ok(step).Snapshot
	look := func() (used, until time.Time) {
		t.Helper()
		info, err := s.namespace.Stat(s.ctx, name)
		must(t, err)
		leases, err := s.namespace.Leases(s.ctx, name)
		must(t, err)
		if len(leases) != 1 {
			t.Fatalf("%+v", leases)
		}
		return info.LastUsed, leases[0].Expires
	}
	used, until := look()
	for range 10 {
		if res := s.ok(step); !res.Hit {
			t.Fatalf("%+v", res)
		}
	}
	if again, still := look(); !again.Equal(used) || !still.Equal(until) {
		t.Errorf("used %v and held until %v; before, %v and %v", again, still, used, until)
	}
	must(t, s.namespace.Release(s.ctx, HoldLease, name))
	s.ok(step)
	if again, still := look(); !again.After(used) || !still.After(until) {
		t.Errorf("used %v and held until %v; before, %v and %v", again, still, used, until)
	}
}

// TestHoldOfMissing: the base of a step is missed as before if it was removed while it was held.
func TestHoldOfMissing(t *testing.T) {
	s := newStand(t, Options{})
	res := s.ok(sh("base", "true"))
	must(t, s.namespace.Remove(s.ctx, res.Snapshot))
	if _, err := s.Run(s.ctx, sh(res.Snapshot, "true"), nil); !errors.Is(err, snapshot.ErrNotFound) || !strings.Contains(err.Error(), res.Snapshot) {
		t.Error(err)
	}
}
