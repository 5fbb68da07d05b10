package snapshot_test

import (
	"fmt"
	"testing"

	"holdfast"
	"holdfast/worker/snapshot"
)

// BenchmarkCycle is the metadata's part of preparing, committing and removing a snapshot, in a small store and in a
// large one: see bench/results/decisions.md.
func BenchmarkCycle(b *testing.B) {
	for _, n := range []int{10, 33787} {
		s := open(b, b.TempDir(), snapshot.Options{Durability: holdfast.None, Driver: nothing{}})
		a := namespace(b, s, "t")
		made := func(name, parent string) {
			b.Helper()
			if _, err := a.Prepare(ctx, name+" active", parent); err != nil {
				b.Fatal(err)
			}
			if err := a.Commit(ctx, name, name+" active"); err != nil {
				b.Fatal(err)
			}
		}
		made("base", "")
		for i := range n {
			parent := "base"
			if i%8 > 0 {
				parent = fmt.Sprint("child ", i-1)
			}
			made(fmt.Sprint("child ", i), parent)
		}
		next := 0
		b.Run(fmt.Sprint("snapshots=", n), func(b *testing.B) {
			before := s.Written()
			for b.Loop() {
				name := fmt.Sprint("new ", next)
				next++
				made(name, "base")
				if err := a.Remove(ctx, name); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.Written()-before)/float64(3*b.N), "pages/tx")
		})
	}
}
