package soak

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestMinimize looks for sets that are needed together.
func TestMinimize(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		list := make([]int, 1+r.IntN(60))
		for i := range list {
			list[i] = i
		}
		var needed []int
		for i := range list {
			if r.IntN(12) == 0 {
				needed = append(needed, i)
			}
		}
		calls := 0
		got := Minimize(list, func(part []int) bool {
			calls++
			for _, n := range needed {
				if !slices.Contains(part, n) {
					return false
				}
			}
			return true
		})
		if !slices.Equal(got, needed) {
			t.Fatalf("%v is left, want %v", got, needed)
		}
		if most := 4 * (len(needed) + 1) * (len(list) + 8); calls > most {
			t.Fatalf("%d calls for %d of %d elements, want %d at most", calls, len(needed), len(list), most)
		}
	}
}

// TestMinimizeEither finds one of two reasons, whole.
func TestMinimizeEither(t *testing.T) {
	got := Minimize([]int{1, 2, 3, 4, 5, 6, 7, 8, 9}, func(part []int) bool {
		return slices.Contains(part, 2) && slices.Contains(part, 8) || slices.Contains(part, 5) && slices.Contains(part, 6)
	})
	if !slices.Equal(got, []int{2, 8}) && !slices.Equal(got, []int{5, 6}) {
		t.Fatalf("%v is left", got)
	}
}

func TestFor(t *testing.T) {
	var ran atomic.Int64
	var out strings.Builder
	For(time.Hour, 7, &out, func() string { return "all" }, func(seed uint64) bool {
		ran.Add(1)
		return seed < 40
	})
	if ran.Load() < 34 || !strings.Contains(out.String(), "histories: all") {
		t.Errorf("%d histories, %q", ran.Load(), out.String())
	}
	For(0, 7, &out, func() string { return "" }, func(uint64) bool {
		t.Error("a history is run in no time")
		return true
	})
}

func TestSeeds(t *testing.T) {
	for _, test := range []struct {
		seed, histories string
		want            []uint64
		chosen          bool
	}{
		{"", "", []uint64{5, 6}, false},
		{"9", "", []uint64{9}, true},
		{"9", "3", []uint64{9, 10, 11}, true},
		{"", "3", []uint64{5, 6, 7}, true},
	} {
		t.Setenv("HOLDFAST_SEED", test.seed)
		t.Setenv("HOLDFAST_HISTORIES", test.histories)
		seeds, chosen := Seeds(t, 5, 2)
		if !slices.Equal(seeds, test.want) || chosen != test.chosen {
			t.Errorf("%q, %q: %v %v", test.seed, test.histories, seeds, chosen)
		}
	}
}

func TestTally(t *testing.T) {
	var c Tally
	c.Add("b", "a")
	c.Add("a")
	if c.Get("a") != 2 || c.Get("none") != 0 || c.String() != "b 1, a 2" {
		t.Error(c.String())
	}
}
