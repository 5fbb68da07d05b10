package service

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"connectrpc.com/connect"

	"holdfast/worker/disk"
	"holdfast/worker/image"
	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// classes says which code an error has. The first one counts.
var classes = []struct {
	err  error
	code connect.Code
}{
	{context.Canceled, connect.CodeCanceled},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
	{snapshot.ErrNotFound, connect.CodeNotFound},
	{step.ErrNotFound, connect.CodeNotFound},
	{snapshot.ErrExists, connect.CodeAlreadyExists},
	{snapshot.ErrInvalid, connect.CodeInvalidArgument},
	{step.ErrInvalid, connect.CodeInvalidArgument},
	{image.ErrUnsafe, connect.CodeInvalidArgument},
	{ErrUser, connect.CodeInvalidArgument},
	{prune.ErrConfig, connect.CodeFailedPrecondition},
	{snapshot.ErrKind, connect.CodeFailedPrecondition},
	{snapshot.ErrInUse, connect.CodeFailedPrecondition},
	{snapshot.ErrDistrusted, connect.CodeDataLoss},
	{snapshot.ErrDamaged, connect.CodeDataLoss},
	{snapshot.ErrSuspect, connect.CodeDataLoss},
	{snapshot.ErrMissing, connect.CodeDataLoss},
	{snapshot.ErrCorrupt, connect.CodeDataLoss},
	{step.ErrCorrupt, connect.CodeDataLoss},
	{step.ErrResults, connect.CodeDataLoss},
	{snapshot.ErrClosed, connect.CodeUnavailable},
	{step.ErrClosed, connect.CodeUnavailable},
	{syscall.ENOSPC, connect.CodeResourceExhausted},
	{syscall.EDQUOT, connect.CodeResourceExhausted},
	{errors.ErrUnsupported, connect.CodeUnimplemented},
	{fs.ErrPermission, connect.CodePermissionDenied},
}

// coded gives an error its code.
func coded(err error) error {
	if err == nil {
		return nil
	}
	var has *connect.Error
	if errors.As(err, &has) {
		return err
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return connect.NewError(c.code, err)
		}
	}
	var full *disk.FullError
	if errors.As(err, &full) {
		return connect.NewError(connect.CodeResourceExhausted, err)
	}
	return connect.NewError(connect.CodeUnknown, err)
}

// invalid is an error of what a client has asked for.
func invalid(text string) error {
	return connect.NewError(connect.CodeInvalidArgument, errors.New(text))
}
