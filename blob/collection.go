package blob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast"
)

// Collect in many transactions; collect.go has what one of them does.

// CollectOptions are options of Collect.
type CollectOptions struct {
	// Hold is for how long a transaction may keep other writers waiting, as far as
	// can be foreseen from those before. 0: 3 ms.
	Hold time.Duration
	// Progress is called after each transaction.
	Progress func(CollectStats)
}

// CollectStats tells what Collect has done.
type CollectStats struct {
	Chunks       int64         // removed
	Bytes        int64         // of these, as they were stored
	Leases       int64         // blobs of expired leases that were given back, and such leases
	Ingests      int64         // expired ones that were given up
	Transactions int           // committed
	Longest      time.Duration // for which one of them kept other writers waiting
	Damaged      int           // chunks passed over
	FirstDamaged error         // of these; nil if there is none
}

// Collect frees all that deleted blobs leave in the store that open opens,
// in many small transactions, so that others can write in between. It ends early
// with the context's error; what is left is freed by the next call, as after a
// crash. Damaged chunks are passed over and counted: they are not an error.
// Several calls may run at the same time.
func Collect(ctx context.Context, db *holdfast.DB, open func(*holdfast.Tx) (*Store, error), o CollectOptions) (CollectStats, error) {
	if o.Hold <= 0 {
		o.Hold = 3 * time.Millisecond
	}
	r := collection{db: db, open: open, o: o, batch: collectPiece, now: time.Now}
	for !r.done {
		if err := ctx.Err(); err != nil {
			return r.stats, err
		}
		if err := r.transaction(); err != nil {
			return r.stats, err
		}
		if o.Progress != nil {
			o.Progress(r.stats)
		}
	}
	return r.stats, nil
}

// collection is a call of Collect.
type collection struct {
	db    *holdfast.DB
	open  func(*holdfast.Tx) (*Store, error)
	o     CollectOptions
	c     collector
	look  look
	batch int // chunks in a transaction
	stats CollectStats
	done  bool
	now   func() time.Time

	begun   bool // nothing is left of earlier ones
	freeing freeing
	frees   bool // transactions delete bytes; else they take chunks off the index
	deletes int  // batch of the other kind of transaction
}

// transaction does a piece. Where the file itself is damaged the transaction is
// lost, and the chunk that was met there is passed over by the next.
func (r *collection) transaction() error {
	before := *r
	before.c.from = append([]byte(nil), r.c.from...)
	var (
		worked bool // else it has only looked
		held   time.Duration
		tx     *holdfast.Tx
	)
	err := r.db.Update(func(t *holdfast.Tx) error {
		begin := r.now()
		tx = t
		s, err := r.open(t)
		if err != nil {
			return err
		}
		r.c.s, r.done = s, false
		if err := firstError(r.freeing.begin(s), r.resume(s)); err != nil {
			return err
		}
		if r.frees {
			worked, err = true, r.free(begin)
		} else {
			worked, err = r.remove(begin)
		}
		if err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
		held = r.now().Sub(begin)
		return nil
	})
	r.c.s = nil
	if err != nil {
		return r.undo(&before, err)
	}
	held += tx.Stats().SpillTime
	r.stats.Transactions++
	r.stats.Longest = max(r.stats.Longest, held)
	r.stats.Damaged, r.stats.FirstDamaged = len(r.c.skip)+len(r.freeing.skip), r.c.first
	if worked {
		r.adapt(held)
	}
	r.turn()
	return nil
}

// resume takes up what an earlier Collect has left.
func (r *collection) resume(s *Store) error {
	if r.begun || r.frees {
		return nil
	}
	f := &r.freeing
	if err := f.take(s); err != nil {
		return err
	}
	r.frees = len(f.records) > 0
	r.begun = !r.frees
	return nil
}

// remove is a transaction that takes chunks off the index.
func (r *collection) remove(begin time.Time) (worked bool, err error) {
	s, n := r.c.s, r.batch
	for none := r.look.count; !r.look.done() && n > 0 && (r.look.count == none || r.now().Sub(begin) < r.o.Hold); {
		var e expired
		if err := s.expireSome(&r.look, begin, n, &e); err != nil {
			return false, err
		}
		r.stats.Leases += int64(e.leases)
		r.stats.Ingests += int64(e.ingests)
		n -= e.steps
	}
	worked = r.look.done() || n < r.batch
	// Something is done in any case, or it would never end.
	for first := true; r.look.done() && n > 0 && !r.c.done() && (first || r.now().Sub(begin) < r.o.Hold); first = false {
		if err := r.c.some(min(n, collectPiece)); err != nil {
			return false, err
		}
		r.stats.Chunks += int64(r.c.removed)
		r.stats.Bytes += r.c.bytes
		n -= r.c.removed
	}
	f := &r.freeing
	if len(r.c.freed) > 0 {
		noted, err := s.noteFreed(r.c.freed)
		if err != nil {
			return false, err
		}
		f.ids, f.records = append(f.ids, r.c.freed...), append(f.records, noted)
		r.c.freed = r.c.freed[:0]
	}
	r.done = r.look.done() && r.c.done() && len(f.ids) == 0
	return worked, nil
}

// free is a transaction that deletes bytes.
func (r *collection) free(begin time.Time) error {
	for n := r.batch; n > 0; n -= collectPiece {
		if err := r.freeing.some(r.c.s, min(n, collectPiece)); err != nil {
			return err
		}
		if r.freeing.done() || r.now().Sub(begin) >= r.o.Hold {
			break
		}
	}
	return nil
}

// turn goes on with the other kind of transaction when one is done.
func (r *collection) turn() {
	f := &r.freeing
	was := r.frees
	switch {
	case !r.frees && len(f.ids) > 0 && (r.c.done() || f.full()):
		slices.SortFunc(f.ids, freedID.compare)
		f.at, f.looks, r.frees = 0, false, true
	case r.frees && f.done():
		f.ids, f.records, f.at, r.frees = f.ids[:0], nil, 0, false
		r.done = r.begun && r.look.done() && r.c.done()
	}
	if r.frees != was {
		r.batch, r.deletes = max(r.deletes, collectPiece), r.batch
	}
}

// undo restores the state before a transaction that failed with err. If that is the damage of a chunk, the next transaction passes
// over the chunk, and undo returns nil.
func (r *collection) undo(before *collection, err error) error {
	at, skip, first := r.c.at, r.c.skip, r.c.first
	id, fails := r.freeing.failed, r.freeing.fails
	deleted := r.freeing.at - before.freeing.at
	if !fails && deleted == 1 { // the commit met the damage
		id, fails = r.freeing.ids[r.freeing.at-1], true
	}
	*r = *before
	r.done = false
	r.c.skip, r.c.first = skip, first
	var damage *holdfast.CorruptError
	if !errors.As(err, &damage) {
		return err
	}
	switch {
	case !fails && deleted > 1:
		r.batch = 1 // the commit does not say for which of them it met the damage
		return nil
	case fails:
		if r.c.first == nil {
			r.c.first = fmt.Errorf("deleting the bytes of a chunk: %w", err)
		}
		return r.freeing.pass(id, err)
	}
	if at == nil {
		return err
	}
	if _, again := r.c.skip[*at]; again {
		return err
	}
	r.c.pass(*at, err)
	return nil
}

// adapt chooses how much the next transaction does, from what the last one took.
func (r *collection) adapt(held time.Duration) {
	switch {
	case held > r.o.Hold:
		r.batch = max(1, int(float64(r.batch)*float64(r.o.Hold)/float64(held)))
	case held < r.o.Hold/4*3:
		r.batch = min(2*r.batch, 1<<16)
	}
}
