package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"holdfast/worker/internal/fstree"
)

// Digest is a SHA-256 of what a driver keeps of a snapshot.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal, after "sha256:".
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// DigestOptions say how a Digester reads.
type DigestOptions struct {
	// Fresh has content read from the disk where the system can be asked for that, and not from
	// the memory in which it keeps what was read or written lately.
	Fresh bool

	// Read is called with the number of bytes that were read since its last call. It may wait.
	// Its error ends the reading, and is returned. nil: nothing is called.
	Read func(n int64) error
}

// usable is an error if the content of a committed snapshot is not to be used.
func (s *Store) usable(r *record) error {
	if r.flags&flagDamaged != 0 {
		return ErrDamaged
	}
	return s.trusts(r)
}

func (r *record) forgetDigest() {
	r.flags &^= flagPending | flagDigest | flagDamaged
	r.digest, r.verified = Digest{}, 0
}

// due is where a snapshot stands in the bucket verified, if it is there: at 0 when its digest is to be
// computed.
func (r *record) due() (when uint64, ok bool) {
	return r.verified, r.flags&(flagPending|flagDigest) != 0
}

// reschedule enters into the bucket verified that the record was was, and becomes is.
func (t *txn) reschedule(was, is *record) error {
	before, had := was.due()
	after, has := is.due()
	if had && has && before == after {
		return nil
	}
	if had {
		if err := t.delete(inVerified, numbers(before, uint64(was.id))); err != nil {
			return err
		}
	}
	if has {
		return t.put(inVerified, numbers(after, uint64(is.id)), nil)
	}
	return nil
}

// nextDue is the first snapshot in the bucket verified after a place; false if there is none
// before end.
func (s *Store) nextDue(after place, end uint64) (p place, ok bool, err error) {
	err = s.view("due", func(t *txn) error {
		return t.scan(inVerified, nil, numbers(after.used, uint64(after.id)+1), func(k, _ []byte) (bool, error) {
			when, id, err := fixed("verified", k, 2)
			p, ok = place{when, ID(id)}, err == nil && when < end
			return false, err
		})
	})
	return p, ok, err
}

// chore is what is done after commits, in the background or by who waits for it.
type chore struct {
	wake chan struct{}
	one  chan struct{} // full while it is done
}

func newChore() chore { return chore{make(chan struct{}, 1), make(chan struct{}, 1)} }

// runChore does a chore when it is woken, and first what was left, until the store closes.
func (s *Store) runChore(c *chore, what string, do func(context.Context) error) {
	for {
		if err := do(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Error(what+" failed; it is tried again with the next one", "error", err)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-c.wake:
		}
	}
}

// begin waits until nothing else does the chore.
func (c *chore) begin(ctx context.Context) (end func(), err error) {
	select {
	case c.one <- struct{}{}:
		return func() { <-c.one }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Digested computes the digests that are to be computed, which the store else does in the background, and
// returns when there are none left. Those of snapshots that are ErrDistrusted wait for Trust.
// If one fails the others are computed all the same.
func (s *Store) Digested(ctx context.Context) error {
	end, err := s.digests.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	var errs []error
	for at := (place{}); ; {
		next, ok, err := s.nextDue(at, 1)
		if err != nil || !ok {
			return errors.Join(append(errs, err)...)
		}
		at = next
		_, err = s.look(ctx, at.id, DigestOptions{})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDistrusted):
			errs = append(errs, fmt.Errorf("digest of snapshot %v: %w", at.id, err))
		}
	}
}

// looked is what was found when the content of a snapshot was looked at.
type looked struct {
	namespace, name string
	digest          Digest // that it should have
	found           Digest // zero if it could not be read
	unreadable      error
	damaged         bool
	first           bool // it had no digest before
}

// err is ErrDamaged if that was found.
func (l *looked) err() error {
	switch {
	case !l.damaged:
		return nil
	case l.unreadable != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, l.unreadable)
	}
	return fmt.Errorf("%w: its digest is %v, and should be %v", ErrDamaged, l.found, l.digest)
}

// recorded gives the committed snapshot with an ID; ErrNotFound if it was removed.
func (t *txn) recorded(id ID) ([]byte, record, error) {
	v, err := t.get(inIDs, number(uint64(id)))
	if err == nil && v == nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, record{}, err
	}
	key, r, err := t.byID(id)
	if err == nil && r.kind != Committed {
		err = fmt.Errorf("%w: %v, not committed", ErrKind, r.kind)
	}
	return key, r, err
}

// look computes the digest of a committed snapshot and keeps it, or compares it with the one that it has.
// The metadata are read before and changed afterwards, so no transaction waits meanwhile.
func (s *Store) look(ctx context.Context, id ID, o DigestOptions) (looked, error) {
	d, ok := s.driver.(Digester)
	if !ok {
		return looked{}, fmt.Errorf("digests of content: %w by driver %s", ErrUnsupported, s.driver.Name())
	}
	var before record
	err := s.view("look", func(t *txn) (err error) {
		if _, before, err = t.recorded(id); err == nil && before.flags&flagDigest == 0 {
			err = s.trusts(&before) // its digest must be that of the whole
		}
		return err
	})
	if err != nil {
		return looked{}, err
	}
	if f := s.reaper.finisher; f != nil && !f.Finished(s.layer(id)) {
		err = s.finishOne(f, id)
	}
	var sum Digest
	if err == nil {
		sum, err = d.Digest(ctx, s.layer(id), o)
	}
	had := before.flags&flagDigest != 0
	if err != nil && (!had || ctx.Err() != nil || !fstree.IsGone(err)) {
		return looked{}, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
	}
	l := looked{found: sum, unreadable: err}
	if err := s.update("looked", func(t *txn) error { return t.looked(id, &before, &l) }); err != nil {
		return looked{}, err
	}
	if l.damaged && before.flags&flagDamaged == 0 { // once
		s.log.Error("the content of a snapshot is damaged", "namespace", l.namespace, "snapshot", l.name, "ID", id, "error", l.err())
	}
	return l, nil
}

// looked enters what was found of a snapshot, whose record was before when that began.
func (t *txn) looked(id ID, before *record, l *looked) error {
	key, r, err := t.recorded(id)
	if err != nil {
		return err
	}
	if l.namespace, l.name, err = splitKey(key); err != nil {
		return err
	}
	was := r
	l.first = r.flags&flagDigest == 0
	switch {
	case before.flags&flagDigest != 0 && (l.first || r.digest != before.digest):
		return nil // Trust was called meanwhile, so it is computed anew
	case before.flags&^r.flags&flagDamaged != 0:
		return nil // it was repaired meanwhile, and what was read may be what it had before
	case l.first:
		if err := t.store.trusts(&r); err != nil {
			return err
		}
		r.flags = r.flags&^flagPending | flagDigest
		r.digest = l.found
	}
	l.digest = r.digest
	l.damaged = l.unreadable != nil || l.found != r.digest
	r.flags &^= flagDamaged
	if l.damaged {
		r.flags |= flagDamaged
	} else if t.store.trusts(&r) != nil {
		r.commit = 0 // it was the same before the machine went down: all of it is on the disk
	}
	r.verified = t.store.now()
	if err := t.reschedule(&was, &r); err != nil {
		return err
	}
	return t.save(key, &r, r.used)
}

// Digest gives the digest of a committed snapshot, without its parents. If it has none yet, that is
// computed now, and kept. What it covers is the driver's: see Digester.
func (t *Namespace) Digest(ctx context.Context, name string) (Digest, error) {
	r, err := t.digested(name)
	if err == nil && r.flags&flagDigest != 0 {
		return r.digest, nil
	}
	var l looked
	if err == nil {
		l, err = t.s.look(ctx, r.id, DigestOptions{})
	}
	if err != nil {
		return Digest{}, fmt.Errorf("digest of snapshot %q: %w", name, err)
	}
	return l.digest, nil
}

// digested is the record of a committed snapshot.
func (t *Namespace) digested(name string) (r record, err error) {
	err = t.s.view("digest", func(tx *txn) error {
		if r, err = tx.record(t.key(name)); err == nil && r.kind != Committed {
			err = fmt.Errorf("%w: %v, not committed", ErrKind, r.kind)
		}
		return err
	})
	return r, err
}

// Verify reads the content of a committed snapshot, from the disk where the system can be asked for
// that, and compares it with its digest. ErrDamaged if it is another one, if it is not there, or if the
// disk cannot read it: from then on nothing is made or mounted that stands on the snapshot; what is
// mounted stays so. If it is the same one, that is over, and so is ErrDistrusted.
// ErrNoDigest if there is nothing to compare with; if its digest is still to be computed, that is done now.
// Other errors, as of permissions, say nothing of the content. Parents are not looked at.
func (t *Namespace) Verify(ctx context.Context, name string) error {
	r, err := t.digested(name)
	if err == nil && r.flags&(flagDigest|flagPending) == 0 {
		err = ErrNoDigest
	}
	var l looked
	if err == nil {
		l, err = t.s.look(ctx, r.id, DigestOptions{Fresh: true})
	}
	if err == nil {
		err = l.err()
	}
	if err != nil {
		return fmt.Errorf("verify snapshot %q: %w", name, err)
	}
	return nil
}

// ScrubOptions say what Scrub does.
type ScrubOptions struct {
	// Before is when a snapshot must have been looked at for it not to be looked at again. Zero, or what has not
	// come yet: now, so all are.
	Before time.Time

	// Rate is how many bytes are read in a second, on the average. 0: as many as can be.
	Rate int64

	// Progress is called after each snapshot. nil: it is not.
	Progress func(ScrubProgress)
}

// ScrubProgress is how far Scrub is.
type ScrubProgress struct {
	Looked  int   // snapshots that were compared with their digests, Damaged included
	Digests int   // snapshots of which a digest was computed that was still to be
	Failed  int   // snapshots that could not be looked at
	Bytes   int64 // read of all of these
	Damaged []DamagedSnapshot
}

// DamagedSnapshot is one that Scrub has found to be damaged.
type DamagedSnapshot struct {
	Namespace, Name string
	ID              ID
	Err             error // ErrDamaged, with what was found
}

// Scrub does what Verify does with all snapshots that have a digest, those that were not looked at for
// the longest time first. What it has found it keeps with each: when it is interrupted, the next
// Scrub goes on with those that are left; with the same Before it is only those. Damaged snapshots are no
// error. A snapshot that cannot be looked at is logged, counted, and passed over.
func (s *Store) Scrub(ctx context.Context, o ScrubOptions) (ScrubProgress, error) {
	var p ScrubProgress
	if now := timeOf(s.now()); o.Before.IsZero() || o.Before.After(now) { // or what was verified would be due again
		o.Before = now
	}
	pace := pace{ctx: ctx, rate: o.Rate, began: time.Now()}
	options := DigestOptions{Fresh: true, Read: func(n int64) error {
		p.Bytes += n
		return pace.read(n)
	}}
	end := uint64(max(o.Before.UnixNano(), 1)) // 1: those without a digest yet, always
	for at := (place{}); ; {
		next, ok, err := s.nextDue(at, end)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return p, fmt.Errorf("scrub: %w", err)
		}
		if !ok {
			return p, nil
		}
		at = next
		l, err := s.look(ctx, at.id, options)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return p, fmt.Errorf("scrub: %w", err)
		case errors.Is(err, ErrNotFound): // removed meanwhile
			continue
		case err != nil:
			p.Failed++
			s.log.Warn("a snapshot could not be verified", "ID", at.id, "error", err)
		case l.first:
			p.Digests++
		default:
			p.Looked++
		}
		if l.damaged {
			p.Damaged = append(p.Damaged, DamagedSnapshot{l.namespace, l.name, at.id, l.err()})
		}
		if o.Progress != nil {
			o.Progress(p)
		}
	}
}

// pace bounds a rate.
type pace struct {
	ctx   context.Context
	rate  int64
	began time.Time
	bytes int64
}

// read waits until n bytes more may have been read.
func (p *pace) read(n int64) error {
	if p.rate <= 0 {
		return p.ctx.Err()
	}
	p.bytes += n
	ahead := time.Duration(float64(p.bytes)/float64(p.rate)*float64(time.Second)) - time.Since(p.began)
	if ahead < time.Millisecond { // what is less is made up for later
		return p.ctx.Err()
	}
	wait := time.NewTimer(ahead)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}
