package age

import (
	"reflect"
	"testing"

	"holdfast/bench/age/trace"
)

func testLife() (*Life, Config) {
	c := Config{Schedule: Schedule{Days: 9, Stretches: 3, Cycles: 3, Retention: 10, Prune: 5, Opens: 2, Rounds: 2}, Commits: 100, Gets: 1}
	return NewLife(c, []*trace.Trace{Synthetic(), Synthetic()}), c
}

// TestDays: the live cycles are those that should be, a life that skips days goes on like one that lived
// them, and two programs with the same trace do not share keys.
func TestDays(t *testing.T) {
	l, c := testLife()
	var m Model
	perCycle := 0
	for day := range c.Days {
		if err := l.Day(m.Apply); err != nil {
			t.Fatal(err)
		}
		if want := []int{3, 6, 9, 10, 1, 4, 7, 10, 10}[day]; l.Live() != want {
			t.Errorf("day %d: %d cycles are live, want %d", day+1, l.Live(), want)
		}
		if day == 0 {
			perCycle = m.Keys / 3
		}
		if m.Keys != l.Live()*perCycle || perCycle != 2*40*8 {
			t.Errorf("day %d: %d keys of %d cycles", day+1, m.Keys, l.Live())
		}
	}
	other, _ := testLife()
	for range c.Days {
		other.Skip()
	}
	if !reflect.DeepEqual(l.live, other.live) || l.next != other.next {
		t.Errorf("after skipping: %v, want %v", other.live, l.live)
	}
	for len(l.live) > 0 {
		if err := l.keep(0, m.Apply); err != nil {
			t.Fatal(err)
		}
	}
	if m.Contents != (Contents{}) {
		t.Errorf("what is left of nothing is %+v", m.Contents)
	}
}

// TestUndo: what is measured in a stretch is removed before the next, though a round is longer than a trace.
func TestUndo(t *testing.T) {
	l, c := testLife()
	var m Model
	if err := l.Day(m.Apply); err != nil {
		t.Fatal(err)
	}
	before := m.Contents
	for stretch := range 2 {
		for round := range c.Rounds {
			txs := l.round(stretch, round)
			if len(txs) != c.Commits {
				t.Errorf("%d transactions in a round, want %d", len(txs), c.Commits)
			}
			for _, tx := range txs {
				if err := m.Apply(tx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if want := before.Keys + c.Rounds*c.Commits*8; m.Keys != want {
			t.Errorf("with what is measured %d keys, want %d", m.Keys, want)
		}
		if err := l.undo(stretch, m.Apply); err != nil {
			t.Fatal(err)
		}
		if m.Contents != before {
			t.Errorf("left: %+v, want %+v", m.Contents, before)
		}
	}
}

// TestRounds: each round has the same transactions, with other names.
func TestRounds(t *testing.T) {
	l, _ := testLife()
	one, two := l.round(0, 0), l.round(1, 1)
	names := map[string]bool{}
	for i := range one {
		for k := range one[i] {
			a, b := one[i][k], two[i][k]
			if a.Do != b.Do || len(a.Value) != len(b.Value) || len(a.Flat) != len(b.Flat) {
				t.Fatalf("transaction %d differs: %+v, %+v", i, a, b)
			}
			for _, op := range []Op{a, b} {
				if op.Do == trace.Put && names[string(op.Flat)] {
					t.Fatalf("%q is put twice", op.Flat)
				}
				names[string(op.Flat)] = true
			}
		}
	}
}

// TestContents: a key more, a key less, another value, and values that are exchanged are seen.
func TestContents(t *testing.T) {
	of := func(pairs ...string) (c Contents) {
		for i := 0; i < len(pairs); i += 2 {
			c.Add([]byte(pairs[i]), []byte(pairs[i+1]))
		}
		return c
	}
	want := of("a", "1", "b", "2")
	if of("b", "2", "a", "1") != want {
		t.Error("the order matters")
	}
	for _, other := range []Contents{of("a", "1"), of("a", "1", "b", "2", "b", "2"), of("a", "2", "b", "1"), of("a", "1", "b", "3"), of("1", "a", "b", "2")} {
		if other == want {
			t.Errorf("%+v is taken for %+v", other, want)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, text := range []string{"", "\x05ab", "\x01a", "\xff", "\x80", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"} {
		if op, err := Split([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, op)
		}
	}
	flat := AppendKey(AppendBucket(AppendBucket(nil, []byte("a")), []byte("\x00")), nil)
	op, err := Split(flat)
	if err != nil || len(op.Bucket) != 2 || string(op.Bucket[1]) != "\x00" || len(op.Key) != 0 {
		t.Errorf("%+v, %v", op, err)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{Quick, Full} {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		days := c.Measured()
		if days[0] != 1 || days[len(days)-1] != c.Days || len(days) != c.Stretches+1 {
			t.Errorf("measured on days %v", days)
		}
		for _, day := range days[1:] {
			if day%c.Prune != 0 {
				t.Errorf("day %d is not one after pruning: it has more keys than day 1", day)
			}
		}
	}
	bad := Quick
	bad.Stretches = bad.Days
	if bad.Check() == nil || (&Config{}).Check() == nil {
		t.Error("a configuration that cannot be is not an error")
	}
}
