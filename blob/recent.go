package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"holdfast"
	"holdfast/internal/bridge"
)

// The index is in two buckets. What comes to it comes in the order of hashes, so that
// each new chunk changes another leaf of a large bucket. New chunks come to a small one, recent,
// therefore, and are moved to the large one, index, in the order of their keys: each transaction that brings some
// moves some, from where the one before has ended, so that none waits for more than it has brought.
// A chunk is in one of the two; whatever else changes of it is changed where it is.
//
// Let a transaction bring k new chunks, with n in the large bucket and r in the small one, and e in a page. Of the small one it
// changes r/e pages or k, whichever is less. It moves k, which stand on a share k/r of the n/e pages of the large one. If k is
// above n/e^2, the sum is least for r = sqrt(nk). Below, a larger r costs less until its branches count: with r = 4n/e, k are moved
// to k/4 pages.
// (Two components of an LSM tree, with a rolling merge: O'Neil et al., The log-structured merge-tree, Acta Informatica 33, 1996.)
// Without recent it is one page for each chunk, but not more than all n/e, and most branches above them.
// So a transaction that brings fewer than n/5e^2 puts them into the large bucket, and leaves recent alone, however much
// larger ones have left in it; so does one that brings more than n/5.
// One that brings no chunk moves none either.
//
// Sequences count, for that estimate only: that of index what has come to it, that of dead what was
// removed from it, that of recent, in its lower bits, what there is in that one; in the upper ones stand the first two bytes of the
// key at which the next move begins. The sequence of index
// also tells other Stores of the same transaction that there is a bucket recent now: it changes then.

// fresh gives the bucket of new chunks; nil if there is none.
func (s *Store) fresh() *holdfast.Bucket {
	if come := s.index.Sequence() & comeMask; come != s.known {
		s.known = come
		s.elsewhere++
		s.setRecent(s.bucket.Bucket(recentName))
	}
	return s.recent
}

// setRecent notes that b, which may be nil, is the bucket of new chunks.
func (s *Store) setRecent(b *holdfast.Bucket) {
	if s.recent = b; b != nil && s.tx.Writable() {
		bridge.SetDense(b)
	}
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
	s.setRecent(b)
	return b, s.came(1)
}

// came counts n that have come to the large bucket.
func (s *Store) came(n uint64) error {
	sequence := s.index.Sequence()
	s.known = (sequence + n) & comeMask
	return s.index.SetSequence(sequence&^comeMask | s.known)
}

// entryBytes is about what an entry takes of a page that is two thirds full.
const entryBytes = 70

// perPage is about how many entries a page has.
func (s *Store) perPage() uint64 { return uint64(s.pageSize / entryBytes) }

// large is about how many chunks are in the large bucket.
func (s *Store) large() uint64 {
	n := s.index.Sequence() & comeMask
	return n - min(n, s.dead.Sequence())
}

// direct tells whether new chunks go to the large bucket, of a transaction that brings k in all.
func (s *Store) direct(k uint64) bool {
	n, e := s.large(), s.perPage()
	return k == 0 || k < n/(5*e*e) || k > n/5
}

// at gives the bucket in which the index has key, or belongs if it does not.
func (s *Store) at(key []byte) *holdfast.Bucket {
	b := s.fresh()
	if b == nil {
		return s.index
	}
	if _, found, _ := bridge.Find(s.index, key); found {
		return s.index
	}
	if _, found := b.AppendValue(s.value[:0], key); found {
		return b
	}
	return s.index
}

// indexed finds what the index has of key, and whether it is in recent. The large bucket has most of what is looked for, and is
// searched first: half a million deletes in a store of a million, and collecting them, took a seventh less time (by hand). Damage to it is
// noted in the transaction only where recent does not have key: what is there can be read, changed and removed all the same.
func (s *Store) indexed(key []byte) (value []byte, recent bool) {
	value, found, damage := bridge.Find(s.index, key)
	if found && s.tx.Writable() {
		value = append(s.value[:0], value...) // by one goroutine only, and its page may be written again
	}
	if found {
		return value, false
	}
	if b := s.fresh(); b != nil {
		if value, found := s.get(b, key); found {
			return value, true
		}
	}
	if damage != nil {
		s.get(s.index, key) // which notes it
	}
	return nil, false
}

// get gives the value of key in a bucket of the index.
func (s *Store) get(b *holdfast.Bucket, key []byte) (value []byte, found bool) {
	if s.tx.Writable() { // by one goroutine only, and what Get gives would keep pages in place
		return b.AppendValue(s.value[:0], key)
	}
	value = b.Get(key)
	return value, value != nil
}

// unindex deletes key, which the index has, from it. Damage of recent is no matter where the large bucket has it.
func (s *Store) unindex(key []byte) error {
	counter, by := s.dead, uint64(1)
	if b := s.fresh(); b != nil {
		_, found, damage := bridge.Find(b, key)
		if damage != nil {
			if _, large, _ := bridge.Find(s.index, key); !large {
				return damage
			}
		}
		if found {
			if err := b.Delete(key); err != nil {
				return err
			}
			counter, by = b, -min(b.Sequence()&comeMask, 1)
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
	coming uint64 // about how many new ones there are
	came   uint64 // how many came
}

// indexing begins one. Nodes are settled, leaves may not be.
func (s *Store) indexing(b *batch) indexing {
	coming := uint64(0)
	for i := range b.entries {
		if b.entries[i].state&(hasBytes|stored|unchanged) == hasBytes {
			coming++
		}
	}
	return indexing{s: s, b: b, coming: coming, direct: s.direct(b.came + coming)}
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
	e := entry{packed: p.state&packed != 0, id: p.id, length: int(p.length), stored: int(p.stored),
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
	if p.state&inRecent != 0 || !known && !u.direct {
		return u.s.makeFresh()
	}
	return u.s.index, nil
}

// end is called when all entries are written.
func (u *indexing) end() error {
	s, k := u.s, u.b.came+u.coming
	// Of a transaction that fills whole batches each counts for itself, since each is written early.
	if u.b.came += u.came; len(u.b.entries) >= maxPending/2 || u.b.long >= maxLong/2 {
		u.b.came = 0
	}
	switch {
	case u.came == 0:
		return nil
	case u.direct:
		return s.came(u.came)
	}
	recent := s.fresh()
	if err := recent.SetSequence(recent.Sequence() + u.came); err != nil {
		return err
	}
	if s.checking {
		return nil
	}
	if err := s.move(u.b, k, 2*u.came); err != nil {
		return fmt.Errorf("moving entries of the index: %w", err)
	}
	return nil
}

// mayWait is how many entries recent may have with transactions that bring k chunks.
func (s *Store) mayWait(k uint64) uint64 {
	n := s.large()
	return max(uint64(math.Sqrt(float64(n)*float64(k))), 4*n/s.perPage())
}

// move moves to the large bucket what recent has beyond mayWait(k), but at most as many entries as most says. It ends after a number that
// stay, too, and the next transaction goes on there: below a damaged branch there may be very many.
func (s *Store) move(b *batch, k, most uint64) error {
	from := s.fresh()
	r, limit := from.Sequence()&comeMask, s.mayWait(k)
	most = min(most, r-min(r, limit))
	m := mover{s: s, b: b, from: from, moverMemory: b.moves}
	m.next = binary.BigEndian.AppendUint16(m.next[:0], uint16(from.Sequence()>>comeBits))
	defer func() { b.moves = m.moverMemory }()
	for m.moved < most && m.stayed < mergePiece && !m.ended {
		if err := m.some(most - m.moved); err != nil {
			return err
		}
	}
	at := uint64(0)
	if !m.ended {
		at = uint64(binary.BigEndian.Uint16(append(m.next, 0, 0)))
	}
	if err := from.SetSequence(at<<comeBits | (r - min(r, m.moved))); err != nil {
		return err
	}
	return s.came(m.moved)
}

// mover moves entries from recent to the large bucket.
type mover struct {
	s      *Store
	b      *batch
	from   *holdfast.Bucket
	moved  uint64
	stayed int  // looked at and left
	ended  bool // there is no more

	moverMemory
}

// moverMemory is what a mover has read. It is copied, since what a cursor gives would keep pages in place.
type moverMemory struct {
	piece []byte
	list  []moving
	next  []byte // where it goes on
}

// moving is where a key, and the value after it, lie in a piece.
type moving struct{ begin, key, end int }

// mergePiece is how many entries are read at a time.
const mergePiece = 256

// passed is how many entries that stay a damaged page counts as.
const passed = mergePiece / 8

// some moves at most limit entries. One that belongs on a damaged page stays: a Put there would have the transaction fail, and each after
// it, which would begin there again. There are no more of them than there were when the page was damaged: of a new one it would not be known
// that it is new. One whose key the large bucket has, as only a damaged store can, stays for Check.
func (m *mover) some(limit uint64) error {
	if err := m.read(int(min(limit, mergePiece))); err != nil {
		return err
	}
	for _, e := range m.list {
		k := m.piece[e.begin:e.key]
		if _, found, damage := bridge.Find(m.s.index, k); found || damage != nil {
			m.stayed++
			continue
		}
		if err := m.s.index.Put(k, m.b.keep(m.piece[e.key:e.end])); err != nil {
			return err
		}
		if err := m.from.Delete(k); err != nil {
			return err
		}
		m.moved++
		if err := m.s.spillPages(m.b); err != nil {
			return err
		}
	}
	return nil
}

// read reads the next n entries, or those before a damaged page of recent.
func (m *mover) read(n int) error {
	m.piece, m.list, m.ended = m.piece[:0], m.list[:0], true
	var unordered error
	err := bridge.Scan(m.from, m.next, func(k, v []byte) bool {
		if v == nil {
			return true // a bucket, which has no meaning there
		}
		if len(m.list) == n {
			unordered = goesOn(m.next, k)
			m.next, m.ended = append(m.next[:0], k...), false
			return false
		}
		begin := len(m.piece)
		m.piece = append(append(m.piece, k...), v...)
		m.list = append(m.list, moving{begin, begin + len(k), len(m.piece)})
		return true
	})
	var damage *holdfast.CorruptError
	if errors.As(err, &damage) {
		m.pass()
		return nil
	}
	return firstError(err, unordered)
}

// pass skips the damaged page of recent that was met: the next piece begins at the smallest two-byte prefix of keys from which recent
// can be read again. Keys of the prefix before it that follow the damaged page are skipped, too.
func (m *mover) pass() {
	bad := int(binary.BigEndian.Uint16(append(m.next, 0, 0)))
	if n := len(m.list); n > 0 {
		bad = int(binary.BigEndian.Uint16(m.piece[m.list[n-1].begin:]))
	}
	good := 1 << 16
	for step := 1; bad+step < good; step *= 2 {
		if m.readable(bad + step) {
			good = bad + step
			break
		}
		bad += step
	}
	for bad+1 < good {
		if middle := (bad + good) / 2; m.readable(middle) {
			good = middle
		} else {
			bad = middle
		}
	}
	m.next, m.ended = binary.BigEndian.AppendUint16(m.next[:0], uint16(good)), good == 1<<16
	m.stayed += passed
}

// readable tells whether recent can be read at the key that begins with two bytes.
func (m *mover) readable(at int) bool {
	return bridge.Scan(m.from, binary.BigEndian.AppendUint16(nil, uint16(at)), func(_, _ []byte) bool { return false }) == nil
}

// goesOn is the error of a reader in pieces whose next one begins with key, if that is not after where the
// last one began: of a damaged page it would not end.
func goesOn(last, key []byte) error {
	if last != nil && bytes.Compare(key, last) <= 0 {
		return corruptf("keys of the index are not in their order")
	}
	return nil
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
		case 0: // only of a damaged store: as indexed has it, which passes over a bucket
			if c.v[1] != nil {
				i = 1
			}
			c.k[1-i], c.v[1-i] = c.at[1-i].Next()
		}
	}
	if key, v = c.k[i], c.v[i]; key != nil {
		c.k[i], c.v[i] = c.at[i].Next()
	}
	return key, v
}
