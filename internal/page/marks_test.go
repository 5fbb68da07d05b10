package page

import (
	"sync"
	"testing"
)

// What a mark stands for is all that At is given, and how often its pages were written.
func TestMarks(t *testing.T) {
	type spot struct {
		at     uint64
		length int
		first  ID
		found  string
	}
	one := spot{at: 40 * 4096, length: 65_488, first: 40, found: "one"}
	set := func(m *Marks, s spot) { m.At(s.at, s.length, s.first, []byte(s.found)).Set() }
	isSet := func(m *Marks, s spot) bool { return m.At(s.at, s.length, s.first, []byte(s.found)).IsSet() }
	for name, change := range map[string]func(s *spot){
		"place":           func(s *spot) { s.at++ },
		"place far away":  func(s *spot) { s.at += markSlots << 15 },
		"length":          func(s *spot) { s.length-- },
		"found":           func(s *spot) { s.found = "onf" },
		"found, longer":   func(s *spot) { s.found += "\x00" },
		"found, nothing":  func(s *spot) { s.found = "" },
		"found, too long": func(s *spot) { s.found = string(make([]byte, maxFound+1)) },
		"empty":           func(s *spot) { s.length = 0 },
	} {
		var m Marks
		set(&m, one)
		other := one
		change(&other)
		if isSet(&m, other) || !isSet(&m, one) {
			t.Errorf("%s: it is the same mark", name)
		}
	}
	for _, c := range []struct {
		first  ID
		n      uint64
		forget bool
	}{{40, 1, true}, {32, 1, true}, {0, 41, true}, {16, 17, true}, {47, 3, true}, {31, 1, false}, {48, 100, false}, {40, 0, false}, {16, 16, false}} {
		var m Marks
		m.Written(c.first, c.n) // nothing is marked
		set(&m, one)
		before := m.At(one.at, one.length, one.first, []byte(one.found))
		if m.Written(c.first, c.n); isSet(&m, one) == c.forget {
			t.Errorf("%d pages from %d on were written: forgotten %t", c.n, c.first, !c.forget)
		}
		before.Set() // what was read before they were written
		if isSet(&m, one) == c.forget {
			t.Errorf("%d pages from %d on: what was found out before counts", c.n, c.first)
		}
		if set(&m, one); !isSet(&m, one) {
			t.Error("it cannot be marked again")
		}
	}
	var m Marks
	set(&m, one)
	if m.Written(0, 1<<62); isSet(&m, one) {
		t.Error("all pages were written, and the mark is there")
	}
	if (Mark{}).Set(); (Mark{}).IsSet() {
		t.Error("the zero Mark remembers")
	}
}

// Values next to each other have places of their own, of whatever length.
func TestMarksSide(t *testing.T) {
	for _, length := range []int{1, 500, 512, 4000, 65_488, 65_536, 1 << 20} {
		var m Marks
		at := func(i int) Mark { return m.At(uint64(i*length), length, ID(i*length/4096), nil) }
		for i := range 1000 {
			at(i).Set()
		}
		for i := range 1000 {
			if !at(i).IsSet() {
				t.Fatalf("%d bytes: mark %d is lost", length, i)
			}
		}
	}
}

func TestMarksConcurrent(t *testing.T) {
	var m Marks
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				m.At(uint64(i), 100, ID(i), []byte{byte(g)}).Set()
				m.Written(ID(i), 40)
			}
		})
	}
	wg.Wait()
}

func TestMarksFirst(t *testing.T) {
	var m Marks
	for id := FirstDataPage; id < 5000; id += 16 {
		if !m.First(id) || m.First(id) {
			t.Fatalf("page %d", id)
		}
	}
	again := 0
	for id := FirstDataPage; id < 5000; id += 16 {
		if m.First(id) {
			again++
		}
	}
	if again > 20 {
		t.Errorf("%d of 313 pages were forgotten", again)
	}
	if !m.First(1<<63 + 5) {
		t.Error("a page far away")
	}
}
