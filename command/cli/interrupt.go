package cli

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"holdfast"
)

// Interruptible is the context of a command that has something to bring to an end when the process is asked to
// end. Without it such a signal ends the process at once; with it the exit code tells the signal. From then on
// nothing may wait but for what heeds that context: a lock by awaitLock, a file by openAwaited.
func (c *Call) Interruptible() (context.Context, context.CancelFunc) {
	ctx, stop := Interruptible(c.Ctx)
	if c.ending == nil || c.ending.Err() != nil { // within another it has the signal too
		c.ending = ctx
	}
	outer := c.catching
	c.catching = ctx
	return ctx, func() {
		c.catching = outer
		stop()
	}
}

// lockStep is how long the lock of a file is waited for at a time: then a signal may have ended that, or who has it shares the file.
const lockStep = 100 * time.Millisecond

// AwaitLock calls open, which takes the lock of the file at path and gets how long to wait for it, until --timeout
// has passed. Opening a database knows no context, so it waits in steps: where the command catches the signals that
// end it, one ends the wait.
func (a *App) AwaitLock(path string, open func(timeout time.Duration) error) error {
	for begin := time.Now(); ; {
		step := lockStep
		if a.Timeout > 0 {
			step = max(min(step, a.Timeout-time.Since(begin)), time.Nanosecond) // 0 would be for ever
		}
		err := open(step)
		switch {
		case !errors.Is(err, holdfast.ErrTimeout):
			return err
		case a.catching != nil && a.catching.Err() != nil:
			return &FileError{File: path, What: "interrupted while another process had it locked", Err: a.catching.Err()}
		case a.Timeout > 0 && time.Since(begin) >= a.Timeout:
			return err
		}
	}
}

// openAwaited opens the file at path for reading, until ctx ends: of a named pipe that nothing writes to, that would
// be never.
func openAwaited(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened)
	go func() {
		file, err := OpenFile(path)
		select {
		case done <- opened{file, err}:
		case <-ctx.Done():
			_ = file.Close() // nil has an error and no more
		}
	}()
	select {
	case o := <-done:
		return o.file, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// OpenFile opens a file for reading. A directory is an error, as reading it is on all systems but in words that differ.
func OpenFile(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		_ = file.Close()
		return nil, &os.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	}
	return file, nil
}
