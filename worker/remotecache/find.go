package remotecache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/worker/disk"
	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/registry"
	"holdfast/worker/step"
)

// Find looks for the result of a step on a base in the repositories, one after the other.
func (c *Cache) Find(ctx context.Context, id step.ID, base string) (*step.RemoteResult, error) {
	var errs []error
	for _, r := range c.imports {
		if r.paused() > 0 {
			continue
		}
		begun := time.Now()
		found, err := c.find(ctx, r, id, base)
		if err != nil && ctx.Err() == nil && time.Since(begun) > c.o.FindTime/slowShare {
			c.log.Warn("a repository is slow", "repository", r.String(), "took", time.Since(begun), "reason", r.pauseFor(err))
		}
		switch {
		case err == nil:
			return found, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, registry.ErrNotFound):
			r.count(func(f *Figures) { f.Missed++ })
		default:
			errs = append(errs, fmt.Errorf("%s: %w", r, r.failed(err)))
		}
	}
	return nil, errors.Join(errs...)
}

// failed counts an error of fetching, and blames the repository for it.
func (r *repository) failed(err error) error {
	r.count(func(f *Figures) {
		if errors.Is(err, ErrRefused) || errors.Is(err, image.ErrDigest) {
			f.Refused++
		} else {
			f.Failed++
		}
	})
	return r.blame(err)
}

// find asks a repository.
func (c *Cache) find(ctx context.Context, r *repository, id step.ID, base string) (*step.RemoteResult, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.FindTime)
	defer cancel()
	a, err := r.Artifact(ctx, tag(id, base))
	if err != nil {
		return nil, err
	}
	if a.Manifest.Config.MediaType != StatementType {
		return nil, fmt.Errorf("%w: its config is of the type %.100q", ErrRefused, a.Manifest.Config.MediaType)
	}
	b, err := a.Document(ctx, a.Manifest.Config, maxDocument)
	if errors.Is(err, registry.ErrNotFound) { // the tag stays when a registry has lost a blob: it is none of those that are missed
		return nil, fmt.Errorf("%w: its statement is missing", image.ErrFormat)
	}
	if err != nil {
		return nil, err
	}
	if !r.o.Unsigned {
		if err := verify(r.o.Trusted, b, a.Manifest.Annotations); err != nil {
			return nil, err
		}
	}
	s, err := parse(b, id, base)
	if err != nil {
		return nil, err
	}
	return &step.RemoteResult{
		From: r.String(), Content: s.content(), Output: s.Output, OutputSize: s.OutputSize, Duration: s.Duration,
		Usage: step.Usage{User: s.UserTime, System: s.SystemTime, Memory: s.Memory},
		Fill: func(ctx context.Context, mounts []mount.Mount, parent string) error {
			return c.fill(ctx, r, a, s, mounts, parent)
		},
	}, nil
}

// fill extracts the layer of a result.
func (c *Cache) fill(ctx context.Context, r *repository, a *registry.Artifact, s *Statement, mounts []mount.Mount, parent string) error {
	f, done, err := c.layer(ctx, a, s)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT); !full {
			err = r.failed(err)
		}
		return fmt.Errorf("%s: %w", r, err)
	}
	limits := c.o.Limits
	limits.Bytes = c.most(8) // what else runs would find the disk full
	err = image.ApplyDelta(ctx, mounts, parent, s.delta(), f, image.Options{Limits: limits, Mounts: c.o.Mounts})
	r.count(func(f *Figures) {
		switch {
		case err == nil:
			f.Fetched, f.FetchedBytes = f.Fetched+1, f.FetchedBytes+uint64(s.Layer.Size)
		case errors.Is(err, image.ErrDigest), errors.Is(err, image.ErrFormat), errors.Is(err, image.ErrUnsafe), errors.Is(err, image.ErrLimit):
			f.Refused++
		case ctx.Err() == nil:
			f.Failed++
		}
	})
	return errors.Join(err, f.Close(), done())
}

// most is how many bytes may be written: as the limits are, and of what is free all but one in so many.
func (c *Cache) most(share int64) int64 {
	most := cmp.Or(c.o.Limits.Bytes, image.DefaultBytes)
	if fs, err := disk.Measure(c.o.Namespace.Store().Root()); err == nil {
		most = min(most, max(fs.Free-fs.Free/share, 1))
	}
	return most
}

// layer downloads the layer of a result.
func (c *Cache) layer(ctx context.Context, a *registry.Artifact, s *Statement) (f *os.File, done func() error, err error) {
	most := c.most(2) // the layer, and what is extracted
	ctx, moved, end := c.pace(ctx)
	defer end()
	f, done, err = a.Blob(ctx, s.Layer, most, moved)
	if errors.Is(err, registry.ErrNotFound) {
		err = fmt.Errorf("%w: its layer is missing", image.ErrFormat)
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, registry.ErrStalled) {
		err = cause
	}
	return f, done, err
}

// pace ends a download that brings less than fillRate after the time to begin. moved is told what it brings.
func (c *Cache) pace(ctx context.Context) (_ context.Context, moved func(int64), end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := time.Now()
	var got, most atomic.Int64
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(c.o.FillTime, func() {
		<-ready
		due := c.o.FillTime + time.Duration(float64(most.Load())/fillRate*float64(time.Second))
		if left := due - time.Since(begun); left > 0 {
			timer.Reset(left)
			return
		}
		cancel(fmt.Errorf("%w worth mentioning: %d bytes in %v", registry.ErrStalled, most.Load(), time.Since(begun).Round(time.Second)))
	})
	close(ready)
	moved = func(n int64) { // what is brought once more counts once
		if now := got.Add(n); now > most.Load() {
			most.Store(now)
		}
	}
	return ctx, moved, func() { timer.Stop(); cancel(nil) }
}
