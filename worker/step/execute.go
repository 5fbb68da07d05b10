package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/worker/disk"
	"holdfast/worker/internal/idmap"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// execute runs a step, without a user namespace if it turns out that its user cannot have one.
func (r *Runner) execute(f *flight) (*Result, error) {
	res, err := r.executeOnce(f)
	if errors.Is(err, errAbove) { // an upper directory that was mounted cannot always be mounted again
		f.plan.ids = idmap.Map{}
		return r.executeOnce(f)
	}
	return res, err
}

// executeOnce is an active snapshot on the base, a mount of it, the command, the mount gone, the
// record, the commit. Whatever fails, what was made before it is taken away.
func (r *Runner) executeOnce(f *flight) (*Result, error) {
	if f.step.NewPrivileges && f.plan.way.name == nativeName && !f.plan.ids.Set() {
		return nil, r.fault(f, errNewPrivileges)
	}
	key := f.id.running()
	mounts, err := r.opt.Namespace.Prepare(f.ctx, key, f.step.Base)
	if err != nil {
		if errors.Is(err, snapshot.ErrExists) {
			err = fmt.Errorf("a run of it is still being cleaned up: %w", mount.ErrBusy)
		}
		return nil, r.fault(f, err)
	}
	waitForks()
	r.at(atPrepared, f.id)
	f.disk = r.diskLimit(&f.step.Limits)
	quota := r.limitDisk(f)
	run, err := r.runMounted(f, mounts)
	f.release()
	err = r.liftDisk(f, quota, err)
	if errors.Is(err, mount.ErrBusy) && run.held != nil {
		r.background.Go(func() { r.removeLater(run.held, key) })
		return nil, err
	}
	var res *Result
	if err == nil {
		res, err = r.commit(f, key, &run)
	}
	if err != nil {
		// Not with the context of the flight, which may be why it failed.
		if gone := r.opt.Namespace.Remove(context.Background(), key); gone != nil && !errors.Is(gone, snapshot.ErrNotFound) {
			r.log.Error("what a failed step has made stays", "snapshot", key, "reason", gone)
		}
		return nil, err
	}
	if r.offered(f, res.ID, run.uncached) {
		r.opt.Remote.Offer(res.Snapshot)
	}
	return res, nil
}

// waitForks returns when all children that were about to be started when it was called have become other
// programs, or are just about to. Until then each has what this process had open, so a program that a
// driver has just copied could still be open for writing, and could not be executed.
func waitForks() {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock() // to have had it is all
}

// at tells tests where a run is.
func (r *Runner) at(p point, id ID) {
	if r.hook != nil {
		r.hook(p, id)
	}
}

// fault is the error of what the machine has refused, or that the step was canceled.
func (r *Runner) fault(f *flight, err error) error {
	if f.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &Failure{ID: f.id, Reason: ErrCanceled}
	}
	return fmt.Errorf("step %s: %w", f.id, err)
}

// run is a command that has been run.
type run struct {
	ended
	duration time.Duration
	held     *mount.Handle // whose unmount is parked
	uncached string        // why its result is not a hit
}

// runMounted runs the command on the mounts of a snapshot, which are gone when it returns, unless
// the error is mount.ErrBusy.
func (r *Runner) runMounted(f *flight, mounts []mount.Mount) (done run, err error) {
	spec, err := mount.FromMounts(mounts)
	if err != nil {
		return done, r.fault(f, err)
	}
	j := &job{id: f.id, step: f.step, ids: f.plan.ids, serial: r.serial.Add(1)}
	ready := f.plan.way.runtime.prepare(j)
	root, ids, err := r.acquireRoot(f, spec)
	if err != nil {
		return done, r.fault(f, errors.Join(err, ready.drop()))
	}
	binds, err := r.bind(f, ids)
	held := binds
	seen := binds
	if err == nil && ids.Set() {
		seen, err = r.mapBinds(f, binds, ids)
		held = append(slices.Clone(binds), seen...) // those that are in both have more than one place
	}
	if err == nil {
		err = r.copyIn(f, root, ids)
	}
	if err == nil {
		r.at(atMounted, f.id)
		j.root, j.binds = root, seen
		err = r.runCommand(f, j, ready, &done)
		r.at(atEnded, f.id)
	}
	removed := done.startRemoval(ready)
	defer func() {
		if left := <-removed; left != nil {
			err = errors.Join(err, r.fault(f, left))
		}
	}()
	if err == nil {
		done.uncached, err = r.recheck(f, binds)
		if done.uncached == "" {
			done.uncached = r.denied(&done)
		}
	}
	for _, h := range held {
		if h != nil {
			h.Release()
		}
	}
	root.Release()
	for _, h := range held {
		if h == nil {
			continue
		}
		if waited := h.Wait(context.Background()); waited != nil {
			r.log.Warn("a mount that a step had is still in use", "reason", waited)
		}
	}
	if waited := root.Wait(context.Background()); waited != nil {
		done.held = root
		return done, errors.Join(err, r.fault(f, waited))
	}
	r.at(atUnmounted, f.id)
	return done, err
}

// denied says what a command that went on was denied, "": nothing that is known. Limits are not part of the ID, nor is
// the disk: what was made within too narrow ones must be no hit for a step with others.
func (r *Runner) denied(done *run) string {
	switch {
	case done.oom:
		return "a process was killed, since the step needed more memory than it may"
	case done.crowded:
		return "a process or thread could not be made, since the step had as many as it may"
	case r.diskFull():
		return "the disk of the store was full when the command ended, and may have refused something to it"
	}
	return ""
}

// A disk with less free counts as full: what a command was refused need not have fitted into the last of it, and a
// new file can take more than one inode while it is made.
const (
	fullBytes  = 1 << 20
	fullInodes = 8
)

// diskFull tells whether there is no room on the disk of the store, in bytes or files, but for what it keeps for root.
func (r *Runner) diskFull() bool {
	fs, err := disk.Measure(r.store.Root())
	return err == nil && (fs.Free < fullBytes || fs.Inodes > 0 && fs.FreeInodes < fullInodes)
}

// startRemoval removes what is left of a command in the system while its mounts go.
func (d *ended) startRemoval(p prepared) <-chan error {
	removed := make(chan error, 1)
	remove := d.remove
	if remove == nil {
		remove = p.drop
	}
	go func() { removed <- remove() }()
	return removed
}

// bind acquires what a step sees beside its base. What it returns is to be released, with an error too.
func (r *Runner) bind(f *flight, ids idmap.Map) ([]*mount.Handle, error) {
	binds := make([]*mount.Handle, len(f.step.Mounts))
	for i, m := range f.step.Mounts {
		if m.Source == "" && m.Cache == "" {
			continue
		}
		if m.Cache != "" {
			m.Cache = f.caches[m.Cache]
		}
		h, err := r.bindOne(f, &m, ids)
		if err != nil {
			return binds, r.fault(f, fmt.Errorf("mount at %s: %w", m.Target, err))
		}
		binds[i] = h
	}
	return binds, nil
}

func (r *Runner) bindOne(f *flight, m *Mount, ids idmap.Map) (*mount.Handle, error) {
	if m.Cache == "" {
		return r.opt.Mounts.Acquire(f.ctx, bindSpec(m.Source, m))
	}
	h, release, err := r.acquireCache(f.ctx, m, ids)
	if err == nil {
		f.held = append(f.held, release)
	}
	return h, err
}

// bindSpec is a mount of the machine's directories and files.
func bindSpec(source string, m *Mount) mount.Spec {
	options := []string{"rbind", "nosuid", "nodev"}
	if m.ReadOnly {
		options = append(options, "ro")
	}
	return mount.Spec{Mount: mount.Mount{Type: "bind", Source: source, Options: options}, Own: true}
}

// mapBinds are the mounts of a step as it sees them, which are to be released, with an error too. Those of
// the machine's directories and files are clones of what was mounted, whatever is at the path by now; where
// there are none that show other ids, what was mounted is seen: it belongs to no user of the step then.
func (r *Runner) mapBinds(f *flight, binds []*mount.Handle, ids idmap.Map) ([]*mount.Handle, error) {
	seen := slices.Clone(binds)
	for i, m := range f.step.Mounts {
		if m.Source == "" || f.plan.mounts[i].unmapped {
			continue
		}
		spec := mapped(bindSpec(binds[i].Path(), &m), ids)
		h, err := r.opt.Mounts.Acquire(f.ctx, spec)
		switch {
		case err == nil:
			seen[i] = h
		case !errors.Is(err, errors.ErrUnsupported):
			return seen, r.fault(f, fmt.Errorf("mount at %s: %w", m.Target, err))
		default: // that of the step's ID has gone, unless it can be written
			f.plan.notCached("what is at " + m.Target + " was mounted elsewhere meanwhile")
		}
	}
	return seen, nil
}

// outputGrace is how long output is waited for when all processes of a step have ended: another
// process can have got hold of where they wrote.
const outputGrace = time.Second

// runCommand runs the command of a job, with its limits of time and space.
func (r *Runner) runCommand(f *flight, j *job, p prepared, done *run) error {
	in, out, err := os.Pipe()
	if err != nil {
		return r.fault(f, err)
	}
	j.out = out
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(f.out, in)
	}()
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	var begun time.Time
	j.begun = func() {
		begun = time.Now()
		if limit := f.step.Limits.Time; limit > 0 {
			timer := time.AfterFunc(limit, func() { cancel(ErrTime) })
			context.AfterFunc(ctx, func() { timer.Stop() })
		}
		if f.disk.bytes > 0 {
			r.background.Go(func() { r.watchDisk(ctx, f.id.running(), f.disk, cancel) })
		}
	}
	hide := func() error { return nil }
	fed, err := f.feed(j)
	if err == nil {
		j.step, err = withUser(j)
	}
	if err == nil {
		hide, err = r.show(ctx, j)
	}
	if err == nil {
		done.ended, err = p.run(ctx)
	}
	err = errors.Join(err, hide())
	if fed != nil {
		err = errors.Join(err, fed())
	}
	if !begun.IsZero() {
		done.duration = time.Since(begun)
	}
	_ = out.Close()
	timer := time.AfterFunc(outputGrace, func() { _ = in.Close() })
	<-copied
	timer.Stop()
	_ = in.Close()
	return r.verdict(f, done, context.Cause(ctx), err)
}

// withUser is the step of a job with the numbers of its user, and the variable HOME if it has none, or an
// empty one: runc takes that for none.
func withUser(j *job) (*Step, error) {
	s := *j.step
	user, err := lookupUser(j.root.FD(), s.User)
	if err != nil {
		return nil, &startError{126, err}
	}
	s.User = user
	if !slices.ContainsFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "HOME=") && e != "HOME=" }) {
		s.Env = slices.DeleteFunc(slices.Clone(s.Env), func(e string) bool { return e == "HOME=" })
		s.Env = append(s.Env, "HOME="+lookupHome(j.root.FD(), user.UID))
	}
	return &s, nil
}

// verdict is the error of a run, nil if its result is to be kept.
func (r *Runner) verdict(f *flight, done *run, cause, err error) error {
	fail := &Failure{ID: f.id, Code: done.code, Usage: done.usage, Duration: done.duration}
	var start *startError
	switch {
	case cause != nil && f.ctx.Err() != nil:
		fail.Reason = ErrCanceled
	case errors.As(err, &start):
		fail.Reason, fail.Code = fmt.Errorf("%w: %w", ErrStart, start), start.code
	case err != nil && cause == nil && !done.oom: // what is killed for its memory before it begins is not a fault of the machine
		return r.fault(f, err)
	case err == nil && done.code == 0 && !done.signaled:
		return nil
	case cause != nil:
		fail.Reason = cause
	case done.oom:
		fail.Reason = ErrMemory
		if err != nil { // it was killed before there was anything to wait for
			fail.Code = 128 + int(syscall.SIGKILL)
		}
	case done.signaled:
		fail.Reason = ErrSignal
	default:
		fail.Reason = ErrExit
	}
	fail.Output, fail.OutputSize = f.out.text()
	return fail
}

// diskInterval is how long after a measurement the next one begins at least (Runner.diskInterval), and diskShare how many
// times as long as it took.
const (
	diskInterval = 250 * time.Millisecond
	diskShare    = 20
)

// watchDisk ends a step that has written more than it may.
func (r *Runner) watchDisk(ctx context.Context, key string, limit diskLimit, cancel context.CancelCauseFunc) {
	wait := r.diskInterval
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		begin := time.Now()
		u, err := r.opt.Namespace.Usage(ctx, key)
		if err == nil {
			err = limit.exceeded(u, snapshot.Usage{})
		}
		if errors.Is(err, ErrDisk) {
			cancel(err)
			return
		}
		wait = max(r.diskInterval, diskShare*time.Since(begin))
	}
}

// commit makes the snapshot of a step its result.
func (r *Runner) commit(f *flight, key string, done *run) (*Result, error) {
	if f.disk.bytes > 0 {
		u, err := r.opt.Namespace.Usage(f.ctx, key)
		if err != nil {
			return nil, r.fault(f, err)
		}
		if reason := f.disk.exceeded(u, snapshot.Usage{}); reason != nil {
			fail := &Failure{ID: f.id, Reason: reason}
			fail.Output, fail.OutputSize = f.out.text()
			return nil, fail
		}
	}
	if f.ctx.Err() != nil {
		return nil, &Failure{ID: f.id, Reason: ErrCanceled}
	}
	res, err := r.commitAs(f, key, done)
	if errors.Is(err, snapshot.ErrExists) { // of a run that began with NoCache, or without it: neither waits for the other
		done.uncached = "another run of the step has ended meanwhile, and its result stays"
		res, err = r.commitAs(f, key, done)
	}
	if err != nil {
		return nil, r.fault(f, err)
	}
	return res, nil
}

// commitAs records a run and commits its snapshot under the ID that its result gets.
func (r *Runner) commitAs(f *flight, key string, done *run) (*Result, error) {
	id, err := r.resultID(f, done)
	if err != nil {
		return nil, err
	}
	text, written := f.out.text()
	rec := record{
		duration: uint64(done.duration), user: uint64(done.usage.User), system: uint64(done.usage.System),
		memory: uint64(done.usage.Memory), code: uint64(done.code), written: uint64(written),
	}
	if err := r.keep(f, id, key, &rec, text, r.labelsOf(f, id, done.uncached)); err != nil {
		return nil, err
	}
	res := rec.result(id, text)
	res.Hit, res.Uncached = false, done.uncached
	return res, nil
}

// resultID is the ID that the result of a run gets. One that is to replace an earlier result has that
// removed, unless something stands on it.
func (r *Runner) resultID(f *flight, done *run) (ID, error) {
	switch {
	case done.uncached != "" && f.id == f.plan.id: // others have waited for it as a hit, too
		return f.id.unique(), nil
	case done.uncached != "" || f.id == f.plan.id:
		return f.id, nil
	}
	err := r.removeEarlier(f)
	switch {
	case errors.Is(err, snapshot.ErrInUse):
		done.uncached = "the earlier result is in use, and stays"
		return f.id, nil
	case err == nil, errors.Is(err, snapshot.ErrNotFound):
		return f.plan.id, nil
	}
	return f.id, err
}

// removeLater removes what a failed step has made when its mount, which something still uses, is gone.
func (r *Runner) removeLater(h *mount.Handle, key string) {
	for {
		err := h.Wait(r.ctx)
		if err == nil {
			err = r.opt.Namespace.Remove(context.Background(), key)
			if err != nil {
				r.log.Error("what a failed step has made stays", "snapshot", key, "reason", err)
			}
			return
		}
		select {
		case <-r.ctx.Done(): // the next Runner removes it
			return
		case <-time.After(time.Second):
		}
	}
}
