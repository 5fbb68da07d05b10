package step

import (
	"context"
	"errors"
	"os"
	"testing"

	"holdfast"
	"holdfast/worker/mount"
)

// TestKeptIsNotSwept: the record of a result is there before its snapshot, and who forgets the records of results that are gone
// passes it over meanwhile, also when it was made before.
func TestKeptIsNotSwept(t *testing.T) {
	s, c := newRemoteStand(t)
	c.find = func(context.Context, ID, string) (*RemoteResult, error) {
		return &RemoteResult{Content: "content", Output: []byte("fetched\n"), Fill: func(context.Context, []mount.Mount, string) error { return nil }}, nil
	}
	fetched, swept := sh("base", "echo not run"), 0
	s.hook = func(p point, id ID) {
		if p != atRecorded {
			return
		}
		swept++
		if _, _, err := s.results.get(id); err != nil {
			t.Errorf("the record is not there before the commit: %v", err)
		}
		must(t, s.ForgetGone(s.ctx))
		must(t, s.Forget(s.ctx, []string{id.Snapshot()}))
	}
	run := sh("base", "echo run")
	run.NoCache = true
	for step, want := range map[*Step]string{&fetched: "fetched\n", &run: "run\n"} {
		s.ok(*step)
		step.NoCache = false
		if res := s.ok(*step); !res.Hit || res.Adopted || string(res.Output) != want {
			t.Errorf("%+v", res)
		}
	}
	if swept != 2 {
		t.Errorf("%d results were recorded", swept)
	}
	s.clean()
}

// TestCommitFails: a result that cannot be committed leaves no record.
func TestCommitFails(t *testing.T) {
	s := newStand(t, Options{})
	var failed ID
	s.hook = func(p point, id ID) {
		if p == atRecorded {
			failed = id
			must(t, s.namespace.Remove(s.ctx, id.running()))
		}
	}
	if res, err := s.Run(s.ctx, sh("base", "echo word"), nil); err == nil {
		t.Errorf("%+v", res)
	}
	if _, err := s.Recorded(failed); err == nil {
		t.Error("a result that failed has a record")
	}
	s.hook = nil
	s.clean()
}

// TestAdoptedLate: a hit of a result that was replaced meanwhile made a record of it in the place of that of the new result, whose
// output was lost.
func TestAdoptedLate(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "echo word")
	first := s.ok(step)
	info, err := s.namespace.Stat(s.ctx, first.Snapshot)
	must(t, err)
	step.NoCache = true
	adopted := make(chan *Result, 1)
	s.hook = func(p point, id ID) {
		if p != atRecorded {
			return
		}
		if _, _, err := s.recordOf(id, &info); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		go func() {
			res, err := s.adopt(s.ctx, id, &info)
			if err != nil {
				t.Error(err)
			}
			adopted <- res
		}()
	}
	s.ok(step)
	s.hook = nil
	if res := <-adopted; res != nil {
		t.Errorf("adopted although it was replaced: %+v", res)
	}
	step.NoCache = false
	if res := s.ok(step); !res.Hit || res.Adopted || string(res.Output) != "word\n" {
		t.Errorf("%+v", res)
	}
	s.clean()
}

// TestFetchedUnrecorded: a result that was fetched and committed, and whose record could not be written, was made once more by
// running the step.
func TestFetchedUnrecorded(t *testing.T) {
	s, c := newRemoteStand(t)
	c.find = func(context.Context, ID, string) (*RemoteResult, error) {
		return &RemoteResult{Content: "content", Output: []byte("fetched\n"), Fill: func(context.Context, []mount.Mount, string) error { return nil }}, nil
	}
	s.hook = func(p point, _ ID) {
		if p == atEnded {
			t.Error("the step was run")
		}
	}
	step := sh("base", "echo run")
	must(t, s.results.db.Close())
	if res, err := s.Run(s.ctx, step, nil); !errors.Is(err, holdfast.ErrDatabaseNotOpen) {
		t.Errorf("%+v, %v", res, err)
	}
	s.close()
	s.open()
	if res := s.ok(step); !res.Hit || !res.Adopted || res.From != "" {
		t.Errorf("%+v", res)
	}
	s.clean()
}

// TestCommitUnknown: of a commit that metadata.db may have or not, the output was lost.
func TestCommitUnknown(t *testing.T) {
	s := newStand(t, Options{})
	s.close()
	s.dur = holdfast.Full
	s.open()
	var kept ID
	s.hook = func(p point, id ID) {
		if p != atRecorded {
			return
		}
		kept = id
		info, err := os.Stat(s.store.Database().Path())
		must(t, err)
		must(t, os.Truncate(s.store.Database().Path(), info.Size()-1)) // nothing that is read
	}
	if res, err := s.Run(s.ctx, sh("base", "echo word"), nil); !errors.Is(err, holdfast.ErrStopped) {
		t.Errorf("%+v, %v", res, err)
	}
	if _, out, err := s.results.get(kept); err != nil || string(out) != "word\n" {
		t.Errorf("%q, %v", out, err)
	}
	must(t, s.Runner.Close())
	must(t, s.mounts.Close(s.ctx))
	_ = s.store.Close() // which has stopped
	s.Runner, s.store = nil, nil
}
