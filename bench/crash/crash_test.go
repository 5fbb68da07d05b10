package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/vfs"
)

// minimums are the disks that a run must have tried, by what was going on when
// the power went.
var minimums = map[string]int{
	"creation":        50,
	"reader open":     500,
	"several writers": 200,
	"growth":          50,
	"large value":     200,
	"rollback before": 200,
	"reopened":        200,
	"closing":         100,
	"opened by bbolt": 500,
}

// tally counts disks by feature, over all histories.
type tally struct {
	mu    sync.Mutex
	disks int
	by    map[string]int
}

func (c *tally) add(features []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disks++
	for _, f := range features {
		c.by[f]++
	}
}

func TestPowerCut(t *testing.T) {
	counts := &tally{by: map[string]int{}}
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		cutPower(t, seed, counts)
		return
	}
	const histories = 40
	first := uint64(time.Now().UnixNano())
	for seed := first; seed < first+histories; seed++ {
		cutPower(t, seed, counts)
	}
	if d, err := time.ParseDuration(os.Getenv("HOLDFAST_SOAK")); err == nil {
		for end, seed := time.Now().Add(d), first+histories; time.Now().Before(end); seed++ {
			cutPower(t, seed, counts)
		}
	}
	t.Logf("%d disks tried: %v", counts.disks, counts.by)
	for feature, least := range minimums {
		if counts.by[feature] < least {
			t.Errorf("%s: %d disks, want %d at least", feature, counts.by[feature], least)
		}
	}
}

func cutPower(t *testing.T, seed uint64, counts *tally) {
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		h := newHistory(t, seed, counts)
		defer func() {
			if t.Failed() {
				t.Logf("again with HOLDFAST_SEED=%d", seed)
			}
		}()
		h.run()
	})
}

// history is one random history and what is known about it. Its fields are
// guarded by mu: the disk calls back from whichever goroutine writes.
type history struct {
	t      *testing.T
	seed   uint64
	counts *tally
	page   int
	disk   *vfs.Crash
	shm    string // where bbolt opens disks

	mu       sync.Mutex
	rng      *rand.Rand // for disks
	acked    string     // content after the last acknowledged commit
	coming   string     // content after the commit under way, if any
	created  bool       // Open has returned for the first time
	features map[string]bool
	fault    error // the first
}

func newHistory(t *testing.T, seed uint64, counts *tally) *history {
	h := &history{
		t: t, seed: seed, counts: counts,
		page:     512 << (seed % 4),
		shm:      t.TempDir(),
		rng:      rand.New(rand.NewPCG(seed, 1)),
		features: map[string]bool{},
		acked:    emptyContent,
	}
	h.disk = vfs.NewCrash("crash.db", nil, h.cut)
	return h
}

// run makes the history: sessions on the same disk.
func (h *history) run() {
	r := rand.New(rand.NewPCG(h.seed, 2))
	for session := range 3 {
		h.set("creation", session == 0)
		h.set("reopened", session > 0)
		db, err := holdfast.OpenVFS(h.disk.Open(), h.options(r))
		if err != nil {
			h.t.Fatalf("open: %v", err)
		}
		h.mu.Lock()
		h.created = true
		h.mu.Unlock()
		h.set("creation", false)
		h.session(r, db)
		h.set("closing", true)
		if err := db.Close(); err != nil {
			h.t.Fatalf("close: %v", err)
		}
		h.set("closing", false)
		h.report()
	}
}

func (h *history) report() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		h.t.Fatal(h.fault)
	}
}

func (h *history) options(r *rand.Rand) *holdfast.Options {
	return &holdfast.Options{PageSize: h.page, NoFreelistSync: r.IntN(2) == 0}
}

func (h *history) set(feature string, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.features[feature] = on
}

// session is some transactions with one opening of the file.
func (h *history) session(r *rand.Rand, db *holdfast.DB) {
	db.AllocSize = 16 << 10
	var readers []*holdfast.Tx
	for range 4 + r.IntN(8) {
		switch r.IntN(6) {
		case 0:
			tx, err := db.Begin(false)
			if err != nil {
				h.t.Fatal(err)
			}
			readers = append(readers, tx)
		case 1:
			if len(readers) > 0 {
				if err := readers[0].Rollback(); err != nil {
					h.t.Fatal(err)
				}
				readers = readers[1:]
			}
		}
		h.set("reader open", len(readers) > 0)
		if r.IntN(5) == 0 {
			h.together(r, db)
		} else {
			h.transaction(r, db)
		}
	}
	for _, tx := range readers {
		if err := tx.Rollback(); err != nil {
			h.t.Fatal(err)
		}
	}
	h.set("reader open", false)
}

// together runs several writers at once.
func (h *history) together(r *rand.Rand, db *holdfast.DB) {
	h.set("several writers", true)
	defer h.set("several writers", false)
	var wg sync.WaitGroup
	for range 3 {
		own := rand.New(rand.NewPCG(r.Uint64(), 3))
		wg.Go(func() { h.transaction(own, db) })
	}
	wg.Wait()
}

var errRollback = errors.New("rolled back on purpose")

// transaction is one Update, now and then rolled back.
func (h *history) transaction(r *rand.Rand, db *holdfast.DB) {
	err := db.Update(func(tx *holdfast.Tx) error {
		// The turn is ours, so the commit before has been acknowledged.
		h.mu.Lock()
		if h.coming != "" {
			h.acked, h.coming = h.coming, ""
		}
		h.features["large value"] = false
		h.mu.Unlock()
		before := tx.Size()
		if err := h.edit(r, tx); err != nil {
			return err
		}
		if r.IntN(6) == 0 {
			h.set("rollback before", true)
			return errRollback
		}
		content, err := contentOf(tx)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.coming = content
		h.features["growth"] = before == 0
		h.mu.Unlock()
		return nil
	})
	if err != nil && err != errRollback {
		h.t.Errorf("update: %v", err)
	}
}
