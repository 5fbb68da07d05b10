package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/command/cli"
	"holdfast/worker/disk"
	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// The emergency file has a 64th of the disk, within these bounds: metadata.db grows by as much as it has,
// and by 16 MiB at most.
const (
	emergencyPart  = 64
	emergencyLeast = 1 << 20
	emergencyMost  = 64 << 20
)

// emergencySize is the size of the emergency file on a disk of so many bytes.
func emergencySize(disk int64) int64 {
	return min(max(disk/emergencyPart, emergencyLeast), emergencyMost) &^ (1<<20 - 1)
}

// room keeps account of the room on the disk of a store that this process has open.
type room struct {
	// space opens it, once: after the store is locked, as the emergency file is the store's.
	space func() (*disk.Space, error)
}

// makeRoomKey is the key under which the context of a reservation has the function that has so many bytes become free.
type makeRoomKey struct{}

type makeRoomFunc = func(ctx context.Context, free int64) error

func newRoom(root string, keep int64) *room {
	r := &room{}
	r.space = sync.OnceValues(func() (*disk.Space, error) {
		fs, err := disk.Measure(root)
		if err != nil {
			return nil, err
		}
		return disk.Open(root, disk.Options{Keep: keep, Emergency: emergencySize(fs.Size), MakeRoom: func(ctx context.Context, free int64) error {
			if fn, ok := ctx.Value(makeRoomKey{}).(makeRoomFunc); ok {
				return fn(ctx, free)
			}
			return nil
		}})
	})
	return r
}

// giveUp is for snapshot.Options.Full.
func (c *call) giveUp(r *room) func() bool {
	var once sync.Once
	return func() bool {
		space, err := r.space()
		if err != nil || !space.GiveUp() {
			return false
		}
		once.Do(func() {
			c.logger().Warn("the disk is full: the emergency file of the store is given up, so that its metadata can be written; free some space")
		})
		return true
	}
}

// restore makes the emergency file, if there is none and there is room. Without room there is none: doctor says so.
func (r *room) restore() {
	if space, err := r.space(); err == nil {
		_ = space.Restore()
	}
}

// roomInterval is how often it is looked whether there is room for a step, as long as others that run have some.
const roomInterval = 200 * time.Millisecond

// roomLease begins the name of the lease on the base of a step while room is made for it.
const roomLease = "room for a step "

// reserve promises a step the room that it may take, until release, and makes it by pruning if it is not there.
func (c *call) reserve(t *snapshot.Namespace, base string, bytes int64, f *stepFlags) (release func(), err error) {
	if bytes == 0 {
		return func() {}, nil
	}
	space, err := c.room.space()
	if err != nil {
		return nil, err
	}
	// What is held for other steps goes if there is nothing else that may go: else this one could not run.
	p, err := prune.New(t.Store(), prune.Options{Config: f.policies})
	if err != nil {
		return nil, &nextError{err, explainPolicies}
	}
	last, err := prune.New(t.Store(), prune.Options{Config: f.policies, Despite: step.HoldLease})
	if err != nil {
		return nil, err
	}
	var fn makeRoomFunc = func(ctx context.Context, free int64) error { return c.makeRoom(ctx, t, base, free, p, last) }
	r, err := space.Reserve(context.WithValue(c.ctx, makeRoomKey{}, fn), bytes)
	var full *disk.FullError
	for errors.As(err, &full) && full.Reserved > 0 && !full.TooLarge() && c.ctx.Err() == nil { // steps that run have it, and give it back
		sleep(c.ctx, roomInterval)
		full = nil
		r, err = space.Reserve(context.WithValue(c.ctx, makeRoomKey{}, fn), bytes)
	}
	if errors.As(err, &full) && c.ctx.Err() == nil {
		return nil, c.explainRoom(err, full)
	}
	if err != nil {
		return nil, err
	}
	return r.Release, nil
}

// explainRoom says why there is no room for a step, and what to do.
func (c *call) explainRoom(err error, full *disk.FullError) error {
	const next = "make room on the disk, or reserve less with --reserve or --disk"
	wants := "not enough room on the disk: a step reserves " + cli.Size(full.Wanted)
	now, most := cli.Size(full.Free), ""
	best := *full // with what pruning could make free
	var never *neverRoom
	if errors.As(full.Cause, &never) {
		best.Free, best.FreeInodes = never.most.Free+roomSlack, never.most.FreeInodes
		most = cli.Size(never.most.Free)
	}
	if best.OfInodes() {
		wants = fmt.Sprintf("not enough inodes on the disk: a step reserves %s, with which %s inodes go", cli.Size(full.Wanted), cli.Count(full.Inodes))
		now, most = cli.Count(full.FreeInodes)+" inodes", cli.Count(best.FreeInodes)
	}
	switch {
	case full.TooLarge():
		return &rootError{root: c.root, err: err, what: fmt.Sprintf("%s, and the disk has %s in all", wants, cli.Size(full.Size)),
			next: "reserve less with --reserve or --disk"}
	case never != nil:
		return &rootError{root: c.root, err: err, what: fmt.Sprintf("%s, %s are free, and pruning could make that %s at most: nothing was removed",
			wants, now, most), next: next}
	}
	what := fmt.Sprintf("%s, and %s are free after pruning", wants, now)
	if full.Cause != nil {
		what += fmt.Sprintf(", which failed: %v", full.Cause)
	}
	return &rootError{root: c.root, err: err, what: what, next: next}
}

// neverRoom is that pruning cannot make the room that is needed.
type neverRoom struct{ most disk.FS }

func (e *neverRoom) Error() string {
	return fmt.Sprintf("pruning can make %d bytes and %d inodes free at most", e.most.Free, e.most.FreeInodes)
}

// makeRoom prunes, with one Pruner after the other until there is room, but for the base of the step that
// is going to run, which nothing stands on if it is the result of another.
func (c *call) makeRoom(ctx context.Context, t *snapshot.Namespace, base string, free int64, pruners ...*prune.Pruner) (err error) {
	lease := roomLease + rand.Text() // others may make room for steps of theirs
	if err := t.Lease(ctx, lease, base, time.Hour); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.ReleaseAll(context.WithoutCancel(ctx), lease)) }()
	stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "making room", Step: cli.ProgressStep}.Start()
	defer stop()
	old, err := c.caches(t, cacheAge)
	if err != nil {
		return err
	}
	if err := enoughRoom(ctx, free, old, pruners[len(pruners)-1]); err != nil {
		return err
	}
	for _, one := range old {
		if e := t.Remove(ctx, one.snapshot); !errors.Is(e, snapshot.ErrInUse) && !errors.Is(e, snapshot.ErrNotFound) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return err
	}
	for _, p := range pruners {
		if err := p.MakeRoom(ctx, free); err != nil {
			return err
		}
		if fs, err := disk.Measure(t.Store().Root()); err != nil || fs.Has(free) {
			return err
		}
	}
	return nil
}

// These are by how much more than its plan says pruning may make free: for directories of the store, and metadata. Room
// that is made in vain does less harm than a step that is refused for no reason.
const (
	roomSlack   = 4 << 20
	inodesSlack = 64
)

// enoughRoom is a *neverRoom if there cannot be so many bytes free when old caches are gone, and all that
// last may prune.
func enoughRoom(ctx context.Context, free int64, old []cache, last *prune.Pruner) error {
	most, err := last.Room(ctx, free)
	if err != nil {
		return err
	}
	for _, one := range old {
		most.Free += one.Bytes
		most.FreeInodes += one.inodes
	}
	slack := most
	slack.Free += roomSlack
	slack.FreeInodes += inodesSlack
	if !slack.Has(free) {
		return &neverRoom{most}
	}
	return nil
}
