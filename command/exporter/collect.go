package exporter

import (
	"log"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast"
)

// collector reads the shares in a directory at each scrape.
type collector struct {
	dir string
	log *log.Logger

	mu   sync.Mutex        // one scrape at a time reads the shares
	seen map[string]labels // of shares that are there, by the names of their files
	told map[string]string // what was said of those that are left out
}

type labels struct{ path, program string }

func newCollector(dir string, logger *log.Logger) *collector {
	return &collector{dir: dir, log: logger, seen: map[string]labels{}, told: map[string]string{}}
}

// figure is one that each database has.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(r *reading) float64
}

func desc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, append([]string{"path", "program"}, more...), nil)
}

func gauge(name, help string, value func(r *reading) float64) figure {
	return figure{desc(name, help), prometheus.GaugeValue, value}
}

func counter(name, help string, value func(r *reading) float64) figure {
	return figure{desc(name, help), prometheus.CounterValue, value}
}

var figures = []figure{
	counter("commits_total", "Transactions that changed something, since the database was opened.", func(r *reading) float64 { return float64(r.Stats.Commits) }),
	counter("commit_groups_total", "Groups in which they were written; those of a group share a flush.", func(r *reading) float64 { return float64(r.Stats.CommitGroups) }),
	counter("flushes_total", "Flushes of the file.", func(r *reading) float64 { return float64(r.Stats.Flushes) }),
	counter("write_calls_total", "Calls that wrote.", func(r *reading) float64 { return float64(r.Stats.WriteCalls) }),
	counter("written_pages_total", "Pages that were written, meta pages included.", func(r *reading) float64 { return float64(r.Stats.PagesWritten) }),
	counter("written_bytes_total", "Bytes that were written.", func(r *reading) float64 { return float64(r.Stats.BytesWritten) }),
	counter("read_transactions_total", "Reading transactions that the program began.", func(r *reading) float64 { return float64(r.Stats.TxN) }),
	gauge("free_pages", "Pages that can be used again.", func(r *reading) float64 { return float64(r.Stats.FreePageN) }),
	gauge("pending_pages", "Pages that are free as soon as no reader sees them.", func(r *reading) float64 { return float64(r.Stats.PendingPageN) }),
	gauge("page_size_bytes", "Size of a page.", func(r *reading) float64 { return float64(r.PageSize) }),
	gauge("file_size_bytes", "Size of the file.", func(r *reading) float64 { return float64(r.FileSize) }),
	gauge("oldest_reader_age_seconds", "How old the oldest state is that a reader holds; 0: all read the newest.", func(r *reading) float64 { return r.Stats.OldestReader.Age.Seconds() }),
	gauge("oldest_reader_lag_commits", "Transactions that were committed since that state.", func(r *reading) float64 { return float64(r.Stats.OldestReader.Behind) }),
	counter("vacuum_runs_total", "Runs of AutoVacuum.", func(r *reading) float64 { return float64(r.Stats.Vacuum.Runs) }),
	counter("vacuum_freed_bytes_total", "Bytes by which they made the file shorter.", func(r *reading) float64 { return float64(r.Stats.Vacuum.Freed) }),
	gauge("vacuum_running", "Whether it runs.", func(r *reading) float64 { return truth(r.Stats.Vacuum.Running) }),
	gauge("opened_timestamp_seconds", "When the database was opened.", func(r *reading) float64 { return seconds(r.Opened) }),
	gauge("figures_age_seconds", "Time since the program took the figures; it does so each second.", func(r *reading) float64 { return max(time.Since(r.Taken).Seconds(), 0) }),
}

var (
	descUp      = desc("up", "Whether the program that had the database open lives.")
	descReaders = desc("readers", "Reading transactions that are open, of the program itself or of other processes.", "of")
	descWaits   = desc("vacuum_waiting", "Whether AutoVacuum waits, and for whom.", "for")
	descLatency = desc("commit_duration_seconds", "How long commits took. The sum is an estimate, by the middles of the buckets.")
	descErrors  = prometheus.NewDesc("holdfast_exporter_errors", "Shares that are left out of this scrape; standard error of the exporter says why.", nil, nil)
)

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.Unix()) + float64(t.Nanosecond())/1e9 }

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descReaders, descWaits, descLatency, descErrors} {
		to <- d
	}
	for _, f := range figures {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	living, dead, errors := c.look()
	c.mu.Unlock()
	put := func(m prometheus.Metric, err error) {
		if err != nil {
			m = prometheus.NewInvalidMetric(descErrors, err)
		}
		to <- m
	}
	for _, r := range living {
		r.metrics(put)
	}
	for _, l := range dead {
		put(prometheus.NewConstMetric(descUp, prometheus.GaugeValue, 0, l.path, l.program))
	}
	put(prometheus.NewConstMetric(descErrors, prometheus.GaugeValue, float64(errors)))
}

func (r *reading) labels() labels { return labels{r.Path, filepath.Base(r.Program)} }

// look reads all shares: those with an owner, those whose owner has died since an earlier look, if they are still there, and how many are left out.
func (c *collector) look() (living []reading, dead []labels, left int) {
	all, passed, err := readAll(c.dir)
	left = passed
	told := map[string]string{}
	if err != nil {
		left++
		told[c.dir] = err.Error()
	}
	// Of several that say the same path the one that has said so before counts.
	slices.SortStableFunc(all, func(a, b reading) int { return c.rank(&a) - c.rank(&b) })
	paths, seen := map[string]bool{}, map[string]labels{}
	for _, r := range all {
		switch {
		case r.err != nil:
			left++
			told[r.name] = filepath.Join(c.dir, r.name) + " is left out: " + r.err.Error()
		case r.owned && paths[r.Path]:
			left++
			told[r.name] = filepath.Join(c.dir, r.name) + " is left out: another share has the same path"
		case r.owned:
			paths[r.Path] = true
			seen[r.name] = r.labels()
			living = append(living, r)
		}
	}
	for _, r := range all {
		if l, known := c.seen[r.name]; known && !r.owned && r.err == nil && !paths[l.path] {
			paths[l.path] = true
			seen[r.name] = l
			dead = append(dead, l)
		}
	}
	c.tell(told)
	c.seen = seen
	return living, dead, left
}

func (c *collector) rank(r *reading) int {
	if l, known := c.seen[r.name]; known && l.path == r.Path {
		return 0
	}
	return 1
}

// tell says what has not been said before.
func (c *collector) tell(told map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if c.told[name] != told[name] {
			c.log.Print(strings.ReplaceAll(told[name], "\n", "; "))
		}
	}
	c.told = told
}

// metrics are those of a database whose owner lives.
func (r *reading) metrics(put func(prometheus.Metric, error)) {
	l := r.labels()
	gauge := func(d *prometheus.Desc, value float64, more ...string) {
		put(prometheus.NewConstMetric(d, prometheus.GaugeValue, value, append([]string{l.path, l.program}, more...)...))
	}
	gauge(descUp, 1)
	gauge(descReaders, float64(r.Stats.OpenTxN), "program")
	gauge(descReaders, float64(r.others), "other")
	gauge(descWaits, truth(r.Stats.Vacuum.Waits == holdfast.WaitsForReader), "reader")
	gauge(descWaits, truth(r.Stats.Vacuum.Waits == holdfast.WaitsForWriters), "writers")
	for _, f := range figures {
		put(prometheus.NewConstMetric(f.desc, f.kind, f.value(r), l.path, l.program))
	}
	put(latency(&r.Stats.CommitLatency, l))
}

// latency has classic buckets, with the bounds that the engine counts by: powers of two of a microsecond. Those of native histograms
// are powers of two of a second and lie 5% beside them.
func latency(h *holdfast.Histogram, l labels) (prometheus.Metric, error) {
	buckets, count, sum := map[float64]uint64{}, uint64(0), 0.0
	for i, n := range h.Buckets {
		bound := (time.Microsecond << i).Seconds()
		count += uint64(n)
		sum += float64(n) * bound * 0.75
		if i < len(h.Buckets)-1 {
			buckets[bound] = count
		}
	}
	return prometheus.NewConstHistogram(descLatency, count, sum, buckets, l.path, l.program)
}
