package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible is ctx that ends also when the process is asked to end: by Ctrl-C, by
// SIGTERM, or by SIGHUP as its terminal is closed. What was to be ignored when the process
// began stays so: that is how nohup and shells keep what runs in the background going.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	var ends []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			ends = append(ends, s)
		}
	}
	if len(ends) == 0 { // none would stand for all
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, ends...)
}

// OutliveReader makes a write to a pipe that nobody reads any more an error; otherwise it
// would end the process at once, with files left that are to be removed. The result undoes it.
func OutliveReader() (undo func()) {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return func() { signal.Stop(pipe) }
}
