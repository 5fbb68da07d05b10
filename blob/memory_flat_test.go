//go:build !race

package blob

import (
	"io"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"

	"holdfast"
)

// liveWatch sees how much of the heap the collector finds in use, each time that it has run: also amid a flush.
type liveWatch struct {
	mu      sync.Mutex
	most    int64
	cycles  int
	stopped bool
}

func (w *liveWatch) arm() {
	runtime.SetFinalizer(&[16]byte{}, func(*[16]byte) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.most, w.cycles = max(w.most, int64(live[0].Value.Uint64())), w.cycles+1
		if !w.stopped {
			w.arm()
		}
	})
}

// mostLive is how much of the heap is in use at most while fn runs, besides what was before.
func mostLive(fn func()) (most int64, cycles int) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	heapInUse()
	before := heapInUse()
	w := &liveWatch{}
	w.arm()
	fn()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	return w.most - before, w.cycles
}

// A blob of 1.6 GB took 19 MB of memory in one transaction, where one of 100 MB took 9: what was gathered of the index before it was
// brought to it, and then its pages, which were in memory until there were 2 MiB of them; and the memory of nodes was there twice. Here
// are as many chunks as blobs of 400 MB, and of 4 and 16 times that, have with leaves of the default size. What was in use then was
// 5.4, 8.0 and 10.6 MB in one transaction.
func TestMemoryOfOneBlob(t *testing.T) {
	const chunks = 6400
	write := func(n int, in func(db *holdfast.DB, r io.Reader)) (int64, int) {
		db := newStore(t, Options{LeafSize: MinLeafSize})
		most, cycles := mostLive(func() { in(db, newNumbered(n*MinLeafSize, func() {})) })
		view(t, db, func(s *Store) {
			if u := must2(s.Usage()); u.Leaves != int64(n) {
				t.Fatalf("%d leaves", u.Leaves)
			}
		})
		must(t, db.Close())
		return most, cycles
	}
	for name, in := range map[string]func(db *holdfast.DB, r io.Reader){
		"one transaction": func(db *holdfast.DB, r io.Reader) {
			must(t, db.Update(func(tx *holdfast.Tx) error {
				w := openIn(tx).Writer()
				must2(w.ReadFrom(r))
				_, err := w.Commit()
				return err
			}))
		},
		"an ingest": func(db *holdfast.DB, r io.Reader) {
			for n := int64(1); n > 0; {
				must(t, db.Update(func(tx *holdfast.Tx) error {
					in := must2(openIn(tx).Ingest("large", IngestOptions{}))
					if n = must2(in.ReadFrom(io.LimitReader(r, 512*MinLeafSize))); n > 0 {
						return in.Save()
					}
					_, err := in.Commit()
					return err
				}))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, _ := write(chunks, in)
			for times, limit := range map[int]int64{4: 4 << 20, 16: 5 << 20} {
				most, cycles := write(times*chunks, in)
				t.Logf("%d bytes of memory, %d for %d times as much; the collector ran %d times", first, most, times, cycles)
				if most > limit {
					t.Errorf("%d bytes of memory for %d times as much", most, times)
				}
			}
		})
	}
}
