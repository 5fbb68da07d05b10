package suite

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkOpenAged opens a file each time 15,000 commits later: what opening replays of
// the logs of free pages.
func BenchmarkOpenAged(b *testing.B) {
	const keys = 100_000
	path := filepath.Join(b.TempDir(), "db")
	s, err := Holdfast.Open(path, true)
	if err != nil {
		b.Fatal(err)
	}
	all := make([][]byte, keys)
	for i := range all {
		all[i] = fmt.Appendf(nil, "key%08d", i)
	}
	value := make([]byte, 1000)
	for i := range all {
		if i%10_000 != 0 {
			continue
		}
		values := make([][]byte, 10_000)
		for j := range values {
			values[j] = value
		}
		if err := s.Put(all[i:i+10_000], values); err != nil {
			b.Fatal(err)
		}
	}
	worst := time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		for range 15_000 {
			if err := s.Put(all[rand.IntN(keys):][:1], [][]byte{value}); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Sync(); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := time.Now()
		if s, err = Holdfast.Open(path, true); err != nil {
			b.Fatal(err)
		}
		worst = max(worst, time.Since(began))
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
