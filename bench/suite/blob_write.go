package suite

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"
)

// blobSizes are those of the blobs that are written, with what they may take: a share of
// SHA-256 alone. From parted on the first is for one core, and of the sum of the floors, and the
// second for two.
var blobSizes = []struct {
	size              int
	limit, concurrent float64
}{
	{1e3, 2.18, 0},
	{1e4, 1.25, 0},
	{1e5, 1.25, 0},
	{1e6, 1.1, 1.26},
	{1e7, 1.1, 1.22},
}

const parted = 1e6

const (
	allocsLimit  = 0.05 // target for the allocations of one more blob in a transaction: none, but for buffers that grow
	collectLimit = 0.03 // target for the share of the processors' time that the garbage collector takes
	mostFiles    = 2_000
	marginalTx   = 64 << 20
)

// BlobWrite measures writing blobs of several sizes.
func BlobWrite(c Config) (Table, error) {
	t := Table{
		Title: fmt.Sprintf("Unique blobs, transactions of %s or of one blob, nothing flushed: time and allocations of one", FormatBytes(blobTx)),
		Peer:  floorHash, Ours: blobOurs,
	}
	for _, k := range append(floorKinds, storeKinds...) {
		t.Columns = append(t.Columns, k.name)
	}
	var peer *dolt
	if c.Blobs.Dolt != "" {
		var err error
		if peer, err = startDolt(c.Blobs.Dolt); err != nil {
			return t, err
		}
		defer peer.stop()
		for _, s := range doltStores {
			t.Columns = append(t.Columns, s.name)
		}
	}
	var rows []Row
	for _, s := range blobSizes {
		w := &blobWrites{c: &c, size: s.size, shares: map[string][]sample{}}
		if err := w.run(&t, peer); err != nil {
			return t, err
		}
		w.targets(&t, s.limit, s.concurrent)
		rows = append(rows, w.shareRow())
		more, err := w.marginal(&t)
		if err != nil {
			return t, err
		}
		rows = append(rows, more)
	}
	t.Rows = append(t.Rows, rows...)
	return t, nil
}

// blobWrites measures writing blobs of one size.
type blobWrites struct {
	c       *Config
	size    int
	samples map[string][]sample
	shares  map[string][]sample // of the garbage collector
}

func (w *blobWrites) name() string { return "blobs of " + wholeBytes(int64(w.size)) }

func (w *blobWrites) run(t *Table, peer *dolt) (err error) {
	w.c.logf("measuring: %s", w.name())
	var runners []runner
	for _, k := range append(floorKinds, storeKinds...) {
		runners = append(runners, runner{k.name, func() (sample, error) { return w.once(k) }})
	}
	if peer != nil {
		for _, s := range doltStores {
			runners = append(runners, runner{s.name, func() (sample, error) {
				return peer.ask(w.c, "blobs", s.store, int64(w.size), w.c.Blobs.Written)
			}})
		}
	}
	if w.samples, err = byTurns(w.c.Rounds, runners); err != nil {
		return fmt.Errorf("%s: %w", w.name(), err)
	}
	t.Rows = append(t.Rows, Row{Workload: w.name(), Unit: "ns", Cells: cellsOf(w.samples)})
	return nil
}

// once writes with one kind of sink.
func (w *blobWrites) once(k sinkKind) (s sample, err error) {
	bytes := w.c.Blobs.Written
	if k.name == blobFiles {
		bytes = min(bytes, mostFiles*int64(w.size))
	}
	source := newBlobSource(w.size, min(blobTx, bytes))
	err = w.c.with(k, func(to sink) error {
		var before, after runtime.MemStats
		collector := collectorSince()
		runtime.ReadMemStats(&before)
		began := time.Now()
		n, err := source.write(to, source.transactions(bytes))
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if err != nil {
			return err
		}
		s = sample{float64(took) / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n)}
		w.shares[k.name] = append(w.shares[k.name], sample{100 * collector.share(), -1})
		return nil
	})
	return s, err
}

func (w *blobWrites) targets(t *Table, limit, concurrent float64) {
	ours, hash := w.samples[blobOurs], w.samples[floorHash]
	if w.size < parted {
		t.ratioAtMost(w.name()+": time", floorHash, ours, hash, limit)
	} else {
		t.ratioAtMost(w.name()+": time, one core", "SHA-256, pwrite and seals", w.samples[blobOneCore], sums(hash, w.samples[floorPwrite], w.samples[floorSeal]), limit)
		t.ratioAtMost(w.name()+": time, hash on both cores", floorHash, w.samples[blobConcurrent], hash, concurrent)
	}
	share := cellOf(w.shares[blobOurs])
	t.atMost(w.name()+": share of the garbage collector", percent(100*collectLimit), share.Median, 100*collectLimit, percent(share.Median))
}

// shareRow is that of the garbage collector.
func (w *blobWrites) shareRow() Row {
	cells := cellsOf(w.shares)
	for _, k := range floorKinds {
		delete(cells, k.name)
	}
	return Row{Workload: w.name() + ": share of the garbage collector in the time of the processors", Unit: "%", Cells: cells}
}

// marginal measures the allocations of one more blob in a transaction: what a transaction
// takes however many blobs it has is not in it.
func (w *blobWrites) marginal(t *Table) (Row, error) {
	cells := map[string]Cell{}
	for _, k := range storeKinds[:3] {
		err := w.c.with(k, func(to sink) error {
			each, err := oneMore(to, newBlobSource(w.size, 1), max(1, int(min(marginalTx, w.c.Blobs.Written))/w.size))
			cells[k.name] = exactly(each)
			return err
		})
		if err != nil {
			return Row{}, err
		}
	}
	each := cells[blobOurs].Median
	t.atMost(w.name()+": allocations of one more", fmt.Sprintf("%.4g: none, amortised", allocsLimit), each, allocsLimit, fmt.Sprintf("%.3g", each))
	return Row{Workload: w.name() + ": allocations of one more in a transaction", Cells: cells}, nil
}

// oneMore is what one more blob allocates, of transactions with n blobs and with five times
// as many.
func oneMore(to sink, source *blobSource, n int) (float64, error) {
	const times = 5
	few, err := allocations(to, source, n)
	if err != nil {
		return 0, err
	}
	many, err := allocations(to, source, times*n)
	return max(0, many-few) / float64((times-1)*n), err
}

// allocations are those of a transaction with n blobs, the fewest of some.
func allocations(to sink, source *blobSource, n int) (least float64, err error) {
	for try := range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := to.begin(); err != nil {
			return 0, err
		}
		for range n {
			if err := to.put(source.blob(0)); err != nil { // which is in the same memory: it is not kept
				return 0, err
			}
		}
		if err := to.commit(); err != nil {
			return 0, err
		}
		runtime.ReadMemStats(&after)
		if m := float64(after.Mallocs - before.Mallocs); try == 1 || try > 1 && m < least {
			least = m // the first fills pools
		}
	}
	return least, nil
}

// sums adds samples that were taken in the same round.
func sums(parts ...[]sample) []sample {
	all := append([]sample(nil), parts[0]...)
	for _, p := range parts[1:] {
		for i := range all {
			all[i].value += p[i].value
		}
	}
	return all
}

func percent(v float64) string { return fmt.Sprintf("%.3g %%", v) }

// wholeBytes writes a number of bytes in the largest unit of which it is a whole number,
// those of the targets first.
func wholeBytes(n int64) string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// collector is what the garbage collector had taken at some time.
type collector struct{ spent, busy, cycles float64 }

// collectorSince begins to look at the garbage collector.
func collectorSince() collector {
	runtime.GC() // which brings the figures up to date
	return readCollector()
}

func readCollector() collector {
	s := []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/cpu/classes/idle:cpu-seconds"}, {Name: "/gc/cycles/automatic:gc-cycles"},
	}
	metrics.Read(s)
	return collector{s[0].Value.Float64(), s[1].Value.Float64() - s[2].Value.Float64(), float64(s[3].Value.Uint64())}
}

// share is the part of the processors' time that it took since. The collection that brings the
// figures up to date is taken off: the one after it costs the same.
func (from collector) share() float64 {
	runtime.GC()
	to := readCollector()
	if to.cycles == from.cycles {
		return 0
	}
	runtime.GC()
	own := readCollector().spent - to.spent
	if spent, busy := to.spent-from.spent-own, to.busy-from.busy-own; spent > 0 && busy > spent {
		return spent / busy
	}
	return 0
}
