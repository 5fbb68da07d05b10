package service

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"holdfast/worker/api"
	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
)

// Sizes of lists.
const (
	defaultPage = 100
	maxPage     = 1000
	maxChildren = 100
)

// snapshots implements the service Snapshots.
type snapshots struct{ *Service }

// List implements api.SnapshotsHandler. A page token is how many snapshots came before: one that is made or removed meanwhile can
// have another shown twice, or not.
func (s snapshots) List(ctx context.Context, req *connect.Request[api.ListSnapshotsRequest]) (*connect.Response[api.ListSnapshotsResponse], error) {
	r := req.Msg
	from := 0
	if r.PageToken != "" {
		var err error
		if from, err = strconv.Atoi(r.PageToken); err != nil || from < 0 {
			return nil, invalid("page_token is not one that was given")
		}
	}
	all, err := s.index.all(ctx)
	if err != nil {
		return nil, coded(err)
	}
	var list []*api.Snapshot
	search := strings.ToLower(r.Search)
	for _, one := range all {
		if wanted(r, search, one) {
			list = append(list, one)
		}
	}
	order(list, r.Order)
	out := &api.ListSnapshotsResponse{Total: int64(len(list))}
	size := min(cmp.Or(max(int(r.PageSize), 0), defaultPage), maxPage)
	list = list[min(from, len(list)):]
	if len(list) > size {
		list = list[:size]
		out.NextPageToken = strconv.Itoa(from + size)
	}
	out.Snapshots = list
	return connect.NewResponse(out), nil
}

// namespace is the namespace of a request.
func (s *Service) namespace(name string) (*snapshot.Namespace, error) {
	if name == "" || name == s.Namespace.Name() {
		return s.Namespace, nil
	}
	return s.store.Namespace(name)
}

// Get implements api.SnapshotsHandler.
func (s snapshots) Get(ctx context.Context, req *connect.Request[api.GetSnapshotRequest]) (*connect.Response[api.GetSnapshotResponse], error) {
	t, err := s.namespace(req.Msg.Namespace)
	if err != nil {
		return nil, coded(err)
	}
	info, err := t.Stat(ctx, req.Msg.Name)
	if err != nil {
		return nil, coded(err)
	}
	children, err := t.Children(ctx, info.Name)
	if err != nil {
		return nil, coded(err)
	}
	leases, err := t.Leases(ctx, info.Name)
	if err != nil {
		return nil, coded(err)
	}
	out := &api.GetSnapshotResponse{Snapshot: snapshotOf(t.Name(), &info), Labels: info.Labels, Children: children[:min(len(children), maxChildren)]}
	out.Snapshot.Children = int32(len(children))
	for _, h := range leases {
		text := h.Lease
		if !h.Expires.IsZero() {
			text += ", until " + h.Expires.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		out.Leases = append(out.Leases, text)
	}
	p, err := prune.New(s.store, prune.Options{Config: s.Policies().Config})
	if err != nil {
		return nil, coded(err)
	}
	answer, err := p.Why(ctx, t.Name(), info.Name)
	if err != nil {
		return nil, coded(err)
	}
	if answer.Next != nil {
		out.Prune = answer.Next.Reason(p.Policies())
	}
	out.Kept = reasons(&info, answer)
	return connect.NewResponse(out), nil
}

// Remove implements api.SnapshotsHandler.
func (s snapshots) Remove(ctx context.Context, req *connect.Request[api.RemoveSnapshotRequest]) (*connect.Response[api.RemoveSnapshotResponse], error) {
	t, err := s.namespace(req.Msg.Namespace)
	if err != nil {
		return nil, coded(err)
	}
	if s.store.IsClient(t.Name()) {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("snapshot %q belongs to the client %s, which removes by itself what it does not need", req.Msg.Name, t.Name()))
	}
	release, err := s.Cache.Withdraw(ctx, req.Msg.Name)
	if err != nil {
		return nil, coded(err)
	}
	defer release()
	if err := t.Remove(ctx, req.Msg.Name); err != nil {
		return nil, coded(err)
	}
	if err := s.Runner.Forget(ctx, []string{req.Msg.Name}); err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&api.RemoveSnapshotResponse{}), nil
}
