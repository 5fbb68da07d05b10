package remotecache

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"syscall"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/disk"
	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// exportLease is on a result that is being exported, so that it is not pruned. Removing does not heed it.
const exportLease = snapshot.WeakPrefix + "export"

const exportLeaseTime = time.Hour

// Exports tells whether results are pushed to a repository.
func (c *Cache) Exports() bool { return len(c.exports) > 0 }

// Offer has a result exported, after those on which it stands.
func (c *Cache) Offer(name string) {
	if c.Exports() && !c.queue.put(name) {
		c.log.Warn("a result is exported later: too many are waiting", "snapshot", name, "waiting", maxQueue)
	}
}

// Drain waits until nothing is waiting to be exported, or ctx ends. Start was called.
func (c *Cache) Drain(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.listed:
	}
	for c.Waiting() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// resume offers what is labeled, and was not exported: the daemon was ended, or the registry was gone for too long.
func (c *Cache) resume() {
	for first := true; ; first = false {
		err := c.o.Namespace.WalkPrefix(c.ctx, step.ResultPrefix, func(info snapshot.Info) error {
			if info.Labels[step.LabelExport] == step.ExportPending {
				c.Offer(info.Name)
			}
			return nil
		})
		if err != nil && c.ctx.Err() == nil {
			c.log.Error("results that were not exported cannot be listed", "reason", err)
		}
		if first {
			close(c.listed)
		}
		if !c.sleep(resumeEvery) {
			return
		}
	}
}

// clean removes what was being made and downloaded when an earlier Cache ended, and downloads that were given up.
func (c *Cache) clean() {
	for {
		if err := c.o.Client.Clean(c.ctx); err != nil && c.ctx.Err() == nil {
			c.log.Error("what was left of downloads and exports stays", "reason", err)
		}
		if !c.sleep(resumeEvery) {
			return
		}
	}
}

// sleep is false if the Cache was closed meanwhile.
func (c *Cache) sleep(d time.Duration) bool {
	select {
	case <-c.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// exportQueued exports what is offered until the Cache is closed.
func (c *Cache) exportQueued() {
	for {
		name, ok := c.queue.take()
		if !ok {
			return
		}
		for left := c.pauseLeft(); left > 0 && c.sleep(left); left = c.pauseLeft() {
		}
		err := c.export(c.ctx, name)
		if errors.Is(err, errNotShared) {
			level := slog.LevelDebug
			if errors.Is(err, image.ErrUnfit) {
				level = slog.LevelWarn
			}
			c.log.Log(c.ctx, level, "a result is not exported", "snapshot", name, "reason", err)
			err = nil
		}
		if err != nil && c.ctx.Err() == nil && !errors.Is(err, errWithdrawn) && !errors.Is(err, errReplaced) {
			c.log.Warn("a result could not be exported", "snapshot", name, "reason", err)
			if errors.Is(err, errPush) || errors.Is(err, errRoom) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				c.paused.Store(time.Now().Add(c.o.Pause).UnixNano())
			}
		}
		if again := c.queue.done(name, err != nil); again {
			c.queue.put(name) // another goroutine may take it at once
		}
	}
}

// pauseLeft is how long nothing is exported as a registry has failed.
func (c *Cache) pauseLeft() time.Duration {
	if left := time.Until(time.Unix(0, c.paused.Load())); left <= c.o.Pause {
		return left
	}
	return 0 // the clock was set back
}

var (
	errNotShared = errors.New("other stores cannot use it") // a result
	errPush      = errors.New("push")                       // a registry has failed
	errReplaced  = errors.New("it was replaced meanwhile")  // by a result that is exported next
	errRoom      = errors.New("the disk of the store has no room for what is pushed")
)

// export exports a result, and before it those on which it stands.
func (c *Cache) export(ctx context.Context, name string) error {
	end, err := c.making.Lock(ctx, name) // a result waits for its base, and no base for what stands on it
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.ends.Store(name, cancel)
	defer c.ends.Delete(name)
	info, err := c.o.Namespace.Stat(ctx, name)
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return nil // pruned, or replaced
	case err != nil:
		return err
	case step.ContentOf(info) != "":
		return nil
	case info.Labels[step.LabelExport] == step.ExportNever:
		return errNotShared
	}
	base, err := c.baseOf(ctx, info)
	if err == nil {
		err = c.o.Namespace.Lease(ctx, exportLease, name, exportLeaseTime)
	}
	content := ""
	if err == nil {
		content, err = c.push(ctx, info, base)
	}
	if err == nil || errors.Is(err, errNotShared) { // not looked at again
		err = errors.Join(err, notFoundIsNil(c.label(ctx, info, content)))
	}
	if err != nil && errors.Is(context.Cause(ctx), errWithdrawn) {
		err = errWithdrawn // also of what was exported for one on it
	}
	after, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	return errors.Join(notFoundIsNil(err), notFoundIsNil(c.o.Namespace.Release(after, exportLease, name)))
}

// errWithdrawn is why an export ends whose result is going to be removed.
var errWithdrawn = errors.New("the result is being removed")

// Withdraw ends the export of a result, which would be in use as long as it is exported, and has none begin until release is
// called. It is there to remove the result. It can be called of a nil Cache.
func (c *Cache) Withdraw(ctx context.Context, name string) (release func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	for {
		end, busy := c.making.Try(name)
		if end != nil {
			return end, nil
		}
		if cancel, ok := c.ends.Load(name); ok {
			cancel.(context.CancelCauseFunc)(errWithdrawn)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-busy:
		case <-time.After(10 * time.Millisecond): // it can have begun just now
		}
	}
}

// notFoundIsNil is the error of something that need not be done if the snapshot is gone.
func notFoundIsNil(err error) error {
	if errors.Is(err, snapshot.ErrNotFound) {
		return nil
	}
	return err
}

// label notes the content of a result that was exported; "": it is not going to be.
func (c *Cache) label(ctx context.Context, info snapshot.Info, content string) error {
	info.Labels = maps.Clone(info.Labels)
	info.Labels[step.LabelContent] = content
	info.Labels[step.LabelExport] = ""
	if content == "" {
		info.Labels[step.LabelExport] = step.ExportNever
	}
	_, err := c.o.Namespace.Update(ctx, info, "labels."+step.LabelContent, "labels."+step.LabelExport)
	return err
}

// baseOf is the content of what a result stands on, which is exported first if it is a result, too.
func (c *Cache) baseOf(ctx context.Context, info snapshot.Info) (string, error) {
	if info.Parent == "" {
		return "", fmt.Errorf("%w: it has no base", errNotShared)
	}
	base, err := c.o.Namespace.Stat(ctx, info.Parent)
	if err != nil {
		return "", err
	}
	if content := step.ContentOf(base); content != "" {
		return content, nil
	}
	if _, ok := step.ParseSnapshot(base.Name); !ok || base.Labels[step.LabelUncached] != "" || base.Labels[step.LabelLocal] != "" {
		return "", fmt.Errorf("%w: its base %s is known only here", errNotShared, base.Name)
	}
	if err := c.export(ctx, base.Name); err != nil {
		return "", fmt.Errorf("its base %s: %w", base.Name, err)
	}
	if base, err = c.o.Namespace.Stat(ctx, info.Parent); err != nil {
		return "", err
	}
	if content := step.ContentOf(base); content != "" {
		return content, nil
	}
	return "", fmt.Errorf("%w: its base %s is known only here", errNotShared, base.Name)
}

// push makes the artifact of a result, and pushes it to all repositories. It returns what the result is by content.
func (c *Cache) push(ctx context.Context, info snapshot.Info, base string) (content string, err error) {
	dir, done, err := c.exports[0].Temporary()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	if err := c.room(ctx, info); err != nil {
		return "", err
	}
	d, err := image.ExportDelta(ctx, c.o.Namespace, info, dir, image.ExportOptions{Show: c.o.Show, Compression: image.CompressZstd})
	if errors.Is(err, image.ErrUnfit) {
		err = fmt.Errorf("%w: %w", errNotShared, err)
	}
	if err != nil {
		return "", err
	}
	s, err := c.statement(info, base, d)
	if err != nil {
		return "", err
	}
	document, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	// What was shown and recorded is of this one only if it is still there: a run with NoCache replaces it.
	if now, err := c.o.Namespace.Stat(ctx, info.Name); err != nil || now.ID != info.ID {
		return "", cmp.Or(err, errReplaced)
	}
	id, _ := step.ParseSnapshot(info.Name)
	var failed []error
	for _, r := range c.exports { // one that is gone keeps nothing from the others
		err := c.pushTo(ctx, r, dir, document, d.Blob, tag(id, base))
		r.count(func(f *Figures) {
			switch {
			case err == nil:
				f.Exported, f.ExportedBytes = f.Exported+1, f.ExportedBytes+uint64(d.Blob.Size)
			case ctx.Err() == nil:
				f.ExportFailed++
			}
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("%w: %w", errPush, err))
		}
	}
	return s.content(), errors.Join(failed...)
}

// pushTo pushes the artifact of a result, whose layer is in dir, to one repository.
func (c *Cache) pushTo(ctx context.Context, r *repository, dir string, document []byte, layer v1.Descriptor, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.PushTime+time.Duration(layer.Size/c.rate)*time.Second)
	defer cancel()
	m, err := image.Seal(dir, document, StatementType, v1.Manifest{Layers: []v1.Descriptor{layer}, Annotations: sign(r.o.Key, document)})
	if err != nil {
		return err
	}
	return r.to.Push(ctx, dir, m.Digest, tag)
}

// room is an error if there is too little of it for what is pushed of a result: it would be missing to steps.
func (c *Cache) room(ctx context.Context, info snapshot.Info) error {
	u, err := c.o.Namespace.Usage(ctx, info.Name)
	if err != nil {
		return err
	}
	if fs, err := disk.Measure(c.o.Namespace.Store().Root()); err == nil && u.Size > fs.Free/2 {
		return fmt.Errorf("%w: up to %d bytes, and %d are free", errRoom, u.Size, fs.Free)
	}
	return nil
}

// outputCut is in place of what does not fit.
const outputCut = "\n[the rest of the output is left out]\n"

// statement says what a result is.
func (c *Cache) statement(info snapshot.Info, base string, d image.Delta) (*Statement, error) {
	id, ok := step.ParseSnapshot(info.Name)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not the result of a step", errNotShared, info.Name)
	}
	s := &Statement{Version: statementVersion, Step: id.String(), Base: base, Platform: platform, Layer: d.Blob, DiffID: d.DiffID, Created: info.Created}
	res, err := c.recorded(info)
	if errors.Is(err, step.ErrNotFound) || errors.Is(err, step.ErrCorrupt) { // what it has written is lost
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.Output, s.OutputSize = res.Output, res.OutputSize
	if cut := maxOutput - len(outputCut); len(s.Output) > maxOutput {
		s.Output = append(s.Output[:cut:cut], outputCut...)
	}
	s.Duration, s.UserTime, s.SystemTime, s.Memory = res.Duration, res.Usage.User, res.Usage.System, res.Usage.Memory
	return s, nil
}
