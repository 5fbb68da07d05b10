package service

import (
	"cmp"
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	"holdfast/worker/api"
	"holdfast/worker/image"
)

// images implements the service Images.
type images struct{ *Service }

// importer gives the bytes of the messages of an import.
type importer struct {
	ctx    context.Context
	stream *connect.ClientStream[api.ImportRequest]
	t      *transfer
	left   []byte
}

func (r *importer) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if err := r.t.client(r.ctx, r.receive); err != nil {
			return 0, err
		}
		data, ok := r.stream.Msg().Part.(*api.ImportRequest_Data)
		if !ok {
			return 0, invalid("only the first message has options")
		}
		r.left = data.Data
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *importer) receive() error {
	if r.stream.Receive() {
		return nil
	}
	return cmp.Or(r.stream.Err(), io.EOF)
}

// Import implements api.ImagesHandler.
func (s images) Import(ctx context.Context, stream *connect.ClientStream[api.ImportRequest]) (*connect.Response[api.ImportResponse], error) {
	if !stream.Receive() {
		if err := stream.Err(); err != nil {
			return nil, err
		}
		return nil, invalid("the first message, with options, is missing")
	}
	options, ok := stream.Msg().Part.(*api.ImportRequest_Options_)
	if !ok {
		return nil, invalid("the first message has no options")
	}
	r := options.Options
	o := image.Options{Ref: r.GetRef(), Name: r.GetName(), Replace: r.GetReplace(), NoConfig: r.GetNoConfig(), Devices: image.DevicesSkip, Mounts: s.Mounts}
	var err error
	if o.Platform, err = image.ParsePlatform(r.GetPlatform()); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if o.Name != "" {
		if err := image.CheckName(o.Name); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	t, err := s.transfer(ctx)
	if err != nil {
		return nil, err
	}
	defer t.end()
	from := &importer{ctx: ctx, stream: stream, t: t}
	done, err := image.ImportArchive(ctx, s.Namespace, from, o)
	if err != nil {
		var own *connect.Error
		if errors.As(err, &own) {
			return nil, connect.NewError(own.Code(), err)
		}
		return nil, coded(err)
	}
	out := &api.ImportResponse{Snapshot: done.Snapshot, Layers: int32(len(done.Layers))}
	for _, l := range done.Layers {
		if !l.Existed {
			out.NewLayers++
		}
	}
	return connect.NewResponse(out), nil
}
