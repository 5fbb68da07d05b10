package step

import (
	"fmt"
	"maps"
	"testing"
)

// The records that a step touches do not depend on how many there are. (Those of its snapshots are counted by
// the tests of package snapshot.)
func TestRecordsTouched(t *testing.T) {
	s := newStand(t, Options{})
	count := func(n int) map[string]int {
		touched := map[string]int{}
		s.results.observe = func(op string, keys int) { touched[op] += keys }
		defer func() { s.results.observe = nil }()
		step := sh("base", fmt.Sprint("echo ", n))
		res := s.ok(step)
		s.ok(step)
		must(t, s.namespace.Remove(s.ctx, res.Snapshot))
		must(t, s.Forget(s.ctx, []string{res.Snapshot}))
		return touched
	}
	s.Runner.background.Wait()
	few := count(0)
	for i := range 5000 {
		id := ID{1, byte(i), byte(i >> 8)}
		must(t, s.results.put(id, &record{snapshot: id.Snapshot()}, []byte("x")))
	}
	many := count(1)
	if !maps.Equal(few, many) || len(few) != 3 {
		t.Errorf("%v, and with 5000 more %v", few, many)
	}
}
