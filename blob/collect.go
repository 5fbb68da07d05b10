package blob

import (
	"errors"
	"fmt"
	"slices"
	"time"
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
		if err := c.removeBatch(); err != nil {
			return c.s.fail(err) // children were released of nodes that are still there, and would be again
		}
		c.at = nil
	}
	return nil
}

// removeBatch removes what was taken.
func (c *collector) removeBatch() error {
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
		c.bytes += int64(b.e.size())
		c.nodes = c.nodes || b.key.level > 0
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
