package command

import (
	"context"

	"holdfast/command/cli"
)

// interruptible is ctx that ends also when the process is asked to end.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return cli.Interruptible(ctx)
}

// outliveReader makes a write to a pipe that nobody reads any more an error.
func outliveReader() (undo func()) { return cli.OutliveReader() }
