package suite

import (
	"bytes"
	"cmp"
	"io"
	"strings"
	"testing"
	"time"
)

// TestGroups runs every group once, as small as can be, and sees a table.
func TestGroups(t *testing.T) {
	c := Config{Dir: t.TempDir(), Keys: 3000, Loads: 1, Rounds: 1, Time: time.Millisecond, Emptied: 1 << 20, Workers: 50, Log: io.Discard}
	for _, group := range Groups {
		if group.Name == "grow" {
			continue // it takes seconds by its nature
		}
		t.Run(group.Name, func(t *testing.T) {
			table, err := group.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			table.Print(&out)
			if n := strings.Count(out.String(), "\n| "); n < len(table.Rows)+1 {
				t.Errorf("the table has %d lines:\n%s", n, out.String())
			}
			for _, row := range table.Rows {
				if row.Cells[cmp.Or(table.Ours, Holdfast.Name)].Median <= 0 {
					t.Errorf("%s: nothing was measured of Holdfast", row.Workload)
				}
			}
		})
	}
}

// TestGrowBesideReader sees that neither Holdfast's writer nor a new reader
// waits until an open reader ends. (bbolt's do.)
func TestGrowBesideReader(t *testing.T) {
	g, err := Grow(Holdfast, t.TempDir()+"/db", 64<<20, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if g.Blocked {
		t.Errorf("the writer waited for the reader: %+v", g)
	}
}

// TestAllocations holds the engine to the allocations that its design promises.
func TestAllocations(t *testing.T) {
	s, err := Holdfast.Open(t.TempDir()+"/db", true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := load(s, 10_000, false); err != nil {
		t.Fatal(err)
	}
	keys := someKeys(10_000, 100, 1)
	for _, w := range []struct {
		name string
		most float64
		run  func() error
	}{
		{"empty View", 1, func() error { return s.EmptyViews(1) }},
		{"View and Get", 3, func() error { return s.ViewGets(keys[:1]) }},
		{"100 Gets in a View", 4, func() error { return s.Gets(keys) }},
	} {
		var failed error
		// The two closures that hold the workload are the benchmark's own.
		const own = 2
		n := testing.AllocsPerRun(200, func() {
			if err := w.run(); err != nil {
				failed = err
			}
		})
		if failed != nil {
			t.Fatal(failed)
		}
		if n > w.most+own {
			t.Errorf("%s: %v allocations, want %v at most and %v of the workload's own", w.name, n, w.most, own)
		}
	}
}

func benchmark(b *testing.B, n int, run func(b *testing.B, s Store)) {
	for _, e := range Engines {
		b.Run(strings.ReplaceAll(e.Name, " ", "-"), func(b *testing.B) {
			s, err := e.Open(b.TempDir()+"/db", true)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := load(s, n, false); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			run(b, s)
		})
	}
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkView(b *testing.B) {
	benchmark(b, 1, func(b *testing.B, s Store) { must(b, s.EmptyViews(b.N)) })
}

func BenchmarkViewGet(b *testing.B) {
	keys := someKeys(10_000, 1000, 1)
	benchmark(b, 10_000, func(b *testing.B, s Store) {
		for n := b.N; n > 0; n -= len(keys) {
			must(b, s.ViewGets(keys[:min(n, len(keys))]))
		}
	})
}

func BenchmarkGet(b *testing.B) {
	keys := someKeys(500_000, 100_000, 1)
	benchmark(b, 500_000, func(b *testing.B, s Store) {
		for n := b.N; n > 0; n -= len(keys) {
			must(b, s.Gets(keys[:min(n, len(keys))]))
		}
	})
}

func BenchmarkScan500k(b *testing.B) {
	benchmark(b, 500_000, func(b *testing.B, s Store) {
		for range b.N {
			_, err := s.Scan()
			must(b, err)
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	keys, values := hundred()
	benchmark(b, 100, func(b *testing.B, s Store) {
		for i := range b.N {
			must(b, s.Put(keys[i%100:i%100+1], values[:1]))
		}
	})
}

func BenchmarkThousandPuts(b *testing.B) {
	keys, values := someKeys(100_000, 1000, 1), make([][]byte, 1000)
	for i := range values {
		values[i] = valueOf(i)
	}
	benchmark(b, 100_000, func(b *testing.B, s Store) {
		for range b.N {
			must(b, s.Put(keys, values))
		}
	})
}
