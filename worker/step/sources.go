package step

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"holdfast"
	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
)

// What steps see of the host read-only, and what is copied into them, is known by its content: key.go has
// its digest in the ID. This file computes it, and remembers it in results.db with the stamp that the tree
// had.
//
// That a step saw the content whose digest is in its ID is found out afterwards: the stamp is taken again,
// of the mount that the step had. If it is another one the result gets an ID of its own. Copying each tree
// before would make it exact without that, and would cost a copy of the tree in each run where the file
// system cannot share blocks.

// source is a directory or file of the host, and its content.
type source struct {
	path     string
	dir      bool
	anyOwner bool
	sum      fstree.Sum
	stamp    fstree.Stamp
	exact    bool  // each change makes another stamp
	unknown  error // why its content is not known
	unmapped bool  // the step has a user namespace, and its files belong to no user of it
}

// looks has one look at a path at a time: others then find what it has found. Different paths may have to
// wait for each other.
type looks []chan struct{}

const lookStripes = 64

func newLooks() looks {
	l := make(looks, lookStripes)
	for i := range l {
		l[i] = make(chan struct{}, 1)
	}
	return l
}

// take waits until nothing else looks at what has a key.
func (l looks) take(ctx context.Context, key fstree.Sum) (end func(), err error) {
	c := l[int(key[0])%len(l)]
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lookTries is how often a tree is read that changes meanwhile.
const lookTries = 3

// look finds out the digest of a source. That it cannot be known, since it keeps changing, or something in
// it cannot be read or has no content, is not an error.
func (r *Runner) look(ctx context.Context, path string, anyOwner bool) (source, error) {
	s := source{path: path, anyOwner: anyOwner}
	if _, err := os.Stat(path); err != nil {
		return s, err
	}
	key := sourceKey(path, anyOwner)
	end, err := r.looks.take(ctx, key)
	if err != nil {
		return s, err
	}
	defer end()
	for range lookTries {
		if err = s.look(ctx, r, key); !errors.Is(err, fstree.ErrChanged) {
			break
		}
	}
	switch {
	case errors.Is(err, fstree.ErrChanged), errors.Is(err, fstree.ErrSpecial), errors.Is(err, fs.ErrPermission):
		s.unknown, err = err, nil
	}
	return s, err
}

func sourceKey(path string, anyOwner bool) fstree.Sum {
	return sha256.Sum256(fmt.Appendf(nil, "source 1 %t %s", anyOwner, path))
}

// look is one try.
func (s *source) look(ctx context.Context, r *Runner, key fstree.Sum) (err error) {
	f, err := fstree.OpenSource(s.path)
	if err != nil {
		return raced(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.dir = info.IsDir()
	if s.stamp, s.exact, err = stampOf(ctx, f); err != nil {
		return raced(err)
	}
	if s.exact {
		if sum, ok := r.results.source(key, s.stamp.Sum); ok {
			s.sum = sum
			return nil
		}
	}
	if s.sum, err = fstree.DigestSource(ctx, f, s.anyOwner); err != nil {
		return raced(err)
	}
	again, err := fstree.StampOf(ctx, f)
	if err != nil {
		return raced(err)
	}
	if again.Sum != s.stamp.Sum {
		return fmt.Errorf("%s: %w", s.path, fstree.ErrChanged)
	}
	if !s.exact {
		return nil
	}
	if err := r.results.putSource(key, s.stamp.Sum, s.sum); err != nil {
		r.log.Warn("the digest of a source is not remembered", "source", s.path, "reason", err)
	}
	return nil
}

// raced is an error of reading a tree, ErrChanged if it is that something in it was taken away or replaced meanwhile.
func raced(err error) error {
	for _, gone := range []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.ELOOP, syscall.ESTALE} {
		if errors.Is(err, gone) {
			return fmt.Errorf("%w: %w", fstree.ErrChanged, err)
		}
	}
	return err
}

// mostAhead is how much later than now something can have been changed by the same clock.
const mostAhead = 50 * time.Millisecond

// stampOf is the stamp of a tree, taken when the last change of it was some time ago: a further one then
// makes another stamp. A tree that was changed just now is waited for. exact is false if that cannot be
// had, as its clock is not that of this machine.
func stampOf(ctx context.Context, source *os.File) (stamp fstree.Stamp, exact bool, err error) {
	for range lookTries {
		begun := time.Now()
		stamp, err = fstree.StampOf(ctx, source)
		if err != nil || stamp.Foreign {
			return stamp, false, err
		}
		if time.Unix(0, stamp.Changed).Sub(begun) > mostAhead { // from the future
			return stamp, false, nil
		}
		wait := time.Unix(0, stamp.Settled).Sub(begun)
		if wait <= 0 {
			return stamp, true, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return stamp, false, ctx.Err()
		}
	}
	return stamp, false, nil
}

// changed tells whether what is open is another content than that of the source. It is when that is not known.
func (s *source) changed(ctx context.Context, now *os.File) (bool, error) {
	stamp, err := fstree.StampOf(ctx, now)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil || stamp.Sum != s.stamp.Sum {
		return true, nil //nolint:nilerr // what cannot be read any more has changed
	}
	if s.exact {
		return false, nil
	}
	sum, err := fstree.DigestSource(ctx, now, s.anyOwner)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err != nil || sum != s.sum, nil
}

// recheck says, after the command, why the result is not cached: for what was known before, or since a
// mount has another content than when the step was looked up.
func (r *Runner) recheck(f *flight, binds []*mount.Handle) (uncached string, err error) {
	if f.plan.uncached != "" {
		return f.plan.uncached, nil
	}
	for i, s := range f.plan.mounts {
		if s.path == "" {
			continue
		}
		changed := true
		seen, err := fstree.OpenSource(binds[i].Path())
		if err == nil {
			changed, err = s.changed(f.ctx, seen)
			err = errors.Join(err, seen.Close())
		}
		if err != nil {
			return "", r.fault(f, err)
		}
		if changed {
			return "what is at " + f.step.Mounts[i].Target + " was changed meanwhile", nil
		}
	}
	return "", nil
}

// The bucket sources is a table of so many places, where a source has the one that its key says: so it does
// not grow. Each has the key, the stamp and the digest.
const (
	sourcePlaces = 4096
	sourceSize   = 3 * sha256.Size
)

func sourcePlace(key fstree.Sum) []byte {
	n := (int(key[0])<<8 | int(key[1])) % sourcePlaces
	return []byte{byte(n >> 8), byte(n)}
}

// source is the digest of a source that had a stamp.
func (r *results) source(key, stamp fstree.Sum) (sum fstree.Sum, ok bool) {
	err := r.view(func(tx *holdfast.Tx) error {
		b := tx.Bucket(inSources)
		if b == nil {
			return nil
		}
		r.touched("source", 1)
		v := b.Get(sourcePlace(key))
		if len(v) == sourceSize && fstree.Sum(v) == key && fstree.Sum(v[len(key):]) == stamp {
			sum, ok = fstree.Sum(v[2*len(key):]), true
		}
		return nil
	})
	return sum, ok && err == nil
}

// putSource remembers the digest of a source that has a stamp.
func (r *results) putSource(key, stamp, sum fstree.Sum) error {
	v := append(append(append(make([]byte, 0, sourceSize), key[:]...), stamp[:]...), sum[:]...)
	// Not with r.update: it is not worth the room that is kept for when the disk is full.
	return r.db.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket(inSources)
		if b == nil {
			return fmt.Errorf("%w: a bucket is missing", ErrCorrupt)
		}
		r.touched("source", 1)
		return b.Put(sourcePlace(key), v)
	})
}
