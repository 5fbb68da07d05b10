package step

import (
	"context"
	"sync/atomic"
	"testing"

	"holdfast/worker/mount"
)

// TestNoCacheMeanwhile: a step whose result was made by a run with NoCache while it ran failed, though its command succeeded: its
// result had no name.
func TestNoCacheMeanwhile(t *testing.T) {
	s := newStand(t, Options{Concurrency: 2})
	step := sh("base", "echo said")
	stopped, goOn := make(chan struct{}), make(chan struct{})
	var second atomic.Bool
	s.hook = func(at point, _ ID) {
		if at == atUnmounted && !second.Swap(true) {
			close(stopped)
			<-goOn
		}
	}
	type ended struct {
		*Result
		err error
	}
	first := make(chan ended, 1)
	go func() {
		res, err := s.Run(s.ctx, step, nil)
		first <- ended{res, err}
	}()
	<-stopped // it is about to commit
	again := step
	again.NoCache = true
	res := s.ok(again)
	close(goOn)
	got := <-first
	if got.err != nil || string(got.Output) != "said\n" || got.Uncached == "" || got.Snapshot == res.Snapshot {
		t.Fatalf("%+v, %v", got.Result, got.err)
	}
	if hit := s.ok(step); !hit.Hit || hit.Snapshot != res.Snapshot {
		t.Errorf("%+v", hit)
	}
	s.clean()
}

// TestNoCacheWhileFetched: a result that is fetched while a run with NoCache makes one is a hit of that.
func TestNoCacheWhileFetched(t *testing.T) {
	s, c := newRemoteStand(t)
	step := sh("base", "echo run")
	c.find = func(ctx context.Context, _ ID, base string) (*RemoteResult, error) {
		return &RemoteResult{From: "a registry", Content: "content", Fill: func(context.Context, []mount.Mount, string) error {
			again := step
			again.NoCache = true
			s.ok(again)
			return nil
		}}, nil
	}
	if res := s.ok(step); !res.Hit || res.From != "" || string(res.Output) != "run\n" {
		t.Errorf("%+v", res)
	}
	s.clean()
}

// TestAdoptOnce: who adopts a result keeps the record that its run has written meanwhile, with the output.
func TestAdoptOnce(t *testing.T) {
	s := newStand(t, Options{})
	made := s.ok(sh("base", "echo said"))
	info, err := s.namespace.Stat(s.ctx, made.Snapshot)
	must(t, err)
	for range 2 {
		if res, err := s.adopt(s.ctx, made.ID, &info); err != nil || res.Adopted || string(res.Output) != "said\n" {
			t.Errorf("%+v, %v", res, err)
		}
	}
	must(t, s.results.drop([]ID{made.ID}, 1<<63))
	if res, err := s.adopt(s.ctx, made.ID, &info); err != nil || !res.Adopted || len(res.Output) > 0 {
		t.Errorf("%+v, %v", res, err)
	}
	s.clean()
}

// TestRecordOfEarlier: what a step had printed was said to be the output of a result that has replaced that, when the process had ended
// between its commit and its record: in logs, and in what a remote cache is told.
func TestRecordOfEarlier(t *testing.T) {
	s := newStand(t, Options{})
	made := s.ok(sh("base", "echo first"))
	if res, err := s.Recorded(made.ID); err != nil || string(res.Output) != "first\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	must(t, s.namespace.Remove(s.ctx, made.Snapshot))
	if res, err := s.Recorded(made.ID); err != nil || string(res.Output) != "first\n" { // until it is forgotten
		t.Errorf("%+v, %v", res, err)
	}
	_, err := s.namespace.Prepare(s.ctx, "second", "base")
	must(t, err)
	must(t, s.namespace.Commit(s.ctx, made.Snapshot, "second"))
	if res, err := s.Recorded(made.ID); err == nil {
		t.Errorf("%+v", res)
	}
}
