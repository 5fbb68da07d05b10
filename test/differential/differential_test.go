package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast/test/soak"
	"holdfast/test/stock/ops"
)

// kind is a kind of history.
type kind struct {
	name string
	n    int // how many there are in an ordinary run
	run  func(t *testing.T, seed uint64, tally *soak.Tally)
}

// kinds are all of them, for TestSoak.
func kinds() []kind {
	all := []kind{modelKind, sideBySideKind, variantsKind, handoverKind, readersKind, takeoverKind, appendingKind}
	for _, version := range versions {
		all = append(all, returnKind(version))
	}
	for _, pageSize := range churnPageSizes {
		all = append(all, churnKind(pageSize))
	}
	return all
}

// histories runs those of an ordinary run: seeds 1, 2, .. n, unless the
// environment says otherwise.
func histories(t *testing.T, k kind) *soak.Tally {
	t.Parallel()
	tally := &soak.Tally{}
	seeds, _ := soak.Seeds(t, 1, k.n)
	for _, seed := range seeds {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { k.run(t, seed, tally) }) {
			break
		}
	}
	return tally
}

// TestSoak runs histories of all kinds, by turns, with seeds that nobody ran
// before, for as long as HOLDFAST_SOAK says; without it, one of each kind.
func TestSoak(t *testing.T) {
	t.Parallel()
	tally := &soak.Tally{}
	all := kinds()
	one := func(seed uint64) bool {
		k := all[seed%uint64(len(all))]
		tally.Add(k.name + " histories")
		return t.Run(fmt.Sprintf("%s/seed=%d", k.name, seed), func(t *testing.T) { k.run(t, seed, tally) })
	}
	first := uint64(time.Now().UnixNano())
	if d := soak.Duration(t); d > 0 {
		soak.For(d, first, os.Stderr, tally.String, one)
		return
	}
	for i := range all {
		one(first + uint64(i))
	}
}

func (h *History) options() ops.Options {
	o := ops.Options{
		NoFreelistSync: h.chance(2),
		MapFreelist:    h.chance(2),
		NoSync:         !h.chance(20),
		NoGrowSync:     h.chance(2),
		PageSize:       h.page,
		Strict:         h.chance(6),
		Mlock:          h.chance(8) && canLock(),
	}
	if h.chance(3) {
		o.AllocSize = 1 << (12 + h.rand.IntN(12))
	}
	if h.chance(2) {
		o.InitialMmapSize = 1 << (10 + h.rand.IntN(18))
	}
	return o
}

// canLock tells whether this process may lock a file in memory.
var canLock = sync.OnceValue(func() bool {
	dir, err := os.MkdirTemp("", "holdfast-mlock")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	db, err := OpenHoldfast(filepath.Join(dir, "db"), ops.Options{Mlock: true, AllocSize: 16 << 20})
	return err == nil && db.Close() == nil
})

func pageSize(seed uint64) int { return 1024 << (seed % 5) }

// TestModel has Holdfast alone follow histories, with all operations whose
// meaning bbolt leaves open.
func TestModel(t *testing.T) { atLeast(t, histories(t, modelKind), 20) }

var modelKind = kind{"model", 90, func(t *testing.T, seed uint64, tally *soak.Tally) {
	h := New(seed, pageSize(seed))
	r := newRun(t, h, tally)
	r.follow(Holdfast(), filepath.Join(t.TempDir(), "holdfast.db"))
	for range 1 + h.rand.IntN(4) {
		r.session(h.options(), 1+h.rand.IntN(20))
	}
}}

// TestSideBySide has Holdfast and bbolt follow histories, each on its own file.
func TestSideBySide(t *testing.T) { atLeast(t, histories(t, sideBySideKind), 20) }

var sideBySideKind = kind{"side by side", 50, func(t *testing.T, seed uint64, tally *soak.Tally) {
	h := New(seed, pageSize(seed))
	h.Stock = true
	r := newRun(t, h, tally)
	dir := t.TempDir()
	r.follow(Holdfast(), filepath.Join(dir, "holdfast.db"))
	r.follow(Stock(), filepath.Join(dir, "stock.db"))
	for range 1 + h.rand.IntN(4) {
		r.session(h.options(), 1+h.rand.IntN(20))
	}
}}

// atLeast asserts that an ordinary run did each operation at least n times.
func atLeast(t *testing.T, tally *soak.Tally, n int) {
	t.Helper()
	t.Log(tally)
	if _, chosen := soak.Seeds(t, 1, 1); chosen {
		return
	}
	for k := ops.Open; k <= ops.CursorDelete; k++ {
		if got := tally.Get(k.String()); got < n && k != ops.List {
			t.Errorf("%v was done %d times, want %d at least", k, got, n)
		}
	}
}
