package step

import (
	"context"
	"log/slog"
	"os"
	"time"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/mount"
)

// Runtime runs commands: Native or Runc.
type Runtime interface {
	// Name is "native" or "runc".
	Name() string

	// open makes what a Runner needs of it, or says what the machine lacks.
	open(*environment) (opened, error)
}

// nativeName is the name of Native.
const nativeName = "native"

// environment is where a Runner works.
type environment struct {
	root, driver  string // of the store of snapshots
	mounts        *mount.Manager
	stepNamespace *mount.Namespace
	mark          string // the source of a mount by which recovery knows the namespaces of steps; "": none
	cgroups       *cgroups

	usersOff bool // no user namespaces are wanted
	log      *slog.Logger
}

// opened is a runtime that a Runner uses.
type opened interface {
	// prepare makes a job that can be run. What does not depend on its mounts is made while they are: of
	// the job there are the id, the limits of the step, its ids outside, and the serial number.
	prepare(j *job) prepared

	// ids are those that its steps have outside, none if they have no user namespace.
	ids() idmap.Map

	close()
}

// prepared is a job that can be run, once.
type prepared interface {
	// run runs the job to its end, whose processes have all ended then. The error is a *startError if the command
	// cannot be started, and what the machine has refused otherwise. If ctx ends the job is killed.
	run(ctx context.Context) (ended, error)

	// drop removes what has been made for a job that is not run. After run it does nothing.
	drop() error
}

// job is one run of a command.
type job struct {
	id     ID
	step   *Step
	root   *mount.Handle
	binds  []*mount.Handle // for each mount of the step; nil for a tmpfs
	in     *os.File        // what the command reads; nil: nothing; the runtime does not close it
	out    *os.File        // where the command writes; the runtime does not close it
	begun  func()          // called when the command begins
	serial uint64          // of no other job of this process
	ids    idmap.Map       // that it has outside; none: it has no user namespace
}

// ended is how a command has ended.
type ended struct {
	code     int
	signaled bool
	oom      bool
	crowded  bool // a process was refused, as there were as many as there may be
	usage    Usage

	remove func() error // removes what is left of the job in the system, and can do so while others go on; nil: nothing
}

// startError says that a command could not be started, with the code that shells give for it.
type startError struct {
	code int
	err  error
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// Usage is what a run has taken of the machine.
type Usage struct {
	User, System time.Duration
	Memory       int64 // the most at once, in bytes; 0: not known, as the step had no limit
}
