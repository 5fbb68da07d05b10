package holdfast

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// histogramBuckets is enough for durations of more than a minute.
const histogramBuckets = 28

// Histogram counts durations by their size. Bucket 0 counts those below a
// microsecond, bucket i those from 2^(i-1) up to 2^i microseconds, the last bucket
// all that are longer.
type Histogram struct {
	Buckets [histogramBuckets]int64
}

// Count is the number of durations counted.
func (h *Histogram) Count() (n int64) {
	for _, c := range h.Buckets {
		n += c
	}
	return n
}

// Quantile is an upper bound, at most twice too high, of the duration below which
// the share q of all are, q from 0 to 1; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	left := int64(q * float64(n))
	for i, c := range h.Buckets {
		if left -= c; left <= 0 && c > 0 {
			return time.Microsecond << i
		}
	}
	return time.Microsecond << (histogramBuckets - 1)
}

// Sub gives the durations counted between other and h.
func (h *Histogram) Sub(other *Histogram) Histogram {
	d := *h
	for i := range d.Buckets {
		d.Buckets[i] -= other.Buckets[i]
	}
	return d
}

// liveHistogram is one that is being counted in. Safe for concurrent use.
type liveHistogram [histogramBuckets]atomic.Int64

func (h *liveHistogram) add(d time.Duration) {
	i := bits.Len64(uint64(max(d, 0) / time.Microsecond))
	h[min(i, histogramBuckets-1)].Add(1)
}

func (h *liveHistogram) read() (r Histogram) {
	for i := range h {
		r.Buckets[i] = h[i].Load()
	}
	return r
}
