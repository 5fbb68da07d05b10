package command

import (
	"context"

	"holdfast/command/cli"
)

// interruptible is the context of a command that has something to bring to an end when the process is asked to
// end. Without it such a signal ends the process at once; with it the exit code tells the signal.
func (c *call) interruptible() (context.Context, context.CancelFunc) {
	ctx, stop := cli.Interruptible(c.ctx)
	if c.ending == nil || c.ending.Err() != nil { // within another it has the signal too
		c.ending = ctx
	}
	return ctx, stop
}

// outliveReader makes a write to a pipe that nobody reads any more an error.
func outliveReader() (undo func()) { return cli.OutliveReader() }
