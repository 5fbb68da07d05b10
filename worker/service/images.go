package service

import (
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
	stream *connect.ClientStream[api.ImportRequest]
	left   []byte
}

func (r *importer) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if !r.stream.Receive() {
			if err := r.stream.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
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
	release, err := s.transfer(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	from := &importer{stream: stream}
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
