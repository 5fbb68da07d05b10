package vacuum

import (
	"testing"
	"time"
)

// What happened: with a very small share of the time for steps the pause overflowed, was negative, and so there was none.
func TestPauseAfter(t *testing.T) {
	for _, c := range []struct {
		share float64
		want  time.Duration
	}{{0.5, 5 * time.Millisecond}, {0.1, 45 * time.Millisecond}, {1e-20, longestPause}} {
		if got := pauseAfter(5*time.Millisecond, c.share).Round(time.Microsecond); got != c.want {
			t.Errorf("with a share of %g: %v, want %v", c.share, got, c.want)
		}
	}
}
