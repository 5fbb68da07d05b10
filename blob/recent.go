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
// A transaction that brings so few chunks that they come to less than one of some 200 pages of the large
// bucket gains little or nothing by that: they go there at once, and it leaves recent alone, however much
// larger ones have left in it. So a caller that puts one blob after a large import does not wait for a
// merge. One that brings no chunk merges nothing either.
//
// Sequences count, for that estimate only: that of index what has come to it, that of dead what was
// removed from it, that of recent what there is in that one. The first one also
// tells other Stores of the same transaction that recent is another bucket now: it changes then.

// fresh gives the bucket of new chunks; nil if there is none.
func (s *Store) fresh() *holdfast.Bucket {
	if come := s.index.Sequence() & comeMask; come != s.known {
		s.known = come
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
	sequence := s.index.Sequence()
	s.known = (sequence + n) & comeMask
	return s.index.SetSequence(sequence&^comeMask | s.known)
}

// fewOf times the size of a page, in bytes, are the chunks in the large bucket of which a new one is one of few.
const fewOf = 4

// placing is what becomes of the new chunks of a transaction.
type placing struct {
	direct bool // they come to the large bucket
	merge  bool // and so does recent
}

// place decides it for a transaction that brings k new chunks in all, so many of them now.
func (s *Store) place(coming, k uint64) placing {
	n, r := s.index.Sequence()&comeMask, coming
	n -= min(n, s.dead.Sequence())
	if coming == 0 || k < n/uint64(fewOf*s.pageSize) {
		return placing{direct: true}
	}
	if b := s.fresh(); b != nil {
		if s.checking {
			return placing{}
		}
		if r += b.Sequence(); r < coming {
			return placing{direct: true, merge: true}
		}
	}
	high, low := bits.Mul64(r, r)
	limitHigh, limit := bits.Mul64(2*n, k)
	worth := k > n/2 || high > limitHigh || high == limitHigh && low > limit
	return placing{direct: worth, merge: worth}
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
	counter, by := s.dead, uint64(1)
	if b := s.fresh(); b != nil {
		if _, found := b.AppendValue(s.value[:0], key); found {
			if err := b.Delete(key); err != nil {
				return err
			}
			counter, by = b, -min(b.Sequence(), 1)
		}
	}
	if err := s.index.Delete(key); err != nil { // where it is in both, of a damaged store, too
		return err
	}
	return counter.SetSequence(counter.Sequence() + by)
}

// indexing brings the index up to date with what a batch has gathered.
type indexing struct {
	s      *Store
	b      *batch
	direct bool   // new chunks come to the large bucket
	merge  *merge // nil: recent stays
	came   uint64 // new chunks
}

// indexing begins one. Nodes are settled, leaves are not.
func (s *Store) indexing(b *batch) *indexing {
	coming := uint64(0)
	for i := range b.entries {
		if b.entries[i].state&(hasBytes|stored|unchanged) == hasBytes {
			coming++
		}
	}
	place := s.place(coming, b.came+coming)
	u := &indexing{s: s, b: b, direct: place.direct}
	if from := s.fresh(); place.merge && from != nil {
		u.merge = &merge{s: s, b: b, from: from}
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
	// Of a transaction that fills whole batches each counts for itself, since each is written early.
	if u.b.came += u.came; len(u.b.entries) >= maxPending/2 {
		u.b.came = 0
	}
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
	s     *Store
	b     *batch
	from  *holdfast.Bucket
	moved uint64

	// What was read and is not moved yet, from at on. It is copied, since what a cursor gives would keep
	// pages in place.
	piece []byte
	list  []moving
	at    int
	next  []byte // where it goes on
	ended bool
}

// moving is where a key, and the value after it, end in a piece.
type moving struct{ begin, key, end int }

// mergePiece is how many entries are read at a time.
const mergePiece = 256

// to moves what is not after key; nil: all.
func (m *merge) to(key []byte) error {
	for {
		for ; m.at < len(m.list); m.at++ {
			e := m.list[m.at]
			k := m.piece[e.begin:e.key]
			if key != nil && bytes.Compare(k, key) > 0 {
				return nil
			}
			if err := m.s.index.Put(k, m.b.keep(m.piece[e.key:e.end])); err != nil {
				return err
			}
			m.moved++
			if err := m.s.spillPages(m.b); err != nil {
				return err
			}
		}
		if m.ended {
			return nil
		}
		if err := m.read(); err != nil {
			return err
		}
	}
}

// read takes up the next piece.
func (m *merge) read() error {
	m.piece, m.list, m.at, m.ended = m.piece[:0], m.list[:0], 0, true
	var unordered error
	err := m.from.Scan(m.next, func(k, v []byte) bool {
		if v == nil {
			return true // a bucket, which has no meaning there
		}
		if len(m.list) == mergePiece {
			unordered = goesOn(m.next, k)
			m.next, m.ended = append(m.next[:0], k...), false
			return false
		}
		begin := len(m.piece)
		m.piece = append(append(m.piece, k...), v...)
		m.list = append(m.list, moving{begin, begin + len(k), len(m.piece)})
		return true
	})
	return firstError(err, unordered)
}

// goesOn is the error of a reader in pieces whose next one begins with key, if that is not after where the
// last one began: of a damaged page it would not end.
func goesOn(last, key []byte) error {
	if last != nil && bytes.Compare(key, last) <= 0 {
		return corruptf("keys of the index are not in their order")
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
