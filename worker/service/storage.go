package service

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"holdfast/worker/api"
	"holdfast/worker/disk"
	"holdfast/worker/prune"
	"holdfast/worker/remotecache"
)

// Intervals of Watch.
const (
	defaultInterval = time.Second
	leastInterval   = 100 * time.Millisecond
)

// storage implements the service Storage.
type storage struct{ *Service }

// GetStatus implements api.StorageHandler.
func (s storage) GetStatus(ctx context.Context, _ *connect.Request[api.GetStatusRequest]) (*connect.Response[api.GetStatusResponse], error) {
	out, err := s.status(ctx)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(out), nil
}

// status are the figures of now.
func (s *Service) status(ctx context.Context) (*api.GetStatusResponse, error) {
	totals, err := s.store.Totals(ctx)
	if err != nil {
		return nil, err
	}
	fs, err := disk.Measure(s.store.Root())
	if err != nil {
		return nil, err
	}
	steps, mounts, policies := s.Runner.Counts(), s.Mounts.Stats(), s.Policies()
	out := &api.GetStatusResponse{
		Version: s.Version, Root: s.store.Root(), Driver: s.store.Driver().Name(), Started: timestamp(s.started), Now: timestamp(time.Now()),
		Snapshots: totals.Snapshots, Committed: totals.Committed, CommittedBytes: totals.Usage.Size, Trash: totals.Trash,
		DiskBytes: fs.Size, DiskFreeBytes: fs.Free, DiskInodes: fs.Inodes, DiskFreeInodes: fs.FreeInodes,
		StepsRunning: int32(steps.Running), StepsQueued: int32(steps.Queued), Concurrency: int32(s.Concurrency),
		StepsRun: steps.Ran, StepsHit: steps.Hits, StepsFailed: steps.Failed, StepsFetched: steps.Fetched,
		Mounts: int32(mounts.Mounts), MountsHeld: int32(mounts.Held), MountsParked: int32(mounts.Parked),
		PruneInterval: duration(policies.Interval),
	}
	for _, p := range policies.Config.Policies {
		out.Policies = append(out.Policies, p.String())
	}
	if s.Cache != nil {
		out.RemoteCaches, out.ExportsWaiting = remoteCaches(s.Cache), int32(s.Cache.Waiting())
	}
	return out, nil
}

// remoteCaches are the figures of the repositories of results.
func remoteCaches(c *remotecache.Cache) (list []*api.RemoteCache) {
	for _, f := range c.Figures() {
		list = append(list, &api.RemoteCache{
			Repository: f.Repository, Paused: f.Paused, Fetched: f.Fetched, FetchedBytes: f.FetchedBytes, Missed: f.Missed, Refused: f.Refused,
			Failed: f.Failed, Exported: f.Exported, ExportedBytes: f.ExportedBytes, ExportFailed: f.ExportFailed,
		})
	}
	return list
}

// Watch implements api.StorageHandler.
func (s storage) Watch(ctx context.Context, req *connect.Request[api.WatchRequest], stream *connect.ServerStream[api.WatchResponse]) error {
	ctx, done := s.watching(ctx)
	defer done()
	interval := defaultInterval
	if req.Msg.Interval != nil {
		interval = max(req.Msg.Interval.AsDuration(), leastInterval)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		status, err := s.status(ctx)
		if err != nil {
			return coded(err)
		}
		if err := stream.Send(&api.WatchResponse{Status: status, Steps: s.activities()}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return coded(context.Cause(ctx))
		}
	}
}

// GetHistory implements api.StorageHandler.
func (s storage) GetHistory(context.Context, *connect.Request[api.GetHistoryRequest]) (*connect.Response[api.GetHistoryResponse], error) {
	return connect.NewResponse(s.history.message()), nil
}

// Prune implements api.StorageHandler.
func (s storage) Prune(ctx context.Context, req *connect.Request[api.PruneRequest], stream *connect.ServerStream[api.PruneResponse]) error {
	if req.Msg.DryRun {
		return s.dryRun(ctx, int(req.Msg.Most), stream)
	}
	var now atomic.Pointer[prune.Progress]
	p, err := prune.New(s.store, prune.Options{Config: s.Policies().Config, Progress: func(p prune.Progress) { now.Store(&p) }})
	if err != nil {
		return coded(err)
	}
	type outcome struct {
		result prune.Result
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := p.Run(ctx)
		if err == nil && result.Snapshots > 0 {
			err = s.Runner.ForgetGone(ctx)
		}
		done <- outcome{result, err}
	}()
	tick := time.NewTicker(defaultInterval)
	defer tick.Stop()
	for {
		select {
		case o := <-done:
			failed := o.err
			if ctx.Err() != nil {
				failed = nil // its client has gone: nothing is wrong with the store
			}
			s.Pruned(o.result, failed)
			if o.err != nil {
				return coded(o.err)
			}
			return stream.Send(result(o.result))
		case <-tick.C:
			if at := now.Load(); at != nil {
				// A client that has gone ends ctx, and so the run: its end is waited for.
				_ = stream.Send(&api.PruneResponse{Event: &api.PruneResponse_Progress{Progress: &api.PruneProgress{Snapshots: at.Snapshots, SnapshotsLeft: at.SnapshotsLeft}}})
			}
		}
	}
}

func result(r prune.Result) *api.PruneResponse {
	return &api.PruneResponse{Event: &api.PruneResponse_Result{Result: &api.PruneResult{Snapshots: r.Snapshots, Bytes: r.Bytes, Left: r.After.Snapshots}}}
}

// dryRun sends what would be removed, the first ones, and how much in all. They are sent when the plan is made: no transaction
// waits for the client.
func (s storage) dryRun(ctx context.Context, most int, stream *connect.ServerStream[api.PruneResponse]) error {
	if most <= 0 {
		most = math.MaxInt
	}
	p, err := prune.New(s.store, prune.Options{Config: s.Policies().Config})
	if err != nil {
		return coded(err)
	}
	var list []*api.Removal
	got, err := p.DryRun(ctx, func(r *prune.Removal) bool {
		if len(list) < most {
			list = append(list, &api.Removal{Namespace: r.Namespace, Name: r.Name, Bytes: r.Usage.Size, LastUsed: timestamp(r.LastUsed), Reason: r.Reason(p.Policies())})
		}
		return true
	})
	if err != nil {
		return coded(err)
	}
	for _, r := range list {
		if err := stream.Send(&api.PruneResponse{Event: &api.PruneResponse_Removal{Removal: r}}); err != nil {
			return err
		}
	}
	return stream.Send(result(got))
}

// ListMounts implements api.StorageHandler.
func (s storage) ListMounts(context.Context, *connect.Request[api.ListMountsRequest]) (*connect.Response[api.ListMountsResponse], error) {
	out := &api.ListMountsResponse{}
	for _, m := range s.Mounts.Mounted() {
		out.Mounts = append(out.Mounts, &api.Mount{What: m.What, Holders: int32(m.Holders), Idle: m.Holders == 0})
	}
	for _, p := range s.Mounts.Pending() {
		one := &api.PendingUnmount{What: p.What, Since: timestamp(p.Since), Parked: p.Parked}
		if p.Err != nil {
			one.Error = p.Err.Error()
		}
		out.Pending = append(out.Pending, one)
	}
	return connect.NewResponse(out), nil
}

// ListDatabases implements api.StorageHandler.
func (s storage) ListDatabases(context.Context, *connect.Request[api.ListDatabasesRequest]) (*connect.Response[api.ListDatabasesResponse], error) {
	out := &api.ListDatabasesResponse{}
	for _, d := range s.Databases {
		st, pageSize := d.DB.Stats(), int64(d.DB.Info().PageSize)
		one := &api.Database{Name: d.Name, FreeBytes: int64(st.FreePageN+st.PendingPageN) * pageSize, Commits: int64(st.Commits), BytesWritten: st.BytesWritten,
			Flushes: int64(st.Flushes), Readers: int32(st.OpenTxN), CommitP50: duration(st.CommitLatency.Quantile(0.5)),
			CommitP99: duration(st.CommitLatency.Quantile(0.99)), CommitMax: duration(st.CommitLatency.Quantile(1)), Bytes: sizeOf(d.DB.Path()), Vacuum: "waits until much is free"}
		switch v := st.Vacuum; {
		case v.Running:
			one.Vacuum = "runs"
		case v.Waits != "":
			one.Vacuum = "waits for a " + v.Waits
		case v.Runs > 0:
			one.Vacuum = fmt.Sprintf("%d runs, %d bytes given back", v.Runs, v.Freed)
		}
		out.Databases = append(out.Databases, one)
	}
	return connect.NewResponse(out), nil
}
