package pager

import (
	"slices"
	"testing"
	"time"
)

// etcd commits every 100 ms, and each of its commits was followed by a plain meta and its flush, 50 ms later.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		since []time.Duration
		want  time.Duration
	}{
		{"the first commit", nil, 50 * ms},
		{"a commit after an hour", []time.Duration{time.Hour}, 50 * ms},
		{"every 100 ms", slices.Repeat([]time.Duration{100 * ms}, 5), 200 * ms},
		{"every 100 ms, once sooner", []time.Duration{100 * ms, 100 * ms, 10 * ms}, 175 * ms},
		{"as fast as can be", slices.Repeat([]time.Duration{ms}, 50), 50 * ms},
		{"fast after slow", append([]time.Duration{400 * ms}, slices.Repeat([]time.Duration{ms}, 30)...), 50 * ms},
		{"every 900 ms", slices.Repeat([]time.Duration{900 * ms}, 3), time.Second},
		{"every minute", slices.Repeat([]time.Duration{time.Minute}, 3), 50 * ms},
		{"idle after a pace", []time.Duration{100 * ms, 100 * ms, time.Minute}, 50 * ms},
	} {
		var p pace
		for _, d := range c.since {
			p.wrote(d)
		}
		if got := p.delay(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
