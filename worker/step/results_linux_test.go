package step

import (
	"errors"
	"testing"
)

// What happened: a daemon that ran for long kept the records, and the output, of all results that it had pruned: results.db had 16 MiB
// for 400 results after 78,000 steps.
func TestForgetGone(t *testing.T) {
	s := newStand(t, Options{})
	gone, stays := s.ok(sh("base", "echo gone")), s.ok(sh("base", "echo stays"))
	must(t, s.namespace.Remove(s.ctx, gone.Snapshot))
	if _, err := s.Recorded(gone.ID); err != nil {
		t.Fatal(err)
	}
	must(t, s.ForgetGone(s.ctx))
	if _, err := s.Recorded(gone.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the record of what is gone: %v", err)
	}
	if res, err := s.Recorded(stays.ID); err != nil || string(res.Output) != "stays\n" {
		t.Errorf("the record of what stays: %+v, %v", res, err)
	}
}
