package vacuum

import (
	"math"
	"testing"
	"time"
)

// TestPagesAfter: the longer a step has waited the more pages it may write, unless the caller has said how many.
func TestPagesAfter(t *testing.T) {
	for _, c := range []struct {
		o      Options
		waited time.Duration
		want   uint64
	}{
		{Options{}, 0, StepPages},
		{Options{}, 9 * time.Millisecond, StepPages},
		{Options{}, 25 * time.Millisecond, 3 * StepPages},
		{Options{}, time.Hour, mostSteps * StepPages},
		{Options{StepPages: 4}, time.Hour, 4},
		{Options{StepTime: time.Second}, 100 * time.Millisecond, StepPages},
		{Options{StepTime: math.MaxInt64}, time.Hour, StepPages},
	} {
		v := newRun(nil, c.o)
		if got := v.pagesAfter(c.waited); got != c.want || v.pages != c.want {
			t.Errorf("%+v after %v: %d pages, %d targets, want %d", c.o, c.waited, got, v.pages, c.want)
		}
	}
}
