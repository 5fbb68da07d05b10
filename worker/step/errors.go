package step

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of this package. They come wrapped with what was being done: compare with errors.Is. What the
// system lacks is errors.ErrUnsupported.
var (
	// ErrInvalid: a step that can never be right.
	ErrInvalid = errors.New("invalid step")
	// ErrClosed: the Runner is closed.
	ErrClosed = errors.New("the runner of steps is closed")
	// ErrCorrupt: a record of a result is not what it should be.
	ErrCorrupt = errors.New("the record of a step is corrupt")
	// ErrResults: results.db is damaged. Without that file results are hits all the same, and what their commands wrote
	// is lost.
	ErrResults = errors.New("the file of results is damaged")
	// ErrNotFound: there is no result of that ID.
	ErrNotFound = errors.New("no result of that step")
)

// Reasons of a Failure, to be found with errors.Is.
var (
	// ErrExit: the command ended with an exit code other than 0.
	ErrExit = errors.New("the command failed")
	// ErrSignal: the command was killed by a signal.
	ErrSignal = errors.New("the command was killed")
	// ErrStart: the command could not be started: it is not there, or is not a program.
	ErrStart = errors.New("the command could not be started")
	// ErrNoUser: there is no such user or group in the base. It comes with ErrStart.
	ErrNoUser = errors.New("the base has no such user")
	// ErrTime, ErrMemory and ErrDisk: Limits ended it.
	ErrTime   = errors.New("the step took longer than it may")
	ErrMemory = errors.New("the step needed more memory than it may")
	ErrDisk   = errors.New("the step wrote more than it may")
	// ErrInodes: it made more files than go with Limits.Disk. It is also ErrDisk.
	ErrInodes = fmt.Errorf("%w: too many files", ErrDisk)
	// ErrCanceled: everybody who waited for it has gone, or the Runner was closed. It is also
	// context.Canceled.
	ErrCanceled = fmt.Errorf("the step was canceled: %w", context.Canceled)
)

// Failure is the error of a step that was run and has no result. It has left nothing but this.
type Failure struct {
	ID         ID
	Reason     error // which Unwrap gives
	Code       int   // the exit code; 128 and the signal's number if a signal has killed it; 127 and 126 with ErrStart
	Output     []byte
	OutputSize int64 // how much the command has written; Output can be shorter
	Usage      Usage
	Duration   time.Duration // of the command, 0 if it was not started
}

// Error says why, without the output.
func (f *Failure) Error() string {
	if errors.Is(f.Reason, ErrExit) || errors.Is(f.Reason, ErrSignal) {
		return fmt.Sprintf("step %s: %v: exit code %d", f.ID, f.Reason, f.Code)
	}
	return fmt.Sprintf("step %s: %v", f.ID, f.Reason)
}

// Unwrap gives the reason.
func (f *Failure) Unwrap() error { return f.Reason }
