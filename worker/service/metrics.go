package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"holdfast"
)

// metric is a figure for Prometheus.
func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, labels, nil)
}

// What is told to Prometheus. Names end as its conventions have it.
var (
	descInfo      = metric("info", "1; which program serves which store.", "version", "driver")
	descUp        = metric("store_up", "Whether the store answers.")
	descSnapshots = metric("snapshots", "Snapshots of every kind.")
	descCommitted = metric("committed_bytes", "What committed snapshots take, as commits have measured it.")
	descTrash     = metric("trash_snapshots", "Removed snapshots whose directories are not deleted yet.")
	descDisk      = metric("disk_bytes", "Size of the file system of the store.")
	descFree      = metric("disk_free_bytes", "What is free of it.")
	descInodes    = metric("disk_inodes", "Files that the file system can have.")
	descFreeInode = metric("disk_free_inodes", "How many more it can have.")
	descSteps     = metric("steps_total", "Steps that have ended: ran, hit or failed.", "outcome")
	descInHand    = metric("steps", "Steps that are queued or run.", "state")
	descSlots     = metric("steps_concurrency", "Steps that can run at once.")
	descFetched   = metric("steps_fetched_total", "Hits among these that came from a remote cache.")
	descCache     = metric("remote_cache_results_total", "Results by what became of them: fetched, missed, refused, failed, exported or export_failed.", "repository", "outcome")
	descCacheB    = metric("remote_cache_bytes_total", "Layers, compressed, that were fetched or exported.", "repository", "direction")
	descCacheUp   = metric("remote_cache_up", "0 while a repository is left alone since it has failed.", "repository")
	descCacheWait = metric("remote_cache_exports_waiting", "Results that wait to be exported.")
	descMounts    = metric("mounts", "Mounts that are held, idle, being unmounted, or cannot be unmounted (parked).", "state")
	descMade      = metric("mounts_made_total", "Mounts that were made.")
	descShared    = metric("mounts_shared_total", "Uses of a mount that was there.")
	descPruned    = metric("pruned_snapshots_total", "Snapshots that prune has removed.")
	descPrunedB   = metric("pruned_bytes_total", "What these took.")
	descPrunes    = metric("prunes_total", "Runs of prune by the daemon: ok or failed.", "outcome")

	descDBBytes   = metric("database_bytes", "Size of a database file.", "database")
	descDBFree    = metric("database_free_bytes", "What of it can be used again.", "database")
	descDBCommits = metric("database_commits_total", "Transactions that have changed it.", "database")
	descDBWritten = metric("database_written_bytes_total", "Bytes that were written for them.", "database")
	descDBFlushes = metric("database_flushes_total", "Flushes of the file.", "database")
	descDBReaders = metric("database_readers", "Reading transactions that are open.", "database")
	descDBVacuums = metric("database_vacuums_total", "Runs of vacuum.", "database")
	descDBLatency = metric("database_commit_seconds", "How long commits took.", "database")
)

var descs = []*prometheus.Desc{descInfo, descUp, descSnapshots, descCommitted, descTrash, descDisk, descFree, descInodes, descFreeInode, descSteps, descInHand, descSlots,
	descFetched, descCache, descCacheB, descCacheUp, descCacheWait,
	descMounts, descMade, descShared, descPruned, descPrunedB, descPrunes, descDBBytes, descDBFree, descDBCommits, descDBWritten, descDBFlushes, descDBReaders, descDBVacuums, descDBLatency}

// scrapeTime is how long collecting may take.
const scrapeTime = 10 * time.Second

// registry has the figures of a Service, of the process and of Go.
func (s *Service) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(s, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Describe implements prometheus.Collector.
func (s *Service) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Service) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	gauge(descInfo, 1, s.Version, s.store.Driver().Name())
	if st, err := s.status(ctx); err == nil {
		gauge(descUp, 1)
		gauge(descSnapshots, st.Snapshots)
		gauge(descCommitted, st.CommittedBytes)
		gauge(descTrash, st.Trash)
		gauge(descDisk, st.DiskBytes)
		gauge(descFree, st.DiskFreeBytes)
		gauge(descInodes, st.DiskInodes)
		gauge(descFreeInode, st.DiskFreeInodes)
	} else {
		s.log.Error("the store does not answer", "reason", err)
		gauge(descUp, 0)
	}
	steps := s.Runner.Counts()
	counter(descSteps, int64(steps.Ran), "ran")
	counter(descSteps, int64(steps.Hits), "hit")
	counter(descSteps, int64(steps.Failed), "failed")
	gauge(descInHand, int64(steps.Queued), "queued")
	gauge(descInHand, int64(steps.Running), "running")
	gauge(descSlots, int64(s.Concurrency))
	counter(descFetched, int64(steps.Fetched))
	if s.Cache != nil {
		s.collectCache(gauge, counter)
	}
	mounts := s.Mounts.Stats()
	gauge(descMounts, int64(mounts.Held), "held")
	gauge(descMounts, int64(mounts.Idle), "idle")
	gauge(descMounts, int64(mounts.Going), "unmounting")
	gauge(descMounts, int64(mounts.Parked), "parked")
	counter(descMade, int64(mounts.Made))
	counter(descShared, int64(mounts.Shared))
	s.history.mu.Lock()
	pruned := s.history.pruned
	s.history.mu.Unlock()
	counter(descPruned, pruned.snapshots)
	counter(descPrunedB, pruned.bytes)
	counter(descPrunes, pruned.runs-pruned.failed, "ok")
	counter(descPrunes, pruned.failed, "failed")
	for _, d := range s.Databases {
		st, pageSize := d.DB.Stats(), int64(d.DB.Info().PageSize)
		gauge(descDBBytes, sizeOf(d.DB.Path()), d.Name)
		gauge(descDBFree, int64(st.FreePageN+st.PendingPageN)*pageSize, d.Name)
		counter(descDBCommits, int64(st.Commits), d.Name)
		counter(descDBWritten, st.BytesWritten, d.Name)
		counter(descDBFlushes, int64(st.Flushes), d.Name)
		gauge(descDBReaders, int64(st.OpenTxN), d.Name)
		counter(descDBVacuums, int64(st.Vacuum.Runs), d.Name)
		to <- latency(&st.CommitLatency, d.Name)
	}
}

// latency is a histogram of the engine's for Prometheus. The sum is estimated: the middle of each bucket.
func latency(h *holdfast.Histogram, name string) prometheus.Metric {
	buckets, count, sum := map[float64]uint64{}, uint64(0), 0.0
	bound := time.Microsecond.Seconds()
	for i, n := range h.Buckets {
		count += uint64(n)
		sum += float64(n) * bound * 0.75
		if i < len(h.Buckets)-1 {
			buckets[bound] = count
		}
		bound *= 2
	}
	return prometheus.MustNewConstHistogram(descDBLatency, count, sum, buckets, name)
}

// collectCache tells of the remote cache.
func (s *Service) collectCache(gauge, counter func(d *prometheus.Desc, v int64, labels ...string)) {
	gauge(descCacheWait, int64(s.Cache.Waiting()))
	for _, f := range s.Cache.Figures() {
		up := int64(1)
		if f.Paused {
			up = 0
		}
		gauge(descCacheUp, up, f.Repository)
		for outcome, n := range map[string]uint64{
			"fetched": f.Fetched, "missed": f.Missed, "refused": f.Refused, "failed": f.Failed, "exported": f.Exported, "export_failed": f.ExportFailed,
		} {
			counter(descCache, int64(n), f.Repository, outcome)
		}
		counter(descCacheB, int64(f.FetchedBytes), f.Repository, "fetched")
		counter(descCacheB, int64(f.ExportedBytes), f.Repository, "exported")
	}
}
