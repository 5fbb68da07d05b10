package blob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast"
)

// Collect frees what deleted blobs leave: at most limit chunks, and more
// tells whether there is more to free. A removed chunk that is a node
// releases its children, which may then be removed as well; leaves are removed
// without being read. When nothing is left, what leases hold that have expired is given
// back, ingests that have expired are given up, both of which count against limit too, and what that leaves
// is freed: so one call in a row of them looks at all leases and ingests. What is
// left stays marked in the store, so it does not
// matter when it goes on, nor in which transaction. A limit below 1 is ErrOptions.
//
// A chunk that is damaged or missing is passed over and stays marked. When only
// such chunks are left the error names the first and wraps ErrCorrupt or
// ErrMissing; the transaction can be committed all the same, unless the file
// itself is damaged there (holdfast.CorruptError). Check can repair them.
func (s *Store) Collect(limit int) (removed int, more bool, err error) {
	if err := s.ended(); err != nil {
		return 0, false, err
	}
	if limit < 1 {
		return 0, false, fmt.Errorf("collect: %w: at most %d chunks", ErrOptions, limit)
	}
	var l look
	return s.collect(&l, limit)
}

// collect is Collect, which goes on with a look.
func (s *Store) collect(l *look, limit int) (removed int, more bool, err error) {
	c := collector{s: s}
	removed, more, err = s.collectSome(&c, l, limit)
	slices.SortFunc(c.freed, freedID.compare)
	for _, id := range c.freed {
		if err := s.deleteFreed(id, false); err != nil {
			return removed, false, err
		}
	}
	return removed, more, err
}

func (s *Store) collectSome(c *collector, l *look, limit int) (removed int, more bool, err error) {
	s.changes++
	for given := 0; removed+given < limit; {
		if err := c.some(limit - removed - given); err != nil {
			return removed + c.removed, false, err
		}
		removed += c.removed
		switch {
		case !c.done() || removed+given == limit:
			continue
		case !l.done():
			e, err := s.expire(l, time.Now(), limit-removed-given)
			if err != nil {
				return removed, false, err
			}
			if given += e.steps; e.steps > 0 {
				continue
			}
		}
		n, err := s.deleteNoted(limit - removed - given)
		if err != nil {
			return removed, false, err
		}
		if given += n; n > 0 {
			continue
		}
		if removed+given > 0 && len(c.skip) > 0 {
			return removed, true, s.flush() // the next call tells of them
		}
		return removed, false, errors.Join(s.flush(), c.first)
	}
	return removed, true, s.flush()
}

// collectBatch is how many chunks are taken up at once: so many nodes are held.
const collectBatch = 64

// collectPiece is how many chunks are removed between two looks at the clock.
const collectPiece = 16

// collector removes dead chunks, in passes over the marks in the order of their
// keys. What a removed node releases may lie before it: it is met in the next
// pass.
type collector struct {
	s *Store

	from  []byte                // where the pass goes on
	nodes bool                  // the pass has removed nodes
	ended bool                  // the pass has come to its end
	skip  map[chunkKey]struct{} // damaged
	first error                 // of these

	// Of the last call of some.
	removed int
	bytes   int64
	at      *chunkKey // being worked at when it failed

	batch []condemned
	freed []freedID // whose bytes are still there
}

type condemned struct {
	key  chunkKey
	e    entry
	node node
}

// done tells whether nothing is left but what is damaged.
func (c *collector) done() bool { return c.ended && !c.nodes }

// some removes at most limit chunks.
func (c *collector) some(limit int) error {
	c.removed, c.bytes, c.at = 0, 0, nil
	if c.ended {
		c.from, c.nodes, c.ended = nil, false, false
	}
	for c.removed < limit && !c.ended {
		if err := c.take(min(limit-c.removed, collectBatch)); err != nil {
			return err
		}
		for i := range c.batch {
			if err := c.release(&c.batch[i]); err != nil {
				return err
			}
		}
		for i := range c.batch {
			b := &c.batch[i]
			c.at = &b.key
			if err := c.remove(b); err != nil {
				return fmt.Errorf("remove chunk %v: %w", b.key, err)
			}
			if err := c.s.forgetDigest(&b.key); err != nil {
				return err
			}
			c.removed++
			c.bytes += int64(b.e.length)
			c.nodes = c.nodes || b.key.level > 0
		}
		c.at = nil
	}
	return nil
}

// remove takes a chunk off the index, and notes where its bytes are.
func (c *collector) remove(b *condemned) error {
	id, ok := idOf(&b.e)
	if !ok { // no store has so many
		return c.s.remove(&b.key, &b.e)
	}
	if err := c.s.forget(&b.key); err != nil {
		return err
	}
	if !b.e.lost() {
		c.freed = append(c.freed, id)
	}
	return nil
}

// take reads the next n marks, and of nodes the content. A mark of a chunk that is
// not dead is wrong, and is taken off.
func (c *collector) take(n int) error {
	c.batch = c.batch[:0]
	if err := c.s.flush(); err != nil {
		return err
	}
	var wrong [][]byte
	cursor := c.s.dead.Cursor()
	m, _ := cursor.Seek(c.from)
	for ; m != nil && len(c.batch) < n; m, _ = cursor.Next() {
		k, err := parseKey(m)
		if err != nil {
			continue // for Check
		}
		if _, skip := c.skip[k]; skip {
			continue
		}
		c.at = &k
		e, ok, err := c.s.lookup(&k)
		switch {
		case err != nil && c.s.tx.Err() != nil:
			return err
		case err != nil:
			c.pass(k, err)
			continue
		case !ok || !e.dead():
			wrong = append(wrong, append([]byte(nil), m...))
			continue
		}
		var children node
		if k.level > 0 {
			if children, err = c.s.loadNode(&k); err != nil {
				if c.s.tx.Err() != nil {
					return err
				}
				c.pass(k, err)
				continue
			}
		}
		c.batch = append(c.batch, condemned{k, e, children})
	}
	c.at = nil
	if err := c.s.tx.Err(); err != nil {
		return err
	}
	if c.ended = m == nil; !c.ended {
		c.from = append(c.from[:0], m...)
	}
	for _, m := range wrong {
		if err := c.s.dead.Delete(m); err != nil {
			return err
		}
	}
	return nil
}

// pass passes a damaged chunk over, now and in later passes.
func (c *collector) pass(k chunkKey, err error) {
	if c.skip == nil {
		c.skip = map[chunkKey]struct{}{}
	}
	c.skip[k] = struct{}{}
	if c.first == nil {
		c.first = fmt.Errorf("collect chunk %v: %w", k, err)
	}
}

// release takes a parent from each child of a chunk. A child that is missing, or whose
// count is too low, is damage that Check finds, and needs nothing here.
func (c *collector) release(b *condemned) error {
	if b.key.level == 0 {
		return nil
	}
	c.at = &b.key
	for i := range b.node.count() {
		child, _ := b.node.child(i)
		if err := c.s.orphan(&child); err != nil {
			return fmt.Errorf("release chunk %v: %w", child, err)
		}
	}
	return nil
}

// orphan takes a parent from a chunk, if the store has it and it has one.
func (s *Store) orphan(k *chunkKey) error {
	if s.batch != nil && len(s.batch.entries) >= maxPending {
		if err := s.flush(); err != nil {
			return err
		}
	}
	e, found, err := s.probe(k)
	var p *pending
	if s.batch != nil {
		p = s.batch.find(k)
	}
	if errors.Is(err, ErrCorrupt) || err == nil && !found && (p == nil || p.state&hasBytes == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	parents := int64(e.parents)
	if p != nil {
		parents += p.parents
	}
	if parents < 1 {
		return nil
	}
	return s.adjust(k, -1, 0)
}

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
	Bytes        int64         // of these
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

	begun   bool // it was looked whether an earlier one has left something
	freeing freeing
	frees   bool // it is time for that
	deletes int  // bytes of how many chunks in a transaction
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
		if err := r.resume(s); err != nil {
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

// turn goes from one part of the work to the other when that is done.
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

// undo goes back to where a transaction that failed began. Of a chunk that is damaged the next one knows: it passes over
// it, and err is not returned.
func (r *collection) undo(before *collection, err error) error {
	at, skip, first := r.c.at, r.c.skip, r.c.first
	id, fails, skipFreed := r.freeing.failed, r.freeing.fails, r.freeing.skip
	*r = *before
	r.done = false
	r.c.skip, r.c.first, r.freeing.skip = skip, first, skipFreed
	var damage *holdfast.CorruptError
	if !errors.As(err, &damage) {
		return err
	}
	if fails {
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
