package server

import (
	"context"
	"errors"
	"io/fs"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast/blob"
	"holdfast/worker/content"
	"holdfast/worker/snapshot"
)

// classes says which code of gRPC an error has, as containerd understands it. The first one counts.
var classes = []struct {
	err  error
	code codes.Code
}{
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{snapshot.ErrNotFound, codes.NotFound},
	{snapshot.ErrExists, codes.AlreadyExists},
	{snapshot.ErrInvalid, codes.InvalidArgument},
	{snapshot.ErrKind, codes.FailedPrecondition},
	{snapshot.ErrInUse, codes.FailedPrecondition},
	{snapshot.ErrUnsupported, codes.Unimplemented},
	{snapshot.ErrDistrusted, codes.DataLoss},
	{snapshot.ErrDamaged, codes.DataLoss},
	{snapshot.ErrSuspect, codes.DataLoss},
	{snapshot.ErrMissing, codes.DataLoss},
	{snapshot.ErrCorrupt, codes.DataLoss},
	{snapshot.ErrClosed, codes.Unavailable},
	{content.ErrNotFound, codes.NotFound},
	{content.ErrExists, codes.AlreadyExists},
	{content.ErrInvalid, codes.InvalidArgument},
	{content.ErrBusy, codes.Unavailable},
	{content.ErrMismatch, codes.FailedPrecondition},
	{content.ErrOffset, codes.OutOfRange},
	{content.ErrCorrupt, codes.DataLoss},
	{content.ErrClosed, codes.Unavailable},
	{blob.ErrCorrupt, codes.DataLoss},
	{blob.ErrMissing, codes.DataLoss},
	{fs.ErrPermission, codes.PermissionDenied},
}

// coded gives an error its code.
func coded(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}
