package server

import (
	"context"
	"slices"
	"time"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// snapshots is containerd's service of snapshots on a namespace. The name of the snapshotter in requests does not matter: a
// socket serves one namespace.
type snapshots struct {
	snapshotsapi.UnimplementedSnapshotsServer
	namespace *snapshot.Namespace
}

func (s *snapshots) Prepare(ctx context.Context, r *snapshotsapi.PrepareSnapshotRequest) (*snapshotsapi.PrepareSnapshotResponse, error) {
	mounts, err := s.namespace.Prepare(ctx, r.Key, r.Parent, snapshot.WithLabels(r.Labels))
	if err != nil {
		return nil, err
	}
	return &snapshotsapi.PrepareSnapshotResponse{Mounts: mountsOf(mounts)}, nil
}

func (s *snapshots) View(ctx context.Context, r *snapshotsapi.ViewSnapshotRequest) (*snapshotsapi.ViewSnapshotResponse, error) {
	mounts, err := s.namespace.View(ctx, r.Key, r.Parent, snapshot.WithLabels(r.Labels))
	if err != nil {
		return nil, err
	}
	return &snapshotsapi.ViewSnapshotResponse{Mounts: mountsOf(mounts)}, nil
}

func (s *snapshots) Mounts(ctx context.Context, r *snapshotsapi.MountsRequest) (*snapshotsapi.MountsResponse, error) {
	mounts, err := s.namespace.Mounts(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	return &snapshotsapi.MountsResponse{Mounts: mountsOf(mounts)}, nil
}

func (s *snapshots) Commit(ctx context.Context, r *snapshotsapi.CommitSnapshotRequest) (*emptypb.Empty, error) {
	// containerd calls this in a writing transaction of its own.
	options := []snapshot.Option{snapshot.WithLabels(r.Labels), snapshot.MeasureLater()}
	if r.Parent != "" {
		options = append(options, snapshot.WithParent(r.Parent))
	}
	return done(s.namespace.Commit(ctx, r.Name, r.Key, options...))
}

func (s *snapshots) Remove(ctx context.Context, r *snapshotsapi.RemoveSnapshotRequest) (*emptypb.Empty, error) {
	return done(s.namespace.Remove(ctx, r.Key))
}

func (s *snapshots) Stat(ctx context.Context, r *snapshotsapi.StatSnapshotRequest) (*snapshotsapi.StatSnapshotResponse, error) {
	info, err := s.namespace.Stat(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	return &snapshotsapi.StatSnapshotResponse{Info: snapshotInfo(&info)}, nil
}

func (s *snapshots) Update(ctx context.Context, r *snapshotsapi.UpdateSnapshotRequest) (*snapshotsapi.UpdateSnapshotResponse, error) {
	info, err := s.namespace.Update(ctx, snapshot.Info{Name: r.Info.GetName(), Labels: r.Info.GetLabels()}, r.UpdateMask.GetPaths()...)
	if err != nil {
		return nil, err
	}
	return &snapshotsapi.UpdateSnapshotResponse{Info: snapshotInfo(&info)}, nil
}

func (s *snapshots) Usage(ctx context.Context, r *snapshotsapi.UsageRequest) (*snapshotsapi.UsageResponse, error) {
	u, err := s.namespace.Usage(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	return &snapshotsapi.UsageResponse{Size: u.Size, Inodes: u.Inodes}, nil
}

// List sends a page after the other: no transaction is open while a client takes its time.
func (s *snapshots) List(r *snapshotsapi.ListSnapshotsRequest, to snapshotsapi.Snapshots_ListServer) error {
	filter, err := parseFilters(r.Filters)
	if err != nil {
		return err
	}
	list := lister[*snapshotsapi.Info]{send: func(rows []*snapshotsapi.Info) error {
		return to.Send(&snapshotsapi.ListSnapshotsResponse{Info: rows})
	}}
	for after := ""; ; {
		page, err := s.namespace.Page(to.Context(), after, listRows)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return list.end()
		}
		after = page[len(page)-1].Name
		for i := range page {
			if !filter.Match(snapshotFields(&page[i])) {
				continue
			}
			if err := list.add(snapshotInfo(&page[i])); err != nil {
				return err
			}
		}
	}
}

// Cleanup returns when what was removed is deleted.
func (s *snapshots) Cleanup(ctx context.Context, _ *snapshotsapi.CleanupRequest) (*emptypb.Empty, error) {
	return done(s.namespace.Store().Cleanup(ctx))
}

func done(err error) (*emptypb.Empty, error) {
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// mountsOf are mounts for a client. It may mount a snapshot any number of times, one after the other, as containerd does to look up a user
// before it runs a container. The kernel refuses that for an upper directory that was mounted with the option volatile.
func mountsOf(list []mount.Mount) []*types.Mount {
	list = mount.Templated(list)
	mounts := make([]*types.Mount, len(list))
	for i, m := range list {
		options := slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == "volatile" })
		mounts[i] = &types.Mount{Type: m.Type, Source: m.Source, Options: options}
	}
	return mounts
}

// kinds are those of the service.
var kinds = map[snapshot.Kind]snapshotsapi.Kind{
	snapshot.View: snapshotsapi.Kind_VIEW, snapshot.Active: snapshotsapi.Kind_ACTIVE, snapshot.Committed: snapshotsapi.Kind_COMMITTED,
}

func snapshotInfo(i *snapshot.Info) *snapshotsapi.Info {
	return &snapshotsapi.Info{Name: i.Name, Parent: i.Parent, Kind: kinds[i.Kind], Labels: i.Labels,
		CreatedAt: timestamp(i.Created), UpdatedAt: timestamp(i.Updated)}
}

// timestamp is nil for the zero time.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
