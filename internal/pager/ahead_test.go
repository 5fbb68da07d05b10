package pager_test

import (
	"math"
	"slices"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// hinted is a file that notes what is prefetched of its mapping.
type hinted struct {
	vfs.File
	ranges [][2]int64
}

type hintedMapping struct {
	vfs.Mapping
	f *hinted
}

func (f *hinted) Map(n int64, o vfs.MapOptions) (vfs.Mapping, error) {
	m, err := f.File.Map(n, o)
	return hintedMapping{m, f}, err
}

func (m hintedMapping) Prefetch(off, n int64) { m.f.ranges = append(m.f.ranges, [2]int64{off, n}) }

// The system is told of a run once, of so many bytes, within the state, and of nothing outside of it.
func TestAhead(t *testing.T) {
	f := &hinted{File: vfs.NewMem("ahead").Open()}
	p, err := pager.Open(f, pager.Options{PageSize: 4096, PlainDelay: -1, Scan: scan})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(pager.CloseOptions{})
	replace(t, p, false, 100, nil)
	snap, err := p.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	s := snap.Value()
	high := int64(s.Meta.HighWater)
	for _, c := range []struct {
		id     page.ID
		length int
		want   [2]int64
	}{
		{10, 65488, [2]int64{10 * 4096, 65536}},
		{page.ID(high - 1), 65488, [2]int64{(high - 1) * 4096, 4096}},
		{20, math.MaxInt, [2]int64{20 * 4096, 256 << 10}},
		{page.ID(high), 65488, [2]int64{}},
		{1<<52 + 7, 65488, [2]int64{}}, // times 4096: 7 pages
		{math.MaxUint64, 65488, [2]int64{}},
	} {
		f.ranges = nil
		s.Ahead(c.id, c.length)
		s.Ahead(c.id, c.length)
		var want [][2]int64
		if c.want[1] > 0 {
			want = [][2]int64{c.want}
		}
		if !slices.EqualFunc(f.ranges, want, func(a, b [2]int64) bool { return a[0] == b[0] && a[1] >= b[1] && a[1] < b[1]+4096 }) {
			t.Errorf("page %d, %d bytes: %d, want %d", c.id, c.length, f.ranges, want)
		}
	}
}
