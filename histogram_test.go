package holdfast

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var live liveHistogram
	for d, bucket := range map[time.Duration]int{
		-time.Second: 0, 0: 0, time.Microsecond - 1: 0, time.Microsecond: 1, 2 * time.Microsecond: 2, 3 * time.Microsecond: 2,
		4 * time.Microsecond: 3, 100 * time.Microsecond: 7, time.Millisecond: 10, time.Second: 20, time.Hour: histogramBuckets - 1,
	} {
		before := live.read()
		live.add(d)
		after := live.read()
		if diff := after.Sub(&before); diff.Count() != 1 || diff.Buckets[bucket] != 1 {
			t.Errorf("%v is not in bucket %d: %v", d, bucket, diff)
		}
	}
	var h Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	h.Buckets[3], h.Buckets[10] = 98, 2
	for q, want := range map[float64]time.Duration{0: 8 * time.Microsecond, 0.5: 8 * time.Microsecond, 0.98: 8 * time.Microsecond, 0.99: 1024 * time.Microsecond, 1: 1024 * time.Microsecond} {
		if got := h.Quantile(q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
}
