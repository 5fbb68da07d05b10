package axis

import (
	"slices"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		high float64
		want []float64
	}{{3.2, []float64{0, 0.5, 1, 1.5, 2, 2.5, 3}}, {400_000, []float64{0, 100_000, 200_000, 300_000, 400_000}}, {45, []float64{0, 10, 20, 30, 40}}} {
		got := Scale{High: c.high}.Ticks()
		if len(got) != len(c.want) || got[1] != c.want[1] {
			t.Errorf("up to %v: %v, want %v", c.high, got, c.want)
		}
	}
}

// TestTicksCount: no axis has none, or too many numbers to read.
func TestTicksCount(t *testing.T) {
	for _, high := range []float64{1, 1.05, 2, 3, 20, 100, 999, 1000, 4.2e7} {
		if n := len(Scale{High: high}.Ticks()); n < 3 || n > 11 {
			t.Errorf("up to %v: %d", high, n)
		}
	}
	if got := (Scale{Low: 10, High: 1000, Logarithmic: true}).Ticks(); !slices.Equal(got, []float64{10, 100, 1000}) {
		t.Errorf("%v", got)
	}
}
