package crash

import (
	"slices"
	"time"

	"holdfast/test/soak"
)

// shrinker makes a script that fails shorter while it fails.
type shrinker struct {
	script Script
	run    func(Script) *failure
	until  time.Time
	fail   *failure // of script
}

// shrink gives a short script that fails, found in about the given time, and
// how it fails.
func shrink(s Script, fail *failure, within time.Duration, run func(Script) *failure) (Script, *failure) {
	h := &shrinker{script: s, run: run, until: time.Now().Add(within), fail: fail}
	// What a plain look finds is easier to understand.
	h.change(func(s *Script) { s.Plain = true })
	h.change(func(s *Script) { s.Steps = s.Steps[:h.fail.step+1] })
	h.change(func(s *Script) {
		for i := range s.Steps {
			s.Steps[i].Together = false
		}
	})
	h.change(func(s *Script) { s.OnlyLast = true })
	for before := ""; before != h.script.String(); {
		before = h.script.String()
		h.steps()
		h.edits()
		h.simplify()
	}
	return h.script, h.fail
}

// try takes s if it fails. Several writers at once are tried several times.
func (h *shrinker) try(s Script) bool {
	times := 1
	if slices.ContainsFunc(s.Steps, func(s Step) bool { return s.Together }) {
		times = 5
	}
	for range times {
		if time.Now().After(h.until) {
			return false
		}
		if fail := h.run(s); fail != nil {
			h.script, h.fail = s, fail
			return true
		}
	}
	return false
}

// change tries the script with a change made to it.
func (h *shrinker) change(change func(*Script)) bool {
	s := h.script
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		s.Steps[i].Edits = slices.Clone(s.Steps[i].Edits)
	}
	change(&s)
	return s.String() != h.script.String() && h.try(s)
}

func (h *shrinker) steps() {
	s := h.script
	soak.Minimize(s.Steps, func(steps []Step) bool {
		with := s
		with.Steps = slices.Clone(steps)
		return h.try(with)
	})
}

// edits leaves edits out, wherever they are.
func (h *shrinker) edits() {
	s := h.script
	type place struct{ step, edit int }
	var places []place
	for i, step := range s.Steps {
		for j := range step.Edits {
			places = append(places, place{i, j})
		}
	}
	soak.Minimize(places, func(part []place) bool {
		with := s
		with.Steps = slices.Clone(s.Steps)
		for i := range with.Steps {
			with.Steps[i].Edits = nil
		}
		for _, p := range part {
			with.Steps[p.step].Edits = append(with.Steps[p.step].Edits, s.Steps[p.step].Edits[p.edit])
		}
		return h.try(with)
	})
}

// simplify tries smaller numbers and fewer options.
func (h *shrinker) simplify() {
	for i := range h.script.Steps {
		step := func(change func(*Step)) { h.change(func(s *Script) { change(&s.Steps[i]) }) }
		step(func(s *Step) { s.Cut, s.Disk = 0, 0 })
		step(func(s *Step) { s.Kill = 0 })
		step(func(s *Step) { s.Fail, s.FailSync = 0, 0 })
		step(func(s *Step) { s.NoSync = false })
		step(func(s *Step) { s.NoFreelistSync = false })
		step(func(s *Step) { s.Rollback = false })
		step(func(s *Step) { s.Die = false })
		step(func(s *Step) { s.During = false })
		step(func(s *Step) { s.Ahead = false })
		step(func(s *Step) { s.Pages = 0 })
		step(func(s *Step) { s.Seed = 1 })
		for j := range h.script.Steps[i].Edits {
			edit := func(change func(*Edit)) bool {
				return h.change(func(s *Script) { change(&s.Steps[i].Edits[j]) })
			}
			edit(func(e *Edit) { e.Op, e.N, e.Size, e.Letter = "bucket", 0, 0, 0 })
			edit(func(e *Edit) { e.Path = e.Path[:2] })
			edit(func(e *Edit) { e.Path = "b0" })
			edit(func(e *Edit) { e.Key = min(e.Key, 1) })
			edit(func(e *Edit) { e.N = min(e.N, 1) })
			for edit(func(e *Edit) { e.N /= 2 }) {
			}
			edit(func(e *Edit) { e.Size = min(e.Size, 1) })
			for edit(func(e *Edit) { e.Size /= 2 }) {
			}
		}
	}
}
