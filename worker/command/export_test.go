package command

import (
	"context"
	"time"

	"holdfast/worker/mount"
)

// WhileLocked has fn called in place of the rest before a store that is locked is tried again.
func WhileLocked(fn func()) (restore func()) {
	before := lockWait
	lockWait = func(context.Context, time.Duration) { fn() }
	return func() { lockWait = before }
}

// InterruptedAfter is what a command says that has ended with err when some of its work was done.
func InterruptedAfter(ctx context.Context, err error, done string) string {
	c := &call{app: &app{}, ctx: ctx}
	return c.explain(c.interruptedAfter(err, done)).Error()
}

// CloseWithin has the end of a command wait no longer for mounts that are in use.
func CloseWithin(d time.Duration) (restore func()) {
	before := closeTime
	closeTime = d
	return func() { closeTime = before }
}

// SetMounters has all managers of mounts mount some types with others than the kernel.
func SetMounters(m map[string]mount.Mounter) { mounters = m }

// MakeCommands makes the commands that a daemon runs.
func MakeCommands() { newRoot(&app{root: DefaultRoot, shared: &shared{}}) }
