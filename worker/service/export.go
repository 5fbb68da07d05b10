package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"connectrpc.com/connect"

	"holdfast/worker/api"
	"holdfast/worker/image"
	"holdfast/worker/step"
)

// maxChanges is how many changes are sent in one message, and maxChangeBytes how many bytes of paths, or the path of one.
const (
	maxChanges     = 1000
	maxChangeBytes = 256 << 10
)

// kinds are those of changes.
var kinds = map[string]api.Change_Kind{"added": api.Change_KIND_ADDED, "changed": api.Change_KIND_CHANGED, "deleted": api.Change_KIND_DELETED}

// Diff implements api.SnapshotsHandler.
func (s snapshots) Diff(ctx context.Context, req *connect.Request[api.DiffSnapshotsRequest], stream *connect.ServerStream[api.DiffSnapshotsResponse]) error {
	t, err := s.transfer(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	var list []*api.Change
	size := 0
	send := func() error {
		err := t.client(ctx, func() error { return stream.Send(&api.DiffSnapshotsResponse{Changes: list}) })
		list, size = nil, 0
		return err
	}
	err = s.Runner.Diff(ctx, req.Msg.Before, req.Msg.After, func(c step.Change) error {
		list = append(list, &api.Change{Kind: kinds[c.Kind], Path: []byte(c.Path)})
		if size += len(c.Path); len(list) < maxChanges && size < maxChangeBytes {
			return nil
		}
		return send()
	})
	if err == nil && len(list) > 0 {
		err = send()
	}
	return coded(err)
}

// Export implements api.SnapshotsHandler.
func (s snapshots) Export(ctx context.Context, req *connect.Request[api.ExportSnapshotRequest], stream *connect.ServerStream[api.ExportSnapshotResponse]) error {
	t, err := s.transfer(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	w := outputWriter(func(b []byte) error {
		return t.client(ctx, func() error { return stream.Send(&api.ExportSnapshotResponse{Data: b}) })
	})
	err = s.Runner.ExportTar(ctx, req.Msg.Snapshot, cmp.Or(req.Msg.Path, "/"), w)
	if errors.Is(err, fs.ErrNotExist) { // in the snapshot
		return connect.NewError(connect.CodeNotFound, err)
	}
	return coded(err)
}

// compressions are those of layers.
var compressions = map[api.ExportImageRequest_Compression]image.Compression{
	api.ExportImageRequest_COMPRESSION_GZIP: image.CompressGzip, api.ExportImageRequest_COMPRESSION_ZSTD: image.CompressZstd,
}

// Export implements api.ImagesHandler.
func (s images) Export(ctx context.Context, req *connect.Request[api.ExportImageRequest], stream *connect.ServerStream[api.ExportImageResponse]) error {
	compression, ok := compressions[req.Msg.Compression]
	if !ok {
		return invalid(fmt.Sprintf("compression is %d", req.Msg.Compression))
	}
	t, err := s.transfer(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	w := outputWriter(func(b []byte) error {
		return t.client(ctx, func() error { return stream.Send(&api.ExportImageResponse{Data: b}) })
	})
	return coded(s.exportImage(ctx, req.Msg.Snapshot, w, image.ExportOptions{Show: s.Show, Compression: compression, Ref: req.Msg.Ref}))
}

// exportImage writes the archive of an image.
func (s *Service) exportImage(ctx context.Context, name string, w io.Writer, o image.ExportOptions) (err error) {
	if err := s.Client.Clean(ctx); err != nil {
		return err
	}
	dir, done, err := s.Client.Temporary()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if _, err := image.Export(ctx, s.Namespace, name, dir, o); err != nil {
		return err
	}
	return image.ArchiveLayout(ctx, w, dir)
}
