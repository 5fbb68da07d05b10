package traces

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/bench/age/trace"
)

// A bucket is what a store has after some cycles.
type bucket struct {
	keys    map[string]bool
	buckets map[string]*bucket
}

// state does cycles and counts what was deleted and was not there.
type state struct {
	root   bucket
	absent int
}

func (s *state) do(t *trace.Trace, part []trace.Tx, cycle uint64) {
	for _, tx := range part {
		for _, e := range tx {
			s.entry(t, e, cycle)
		}
	}
}

func (s *state) entry(t *trace.Trace, e trace.Entry, cycle uint64) {
	b, path := &s.root, e.Bucket
	last := trace.Name{}
	if e.Op == trace.Drop {
		path, last = path[:len(path)-1], path[len(path)-1]
	}
	for _, n := range path {
		name := string(t.In(nil, n, cycle))
		child := b.buckets[name]
		if child == nil {
			child = &bucket{}
			if b.buckets == nil {
				b.buckets = map[string]*bucket{}
			}
			b.buckets[name] = child
		}
		b = child
	}
	switch e.Op {
	case trace.Put:
		if b.keys == nil {
			b.keys = map[string]bool{}
		}
		b.keys[string(t.In(nil, e.Key, cycle))] = true
	case trace.Delete:
		key := string(t.In(nil, e.Key, cycle))
		if !b.keys[key] {
			s.absent++
		}
		delete(b.keys, key)
	case trace.Drop:
		name := string(t.In(nil, last, cycle))
		if b.buckets[name] == nil {
			s.absent++
		}
		delete(b.buckets, name)
	}
}

// list has all keys and buckets, as paths.
func (b *bucket) list(path string) (all []string) {
	for key := range b.keys {
		all = append(all, path+strconv.Quote(key))
	}
	for name, child := range b.buckets {
		p := path + strconv.Quote(name) + "/"
		all = append(append(all, p), child.list(p)...)
	}
	slices.Sort(all)
	return all
}

// TestCycles does cycles of each trace: after each of them the store has as little as after the one before, and nothing was deleted that was
// not there, but for what the cycle before the first one would have left.
func TestCycles(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 {
		t.Errorf("there are %d traces, want 3", len(all))
	}
	for _, tr := range all {
		t.Run(strings.ReplaceAll(tr.Program, "/", "_"), func(t *testing.T) { testCycles(t, tr) })
	}
}

func testCycles(t *testing.T, tr *trace.Trace) {
	const (
		fewest = 20 // entries of a part
		most   = 60 // keys and buckets that are left: buckets that stay empty, and a few keys
	)
	for _, part := range [][]trace.Tx{tr.Make, tr.Remove} {
		entries, kinds := 0, map[trace.Op]int{}
		for _, tx := range part {
			for _, e := range tx {
				entries++
				kinds[e.Op]++
			}
		}
		t.Logf("%d transactions, %d entries: %d puts, %d deletes, %d created, %d dropped", len(part), entries,
			kinds[trace.Put], kinds[trace.Delete], kinds[trace.Create], kinds[trace.Drop])
		if entries < fewest {
			t.Errorf("a part has %d entries", entries)
		}
	}
	var s state
	var before []string
	for cycle := range uint64(6) {
		s.absent = 0
		s.do(tr, tr.Make, cycle)
		made := len(s.root.list(""))
		s.do(tr, tr.Remove, cycle)
		left := s.root.list("")
		if cycle == 0 {
			t.Logf("%d keys and buckets made, %d left", made, len(left))
		}
		if 2*len(left) > made {
			t.Errorf("cycle %d made %d and left %d", cycle, made, len(left))
		}
		if cycle > 0 && (len(left) > len(before) || s.absent > 0) {
			t.Errorf("cycle %d left %d, the one before %d; %d deleted that were not there", cycle, len(left), len(before), s.absent)
		}
		before = left
	}
	if len(before) > most {
		t.Errorf("%d keys and buckets are left", len(before))
	}
	for _, path := range before {
		t.Logf("left: %.150s", path)
	}
}
