package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ExitSignal and the number of a signal is the exit code of what it has ended: 130 of Ctrl-C.
const ExitSignal = 128

// Interrupted is the error, or the cause of the context, of what a signal has ended.
type Interrupted struct {
	Signal os.Signal
	Err    error // what there is to say; nil: nothing but that
}

// Error is what there is to say.
func (e *Interrupted) Error() string {
	if e.Err == nil {
		return "interrupted"
	}
	return e.Err.Error()
}

// Unwrap is Err, or context.Canceled.
func (e *Interrupted) Unwrap() error {
	if e.Err == nil {
		return context.Canceled
	}
	return e.Err
}

// Code is the exit code.
func (e *Interrupted) Code() int {
	if s, ok := e.Signal.(syscall.Signal); ok {
		return ExitSignal + int(s)
	}
	return ExitSignal + int(syscall.SIGINT)
}

// Interruptible is ctx that ends also when the process is asked to end: by Ctrl-C, by
// SIGTERM, or by SIGHUP as its terminal is closed; the cause is *Interrupted then. What was to be
// ignored when the process began stays so: that is how nohup and shells keep what runs in the background going.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	var ends []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			ends = append(ends, s)
		}
	}
	if len(ends) == 0 { // none would stand for all
		return ctx, func() { cancel(nil) }
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, ends...)
	go func() {
		select {
		case s := <-came:
			cancel(&Interrupted{Signal: s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(came)
		cancel(nil)
	}
}

// InterruptedBy is err with the signal that has ended ctx, if it is because of that.
func InterruptedBy(ctx context.Context, err error) error {
	var known, by *Interrupted
	if !errors.Is(err, context.Canceled) || errors.As(err, &known) || !errors.As(context.Cause(ctx), &by) {
		return err
	}
	return &Interrupted{Signal: by.Signal, Err: err}
}

// OutliveReader makes a write to a pipe without a reader an error; otherwise it
// would end the process at once, with files left that are to be removed. The result undoes it.
func OutliveReader() (undo func()) {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return func() { signal.Stop(pipe) }
}
