package step

import (
	"errors"
	"testing"
)

// A daemon has steps of both runtimes, and of no user namespace, on one store: each is a result of its own, which the same step finds.
func TestRuntimeOfAStep(t *testing.T) {
	s := newStand(t, Options{})
	ways := map[string]Step{
		"default":   {},
		"native":    {Runtime: Native()},
		"runc":      {Runtime: Runc()},
		"no userns": {UserNamespaces: UserNamespacesOff},
	}
	ids := map[string]ID{}
	for name, one := range ways {
		one.Base, one.Command = "base", []string{"/bin/sh", "-c", "cat /proc/self/uid_map"}
		res, err := s.Run(s.ctx, one, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := s.Run(s.ctx, one, nil)
		if err != nil || !again.Hit || again.ID != res.ID {
			t.Errorf("%s: again %+v, %v", name, again, err)
		}
		ids[name] = res.ID
	}
	if ids["default"] != ids["native"] || ids["runc"] == ids["native"] {
		t.Errorf("ids %v", ids)
	}
	if mapped := s.way().ids.Set(); mapped != (ids["no userns"] != ids["native"]) {
		t.Errorf("ids are mapped: %v; %v", mapped, ids)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Run(s.ctx, Step{Base: "base", Command: []string{"/bin/true"}, Runtime: runc{program: "another"}}, nil)
	if !errors.Is(err, ErrClosed) {
		t.Errorf("a runtime that is asked for after Close: %v", err)
	}
}
