package service

import (
	"context"
	"sync"
	"time"

	"holdfast/worker/api"
	"holdfast/worker/prune"
)

// A day of samples, and the last runs of prune.
const (
	sampleInterval = time.Minute
	maxSamples     = 24 * 60
	maxPrunings    = 100
)

// history are figures of some time, in memory.
type history struct {
	mu       sync.Mutex
	samples  []*api.Sample
	prunings []*api.Pruning
	pruned   struct{ runs, failed, snapshots, bytes int64 } // since the beginning
}

// message is a copy.
func (h *history) message() *api.GetHistoryResponse {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &api.GetHistoryResponse{Samples: append([]*api.Sample(nil), h.samples...), Prunings: append([]*api.Pruning(nil), h.prunings...)}
}

// push appends to a list of bounded length. What a caller has of it stays as it is.
func push[T any](list []T, one T, most int) []T {
	if len(list) < most {
		return append(list, one)
	}
	return append(append(make([]T, 0, most), list[1:]...), one)
}

// sample takes samples until ctx ends.
func (s *Service) sample(ctx context.Context) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		if st, err := s.status(ctx); err == nil {
			one := &api.Sample{Time: st.Now, CommittedBytes: st.CommittedBytes, DiskFreeBytes: st.DiskFreeBytes, Snapshots: st.Snapshots,
				Mounts: st.Mounts, StepsRunning: st.StepsRunning, StepsRun: st.StepsRun, StepsHit: st.StepsHit}
			s.history.mu.Lock()
			s.history.samples = push(s.history.samples, one, maxSamples)
			s.history.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Pruned remembers a run of prune. One that removed nothing is counted only.
func (s *Service) Pruned(r prune.Result, err error) {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pruned.runs++
	h.pruned.snapshots += r.Snapshots
	h.pruned.bytes += r.Bytes
	one := &api.Pruning{Time: timestamp(time.Now()), Snapshots: r.Snapshots, Bytes: r.Bytes}
	if err != nil {
		h.pruned.failed++
		one.Error = err.Error()
	} else if r.Snapshots == 0 {
		return
	}
	h.prunings = push(h.prunings, one, maxPrunings)
}
