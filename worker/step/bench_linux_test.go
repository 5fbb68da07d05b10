package step

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkOwnTime is what a step takes whose command does nothing: all of it is our own time.
func BenchmarkOwnTime(b *testing.B) {
	for _, r := range []struct {
		name string
		r    Runtime
	}{{"native", Native()}, {"init", nativeInit()}, {"runc", Runc()}} {
		b.Run(r.name, func(b *testing.B) {
			s := newStand(b, Options{Runtime: r.r})
			step := sh("base", "")
			step.Command = []string{"/bin/true"}
			n := 0
			round := func() {
				n++
				step.Env = []string{fmt.Sprint("N=", n)}
				s.ok(step)
			}
			round()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				round()
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1000, "median-µs")
			b.ReportMetric(float64(took[len(took)*9/10])/1000, "p90-µs")
		})
	}
}
