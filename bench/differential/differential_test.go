package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"holdfast/bench/stock/ops"
)

// histories runs fn for seeds 1, 2, .. n. HOLDFAST_SEED selects one seed,
// HOLDFAST_SOAK=duration runs seeds that nobody ran before for that long.
func histories(t *testing.T, n int, fn func(t *testing.T, seed uint64)) {
	t.Parallel()
	one := func(seed uint64) bool {
		return t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { fn(t, seed) })
	}
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		one(seed)
		return
	}
	if s := os.Getenv("HOLDFAST_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(d)
		for seed := uint64(time.Now().UnixNano()); time.Now().Before(end); seed++ {
			if !one(seed) {
				return
			}
		}
		return
	}
	for seed := range n {
		if !one(uint64(seed + 1)) {
			return
		}
	}
}

func (h *History) options() ops.Options {
	o := ops.Options{
		NoFreelistSync: h.chance(2),
		MapFreelist:    h.chance(2),
		NoSync:         !h.chance(20),
		NoGrowSync:     h.chance(2),
		PageSize:       h.page,
	}
	if h.chance(2) {
		o.InitialMmapSize = 1 << (10 + h.rand.IntN(18))
	}
	return o
}

func pageSize(seed uint64) int { return 1024 << (seed % 5) }

// TestModel has Holdfast alone follow histories, with all operations whose
// meaning bbolt leaves open.
func TestModel(t *testing.T) {
	histories(t, 120, func(t *testing.T, seed uint64) {
		h := New(seed, pageSize(seed))
		r := newRun(t, h)
		r.follow(Holdfast(), filepath.Join(t.TempDir(), "holdfast.db"))
		for range 1 + h.rand.IntN(4) {
			r.session(h.options(), 1+h.rand.IntN(20))
		}
	})
}

// TestSideBySide has Holdfast and bbolt follow histories, each on its own file.
func TestSideBySide(t *testing.T) {
	histories(t, 80, func(t *testing.T, seed uint64) {
		h := New(seed, pageSize(seed))
		h.Stock = true
		r := newRun(t, h)
		dir := t.TempDir()
		r.follow(Holdfast(), filepath.Join(dir, "holdfast.db"))
		r.follow(Stock(), filepath.Join(dir, "stock.db"))
		for range 1 + h.rand.IntN(4) {
			r.session(h.options(), 1+h.rand.IntN(20))
		}
	})
}
