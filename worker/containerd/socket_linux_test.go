//go:build linux

package containerd_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/core/content"
	contentproxy "github.com/containerd/containerd/v2/core/content/proxy"
	contentsuite "github.com/containerd/containerd/v2/core/content/testsuite"
	"github.com/containerd/containerd/v2/core/snapshots"
	snapshotproxy "github.com/containerd/containerd/v2/core/snapshots/proxy"
	"github.com/containerd/containerd/v2/core/snapshots/testsuite"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ours "holdfast/worker/content"
	"holdfast/worker/internal/remote"
	"holdfast/worker/server"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/overlay"
)

// serve serves services on a socket in dir, and connects to it.
func serve(dir string, services server.Services) (conn *grpc.ClientConn, stop func() error, err error) {
	path := filepath.Join(dir, "containerd.sock")
	l, err := remote.Listen(path)
	if err != nil {
		return nil, nil, err
	}
	s := server.New(services, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	served := make(chan error, 1)
	go func() { served <- s.Serve(remote.Guard(l, slog.Default())) }()
	conn, err = grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	return conn, func() error {
		err := conn.Close()
		s.Stop(context.Background())
		return errors.Join(err, <-served)
	}, err
}

// TestSocketContent runs containerd's tests of content stores through the socket.
func TestSocketContent(t *testing.T) {
	contentsuite.ContentSuite(t, "holdfast", func(ctx context.Context, root string) (context.Context, content.Store, func() error, error) {
		store, err := ours.Open(filepath.Join(root, "content.db"), ours.Options{})
		if err != nil {
			return nil, nil, nil, err
		}
		conn, stop, err := serve(root, server.Services{Content: store})
		return ctx, contentproxy.NewContentStore(conn), func() error { return errors.Join(stop(), store.Close()) }, err
	})
}

// TestSocketSnapshots runs containerd's tests of snapshotters through the socket.
func TestSocketSnapshots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	for name, driver := range map[string]func() snapshot.Driver{
		"overlayfs": func() snapshot.Driver { return overlay.New() }, "copy": func() snapshot.Driver { return copy.New() },
	} {
		testsuite.SnapshotterSuite(t, name, func(ctx context.Context, root string) (snapshots.Snapshotter, func() error, error) {
			store, err := snapshot.Open(root, snapshot.Options{Driver: driver()})
			if err != nil {
				return nil, nil, err
			}
			namespace, err := store.ClientNamespace("testsuite")
			if err != nil {
				return nil, nil, errors.Join(err, store.Close())
			}
			conn, stop, err := serve(root, server.Services{Snapshots: namespace})
			s := snapshotproxy.NewSnapshotter(snapshotsapi.NewSnapshotsClient(conn), "holdfast")
			return s, func() error { return errors.Join(s.Close(), stop(), sound(ctx, store)) }, err
		})
	}
}
