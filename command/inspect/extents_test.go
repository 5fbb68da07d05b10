package inspect

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Each extent is in the class of its length, and the classes have all of them.
func TestHistogram(t *testing.T) {
	r := freeReport{PageSize: 512, SizeBytes: 512 << 20}
	random := rand.New(rand.NewPCG(7, 1))
	var lengths []int64
	for range 3000 {
		lengths = append(lengths, 1+random.Int64N(1<<random.IntN(20)))
	}
	lengths = append(lengths, 1, 2, 3, 4, 7, 8, 15, 16, 1<<19-1, 1<<19, 1<<40)
	var pages, longest int64
	for _, n := range lengths {
		r.add(n)
		pages += n
		longest = max(longest, n)
	}
	if r.Extents != int64(len(lengths)) || r.FreePages != pages || r.FreeBytes != pages*512 || r.Longest != longest {
		t.Errorf("got %+v", r)
	}
	if len(r.Classes) != 41 {
		t.Errorf("%d classes up to %d pages", len(r.Classes), longest)
	}
	next := int64(1)
	for _, c := range r.Classes {
		var extents, pages int64
		for _, n := range lengths {
			if c.From <= n && n <= c.To {
				extents++
				pages += n
			}
		}
		if c.From != next || c.Extents != extents || c.Pages != pages || c.Bytes != pages*512 {
			t.Errorf("class %+v behind %d, want %d extents of %d pages", c, next-1, extents, pages)
		}
		next = c.To + 1
	}
}

func TestBars(t *testing.T) {
	for _, c := range []struct {
		part, whole int64
		want        int
	}{{0, 0, 0}, {0, 5, 0}, {5, 5, barWidth}, {1, 1 << 40, 1}, {1, 2, barWidth / 2}} {
		if got := bar(c.part, c.whole); got != c.want {
			t.Errorf("bar(%d, %d) is %d, want %d", c.part, c.whole, got, c.want)
		}
	}
	r := freeReport{PageSize: 512}
	if rows := r.rows(); rows[1][1] != "none" || len(r.histogram("#")) != 1 {
		t.Errorf("nothing is free: %v", rows)
	}
	r.add(3)
	r.add(1)
	var lines []string
	for _, line := range r.histogram("*") {
		lines = append(lines, strings.Join(line, "|"))
	}
	if got, want := strings.Join(lines[1:], "\n"), "  1|1|1|512 B|25%    ********\n  2-3|1|3|1.5 KiB|75%    ***********************"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
