package programs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"holdfast/test/cluster"
)

// ownSnapshotter is that of containerd.
const ownSnapshotter = "overlayfs"

// Unpack measures how long containerd takes to import an image of many layers, in turns with its own overlay snapshotter and with the daemon's:
// with few snapshots, and with many. containerd keeps the content in both cases.
func (x *Service) Unpack(ctx context.Context, image string, rounds, many int) (t *Table, err error) {
	t = &Table{Title: fmt.Sprintf("containerd: import of an image of %d layers, with the driver %s", UnpackLayers, x.Driver), Columns: [2]string{"containerd's overlay", "holdfastd"}}
	h, err := x.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	c, err := x.plugged(ctx, h, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, count := range []int{10, many} {
		for _, s := range []string{ownSnapshotter, pluginName} {
			if err := c.fill(ctx, s, count); err != nil {
				return nil, fmt.Errorf("%d snapshots with %s: %w", count, s, err)
			}
		}
		for round := range rounds {
			for _, e := range engines(round) {
				c.snapshotter = [2]string{ownSnapshotter, pluginName}[e]
				began := time.Now()
				if err := c.load(ctx, image); err != nil {
					return nil, err
				}
				t.Add(e, fmt.Sprintf("%d snapshots", count), Seconds, time.Since(began).Seconds())
				if err := c.run(ctx, "images", "rm", "--sync", imageName); err != nil {
					return nil, err
				}
			}
		}
	}
	return t, nil
}

// UnpackLayers is how many layers the image has that is unpacked.
const UnpackLayers = 30

// fill has a snapshotter of containerd have so many snapshots, in chains of eight.
func (c *containerd) fill(ctx context.Context, snapshotter string, count int) error {
	conn, err := grpc.NewClient("unix://"+c.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "default")
	client := snapshotsapi.NewSnapshotsClient(conn)
	const clients, chain = 8, 8
	var next atomic.Int64
	errs := make(chan error, clients)
	for range clients {
		go func() { errs <- fillChains(ctx, client, snapshotter, &next, count, chain) }()
	}
	for range clients {
		err = errors.Join(err, <-errs)
	}
	return err
}

func fillChains(ctx context.Context, client snapshotsapi.SnapshotsClient, snapshotter string, next *atomic.Int64, count, chain int) error {
	labels := map[string]string{"containerd.io/gc.root": "yes"}
	for {
		first := int(next.Add(int64(chain))) - chain
		if first >= count {
			return nil
		}
		parent := ""
		for i := first; i < min(first+chain, count); i++ {
			name := fmt.Sprintf("filled-%d-%d", count, i)
			_, err := client.Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Snapshotter: snapshotter, Key: name + "-active", Parent: parent, Labels: labels})
			if err == nil {
				_, err = client.Commit(ctx, &snapshotsapi.CommitSnapshotRequest{Snapshotter: snapshotter, Name: name, Key: name + "-active", Labels: labels})
			}
			if err != nil {
				return err
			}
			parent = name
		}
	}
}

// Builds measures builds of new input and cached builds, in turns with BuildKit's own overlay snapshotter and with the daemon's.
func (x *Service) Builds(ctx context.Context, rounds int) (t *Table, err error) {
	t = &Table{Title: fmt.Sprintf("BuildKit: builds of %d steps", buildSteps), Columns: [2]string{"its own overlay", "holdfastd"}}
	h, err := x.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	var both [2]*buildkitd
	flags := [2][]string{{"--oci-worker-snapshotter=overlayfs"}, {"--oci-worker-snapshotter=" + pluginName, "--oci-worker-proxy-snapshotter-path=" + h.plugin()}}
	for e := range both {
		b, err := newBuildkitd(ctx, x.BuildKit, x.Disk, flags[e]...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.close()) }()
		if err := b.buildRight(ctx, "warm up"); err != nil {
			return nil, err
		}
		both[e] = b
	}
	for round := range rounds {
		for _, e := range []cluster.Engine{cluster.Engine(round % 2), cluster.Engine(1 - round%2)} {
			for _, what := range []string{"build", "cached build"} {
				m := meter{t, e, x.Disk, BuildKitName}
				if err := m.once(what, func() error { return both[e].build(ctx, fmt.Sprintf("round %d", round), "") }); err != nil {
					return nil, err
				}
			}
		}
	}
	return t, nil
}

// BuildKitName begins the rows of what BuildKit does.
const BuildKitName = "BuildKit"
