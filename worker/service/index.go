package service

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/worker/api"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// indexAge is how old the list of all snapshots can be that is searched and sorted.
const indexAge = 2 * time.Second

// index is the list of all snapshots, as it was lately: it is read again when it is asked for and too old.
type index struct {
	store *snapshot.Store

	mu   sync.Mutex
	read time.Time
	list []*api.Snapshot // by namespace and name; neither the slice nor what it points at is changed
}

// all returns all snapshots. They must not be changed.
func (x *index) all(ctx context.Context) ([]*api.Snapshot, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if time.Since(x.read) < indexAge {
		return x.list, nil
	}
	names, err := x.store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	var list []*api.Snapshot
	for _, name := range names {
		t, err := x.store.Namespace(name)
		if err != nil {
			return nil, err
		}
		begin, at := len(list), map[string]*api.Snapshot{}
		err = t.Walk(ctx, func(i snapshot.Info) error {
			one := snapshotOf(name, &i)
			at[one.Name] = one
			list = append(list, one)
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, one := range list[begin:] {
			if parent := at[one.Parent]; parent != nil {
				parent.Children++
			}
		}
	}
	x.list, x.read = list, time.Now()
	return list, nil
}

// snapshotOf is what a message says of a snapshot, but for its children.
func snapshotOf(namespace string, i *snapshot.Info) *api.Snapshot {
	return &api.Snapshot{Namespace: namespace, Name: i.Name, Id: uint64(i.ID), Kind: kindOf(i), Parent: i.Parent, Created: timestamp(i.Created),
		LastUsed: timestamp(cmp.Or(i.LastUsed, i.Created)), Bytes: i.Usage.Size, Files: i.Usage.Inodes, Pinned: i.Pinned, Damaged: i.Damaged,
		Distrusted: i.Distrusted, Command: i.Labels[step.LabelCommand]}
}

// wanted tells whether a request is for a snapshot. search is in lower case.
func wanted(r *api.ListSnapshotsRequest, search string, one *api.Snapshot) bool {
	switch {
	case r.Namespace != "" && one.Namespace != r.Namespace:
		return false
	case r.Children && one.Parent != r.Parent:
		return false
	}
	return search == "" || strings.Contains(strings.ToLower(one.Name), search) || strings.Contains(strings.ToLower(one.Command), search)
}

// order sorts snapshots as a request wants it; those that are alike by namespace and name.
func order(list []*api.Snapshot, by api.ListSnapshotsRequest_Order) {
	var less func(a, b *api.Snapshot) int
	switch by {
	case api.ListSnapshotsRequest_ORDER_SIZE:
		less = func(a, b *api.Snapshot) int { return cmp.Compare(b.Bytes, a.Bytes) }
	case api.ListSnapshotsRequest_ORDER_LAST_USED:
		less = func(a, b *api.Snapshot) int { return a.LastUsed.AsTime().Compare(b.LastUsed.AsTime()) }
	case api.ListSnapshotsRequest_ORDER_CREATED:
		less = func(a, b *api.Snapshot) int { return b.Created.AsTime().Compare(a.Created.AsTime()) }
	default:
		return // it is in that order
	}
	slices.SortStableFunc(list, less)
}
