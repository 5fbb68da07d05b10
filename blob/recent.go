package blob

import (
	"bytes"
	"fmt"
	"math/bits"

	"holdfast"
)

// The index is in two buckets. What comes to it comes in the order of hashes, so that
// each new chunk changes another leaf of a large bucket. New chunks come to a small one, recent,
// therefore, and are moved to the large one, index, together, when there are enough of them.
// A chunk is in one of the two; whatever else changes of it is changed where it is.
//
// Let a transaction bring k new chunks, with n in the large bucket and r in the small one. Each time all of
// recent is written, some r/2 entries, and one time in r/k all of index. That is least for
// r = sqrt(2nk). (This is the merging of two components of an LSM tree: O'Neil et al.,
// The log-structured merge-tree, Acta Informatica 33, 1996.)
//
// Sequences count, for that estimate only: that of index what has come to it, that of dead what was
// removed from either, that of recent what has come to it since it was made. The first one also
// tells other Stores of the same transaction that recent is another bucket now: it changes then.

// fresh gives the bucket of new chunks; nil if there is none.
func (s *Store) fresh() *holdfast.Bucket {
	if s.index.Sequence() != s.known {
		s.known = s.index.Sequence()
		s.recent = s.bucket.Bucket(recentName)
	}
	return s.recent
}

// makeFresh is fresh, which it makes if there is none.
func (s *Store) makeFresh() (*holdfast.Bucket, error) {
	if b := s.fresh(); b != nil {
		return b, nil
	}
	if err := s.tx.Err(); err != nil {
		return nil, err
	}
	b, err := s.bucket.CreateBucketIfNotExists(recentName)
	if err != nil {
		return nil, err
	}
	s.recent = b
	return b, s.came(1)
}

// came counts n that have come to the large bucket.
func (s *Store) came(n uint64) error {
	s.known = s.index.Sequence() + n
	return s.index.SetSequence(s.known)
}

// worthMerging tells whether recent is to be merged into the large bucket by a transaction that brings k
// chunks, some of which may be in recent already.
func (s *Store) worthMerging(k uint64) bool {
	n, r := s.index.Sequence(), k
	n -= min(n, s.dead.Sequence())
	if b := s.fresh(); b != nil {
		r = max(r, b.Sequence())
	}
	if k > n/2 {
		return true
	}
	high, low := bits.Mul64(r, r)
	limitHigh, limit := bits.Mul64(2*n, k)
	return high > limitHigh || high == limitHigh && low > limit
}

// at gives the bucket in which the index has key, or belongs if it does not.
func (s *Store) at(key []byte) *holdfast.Bucket {
	if b := s.fresh(); b != nil {
		if _, found := b.AppendValue(s.value[:0], key); found {
			return b
		}
	}
	return s.index
}

// indexed finds what the index has of key, and whether it is in recent.
func (s *Store) indexed(key []byte) (value []byte, recent bool) {
	for _, b := range [...]*holdfast.Bucket{s.fresh(), s.index} {
		if b == nil {
			continue
		}
		if s.tx.Writable() { // by one goroutine only, and what Get gives would keep pages in place
			if v, found := b.AppendValue(s.value[:0], key); found {
				return v, b != s.index
			}
		} else if v := b.Get(key); v != nil {
			return v, b != s.index
		}
	}
	return nil, false
}

// unindex deletes key from the index.
func (s *Store) unindex(key []byte) error {
	if b := s.fresh(); b != nil {
		if err := b.Delete(key); err != nil {
			return err
		}
	}
	if err := s.index.Delete(key); err != nil {
		return err
	}
	return s.dead.SetSequence(s.dead.Sequence() + 1)
}

// indexing brings the index up to date with what a batch has gathered.
type indexing struct {
	s      *Store
	b      *batch
	direct bool   // new chunks come to the large bucket
	merge  *merge // nil: recent stays
	came   uint64 // new chunks
}

// indexing begins one of so many entries. last: the transaction commits. Only then is recent merged: who goes
// through it with a cursor keeps pages in place, see holdfast.Tx.Spill. A transaction that fills whole batches before
// brings so many that they would not stay in recent.
func (s *Store) indexing(b *batch, entries int, last bool) *indexing {
	u := &indexing{s: s, b: b, direct: entries >= maxPending/2}
	if last {
		if u.direct = s.worthMerging(b.came + uint64(entries)); u.direct {
			u.merge = s.merge(b)
		}
	}
	return u
}

// write is for a settled entry. They come in the order of their keys.
func (u *indexing) write(p *pending) error {
	if p.state&unchanged != 0 {
		return nil
	}
	s := u.s
	s.key = p.key.encode()
	to, err := u.bucket(p)
	if err != nil {
		return err
	}
	e := entry{packed: p.state&packed != 0, id: p.id, length: int(p.length),
		parents: uint64(p.parents), users: uint64(p.users), leased: uint64(p.leased)}
	if err := to.Put(s.key[:], u.b.value(&e)); err != nil {
		return err
	}
	switch {
	case e.dead() && p.state&wasDead == 0:
		err = s.dead.Put(s.key[:], nil)
	case !e.dead() && p.state&wasDead != 0:
		err = s.dead.Delete(s.key[:])
	}
	if err != nil {
		return err
	}
	return s.spillPages(u.b)
}

// bucket is where the entry that is written next belongs, whose key is s.key.
func (u *indexing) bucket(p *pending) (*holdfast.Bucket, error) {
	known := p.state&(inRecent|inLarge) != 0
	if !known {
		u.came++
	}
	switch {
	case u.merge != nil:
		return u.s.index, u.merge.to(u.s.key[:])
	case p.state&inRecent != 0, !known && !u.direct:
		return u.s.makeFresh()
	}
	return u.s.index, nil
}

// end is called when all entries are written.
func (u *indexing) end() error {
	u.b.came += u.came
	if u.merge != nil {
		if err := u.merge.end(); err != nil {
			return err
		}
	}
	if u.came == 0 {
		return nil
	}
	if u.direct {
		return u.s.came(u.came)
	}
	recent := u.s.fresh()
	return recent.SetSequence(recent.Sequence() + u.came)
}

// merge moves what is in recent to the large bucket. Both are gone through in the same order, so that
// each leaf is changed once, also by who puts others there in between.
type merge struct {
	s      *Store
	b      *batch
	from   *holdfast.Bucket
	cursor *holdfast.Cursor
	key, v []byte
	moved  uint64
}

// merge begins one; nil if there is nothing to be moved.
func (s *Store) merge(b *batch) *merge {
	from := s.fresh()
	if from == nil {
		return nil
	}
	m := &merge{s: s, b: b, from: from, cursor: from.Cursor()}
	m.key, m.v = m.cursor.First()
	return m
}

// to moves what is not behind key; nil: all.
func (m *merge) to(key []byte) error {
	for ; m.key != nil && (key == nil || bytes.Compare(m.key, key) <= 0); m.key, m.v = m.cursor.Next() {
		if m.v == nil {
			continue // a bucket, which has no meaning there
		}
		if err := m.s.index.Put(m.key, m.b.keep(m.v)); err != nil {
			return err
		}
		m.moved++
		if err := m.s.spillPages(m.b); err != nil {
			return err
		}
	}
	if key == nil { // a cursor has no error to return
		return m.s.tx.Err()
	}
	return nil
}

// end moves the rest, and takes recent away.
func (m *merge) end() error {
	if err := m.to(nil); err != nil {
		return fmt.Errorf("merging the index: %w", err)
	}
	if err := m.s.bucket.DeleteBucket(recentName); err != nil {
		return err
	}
	m.s.recent = nil
	return m.s.came(m.moved + 1)
}

// indexCursor walks both buckets of the index as one.
type indexCursor struct {
	at   [2]*holdfast.Cursor
	k, v [2][]byte
}

// seekIndex goes to the first key that is not less than from.
func (s *Store) seekIndex(from []byte) *indexCursor {
	c := &indexCursor{}
	for i, b := range [...]*holdfast.Bucket{s.fresh(), s.index} {
		if b != nil {
			c.at[i] = b.Cursor()
			c.k[i], c.v[i] = c.at[i].Seek(from)
		}
	}
	return c
}

// next gives the entry on which the cursor stands, and goes on; nil at the end.
func (c *indexCursor) next() (key, v []byte) {
	i := 0
	switch {
	case c.k[0] == nil:
		i = 1
	case c.k[1] != nil:
		switch bytes.Compare(c.k[0], c.k[1]) {
		case 1:
			i = 1
		case 0: // only of a damaged store: as indexed has it
			c.k[1], c.v[1] = c.at[1].Next()
		}
	}
	if key, v = c.k[i], c.v[i]; key != nil {
		c.k[i], c.v[i] = c.at[i].Next()
	}
	return key, v
}
