package space

import (
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// What a Loader that has free pages refuses, and the page that it names.
func TestLoadErrors(t *testing.T) {
	put, take := (*Loader).Put, (*Loader).Take
	putBit := func(l *Loader, e page.Extent) error {
		bits := make([]byte, e.Start/8+1)
		bits[e.Start/8] |= 1 << (e.Start % 8)
		return l.PutBits(bits)
	}
	for _, c := range []struct {
		do func(*Loader, page.Extent) error
		e  page.Extent
		id page.ID
	}{
		{put, ext(20, 0), 20}, {put, ext(0, 1), 0}, {put, ext(1, 3), 1}, {put, ext(100, 1), 100}, {put, ext(98, 3), 100},
		{put, ext(14, 1), 14}, {put, ext(5, 20), 10}, {put, ext(12, 1<<63), 100}, {put, ext(50, ^uint64(0)), 100},
		{put, ext(^uint64(0), 1), page.NoFreelist}, {put, ext(^uint64(0), ^uint64(0)), page.NoFreelist},
		{take, ext(20, 0), 20}, {take, ext(0, 1), 0}, {take, ext(9, 3), 9}, {take, ext(100, 1), 100}, {take, ext(98, 3), 98},
		{take, ext(12, 5), 15}, {take, ext(12, 1<<63), 12}, {take, ext(12, ^uint64(0)), 12}, {take, ext(^uint64(0), 1), page.NoFreelist},
		{putBit, ext(0, 1), 0}, {putBit, ext(1, 1), 1}, {putBit, ext(100, 1), 100}, {putBit, ext(104, 1), 104},
		{putBit, ext(5000, 1), 5000}, {putBit, ext(11, 1), 0},
	} {
		l := Load(100)
		if err := l.Put(ext(10, 5)); err != nil {
			t.Fatal(err)
		}
		wantCorrupt(t, c.do(l, c.e), c.id)
	}
	// Bytes of no pages are harmless.
	l := Load(100)
	if err := l.PutBits(make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	if s := l.Space(); s.FreeCount() != 0 || checkInside(s) != nil {
		t.Fatalf("%d free pages, %v", s.FreeCount(), checkInside(s))
	}
}

// A file may claim any number of pages: what is loaded costs no memory for them.
func TestLoadOfAnAbsurdFile(t *testing.T) {
	for _, high := range []page.ID{1 << 50, 1 << 62, ^page.ID(0)} {
		l := Load(high)
		for _, e := range []page.Extent{ext(2, 1<<49), ext(1<<49+3, 7)} {
			if err := l.Put(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Take(ext(1<<20, 1<<40)); err != nil {
			t.Fatal(err)
		}
		s := l.Space()
		if err := checkInside(s); err != nil {
			t.Fatal(err)
		}
		if got, want := s.FreeCount(), uint64(1<<49+7-1<<40); got != want {
			t.Fatalf("%d free pages, want %d", got, want)
		}
		if n := bytesOf(s); n > 100_000 {
			t.Errorf("%d bytes", n)
		}
	}
}

// Subtrees that become uniform again are uniform at once: so what turns all pages of a
// large file time and again, in a few bytes each time, takes no time.
func TestLoadGathers(t *testing.T) {
	const high = 1 << 24
	l := Load(high)
	for id := uint64(2); id < high; id += leafPages / 2 {
		if err := l.Put(ext(id, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for id := uint64(2); id < high; id += leafPages / 2 {
		if err := l.Put(ext(id+1, leafPages/2-1)); err != nil && id+leafPages/2 <= high {
			t.Fatal(err)
		}
		if id+leafPages > high {
			break
		}
	}
	memory := func() int { return int(bytesOf(l.space)) }
	before := memory()
	all := ext(leafPages, high-3*leafPages)
	for turn := range 100_000 {
		change := l.Take
		if turn%2 == 1 {
			change = l.Put
		}
		if err := change(all); err != nil {
			t.Fatal(err)
		}
	}
	if now := memory(); now > before/10 {
		t.Errorf("%d bytes, %d when each leaf had memory", now, before)
	}
	s := l.Space()
	if err := checkInside(s); err != nil {
		t.Fatal(err)
	}
}

// A set loaded from bits and changes is the set that the changes make one by one; and
// its bits and the count of its runs are those of the set.
func TestLoadAndSave(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		high := page.ID(3 + rng.IntN(40_000))
		truth := make([]bool, high)
		bits := make([]byte, (int(high)+7)/8)
		for id := page.ID(2); id < high; {
			n := min(page.ID(1+rng.IntN(1+rng.IntN(5000))), high-id)
			for ; n > 0 && rng.IntN(3) > 0; n-- {
				truth[id] = true
				bits[id/8] |= 1 << (id % 8)
				id++
			}
			id += n + 1
		}
		l := Load(high)
		if err := l.PutBits(bits); err != nil {
			t.Fatal(err)
		}
		for range rng.IntN(300) {
			id := page.ID(2 + rng.IntN(int(high)-2))
			e := page.Extent{Start: id}
			for limit := 1 + rng.IntN(1+rng.IntN(6000)); id < high && truth[id] == truth[e.Start] && e.N < uint64(limit); id++ {
				e.N++
			}
			change := l.Put
			if truth[e.Start] {
				change = l.Take
			}
			if err := change(e); err != nil {
				t.Fatal(err)
			}
			for id := e.Start; id < e.End(); id++ {
				truth[id] = !truth[id]
			}
		}
		s := l.Space()
		if err := checkInside(s); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var want []page.Extent
		for id, free := range truth {
			if last := len(want) - 1; !free {
				continue
			} else if last >= 0 && want[last].End() == page.ID(id) {
				want[last].N++
			} else {
				want = append(want, ext(uint64(id), 1))
			}
		}
		if got := slices.Collect(s.Free()); !slices.Equal(got, want) {
			t.Fatalf("seed %d: other runs", seed)
		}
		if n := s.UnusedRuns(); n != uint64(len(want)) {
			t.Fatalf("seed %d: %d runs, want %d", seed, n, len(want))
		}
		// Some pages are pending: to who opens the file they are as free as the others.
		s.Pin(1)
		x := s.Begin(2)
		for id, free := range truth {
			if id >= 2 && !free && rng.IntN(3) == 0 {
				mustFree(t, x, ext(uint64(id), 1))
			}
		}
		x.Commit()
		unused := slices.Collect(s.Unused())
		if n := s.UnusedRuns(); n < uint64(len(unused)) {
			t.Fatalf("seed %d: at most %d runs, and there are %d", seed, n, len(unused))
		}
		again := Load(high)
		saved := s.AppendUnusedBits([]byte{7})
		if len(saved) != 1+(int(high)+7)/8 || saved[0] != 7 {
			t.Fatalf("seed %d: %d bytes", seed, len(saved))
		}
		if err := again.PutBits(saved[1:]); err != nil {
			t.Fatal(err)
		}
		if got := slices.Collect(again.Space().Free()); !slices.Equal(got, unused) {
			t.Fatalf("seed %d: other runs from the bits", seed)
		}
	}
}

// BenchmarkLoad loads a snapshot, and changes as of a log.
func BenchmarkLoad(b *testing.B) {
	bits := scattered(b, manyPages).AppendUnusedBits(nil)
	rng := rand.New(rand.NewPCG(1, 1))
	var changes []page.Extent
	for range 10_000 {
		changes = append(changes, ext(2+2*rng.Uint64N(manyPages/2-1), 1))
	}
	for b.Loop() {
		l := Load(manyPages)
		if err := l.PutBits(bits); err != nil {
			b.Fatal(err)
		}
		for _, e := range changes {
			if l.Take(e) != nil {
				break
			}
			if err := l.Put(e); err != nil {
				b.Fatal(err)
			}
		}
		l.Space()
	}
}

// BenchmarkSave writes a snapshot.
func BenchmarkSave(b *testing.B) {
	s := scattered(b, manyPages)
	var buf []byte
	for b.Loop() {
		if s.UnusedRuns() > 0 {
			buf = s.AppendUnusedBits(buf[:0])
		}
	}
}
