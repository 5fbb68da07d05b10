package blob

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// Collect meets dead chunks in the order of their addresses, and their bytes lie in the order of their ids: deleted as they are
// met, small ones would have each page of many written again for each chunk in it. So it takes chunks off the index first, in
// many transactions, each of which writes down whose bytes it has left in the bucket freed, and then deletes those in
// the order of their ids, in many more; in the last of them the bucket goes.
//
// What stands there after a crash is done by the next Collect. Who has repaired the store meanwhile may have found
// those bytes and given them to a chunk again, so it looks first at what they are. A repair of this version deletes them before
// it looks for bytes that no chunk has. Ids are not used twice, so to delete one again deletes nothing.

// freedName is the bucket of that: number -> ids, 8 bytes each. It is there only while there are some.
var freedName = []byte("freed")

// freedID names the bytes of a chunk there: the id, and in the lowest bit whether they are packed.
type freedID uint64

func idOf(e *entry) (id freedID, ok bool) {
	id = freedID(e.id << 1)
	if e.packed {
		id |= 1
	}
	return id, e.id < 1<<63
}

func (id freedID) spot() spot { return spot{packed: id&1 != 0, id: uint64(id >> 1)} }

// compare orders them as the bytes lie in the file, those of a bucket one after the other.
func (id freedID) compare(o freedID) int {
	if c := cmp.Compare(id&1, o&1); c != 0 {
		return c
	}
	return cmp.Compare(id, o)
}

// maxWindow is how many ids are in memory at most, but for those of one record.
const maxWindow = 512 << 10

// noteFreed writes ids down, and gives the key of the record.
func (s *Store) noteFreed(ids []freedID) (key []byte, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	b, err := s.bucket.CreateBucketIfNotExists(freedName)
	if err != nil {
		return nil, err
	}
	number, err := b.NextSequence()
	if err != nil {
		return nil, err
	}
	v := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		v = binary.LittleEndian.AppendUint64(v, uint64(id))
	}
	key = binary.BigEndian.AppendUint64(nil, number)
	return key, b.Put(key, v)
}

// noted gives the ids that stand in the first records, of which there are at least limit if so many stand there, and the key of the
// last of those. Of what is malformed, which Check reports,
// there are none.
func (s *Store) noted(limit int) (ids []freedID, last []byte, err error) {
	b, err := s.child(freedName)
	if b == nil {
		return nil, nil, err
	}
	err = b.Scan(nil, func(k, v []byte) bool {
		for ; len(v) >= 8; v = v[8:] {
			ids = append(ids, freedID(binary.LittleEndian.Uint64(v)))
		}
		last = append(last[:0], k...)
		return len(ids) < limit
	})
	return ids, last, errors.Join(err, s.tx.Err())
}

// forgetNoted deletes the records up to the key last, and the bucket if nothing is left in it.
func (s *Store) forgetNoted(last []byte) error {
	b, err := s.child(freedName)
	if b == nil {
		return err
	}
	for {
		k, v := b.Cursor().First()
		switch {
		case s.tx.Err() != nil:
			return s.tx.Err()
		case k == nil:
			return s.bucket.DeleteBucket(freedName)
		case string(k) > string(last):
			return nil
		case v == nil:
			err = b.DeleteBucket(k)
		default:
			err = b.Delete(k)
		}
		if err != nil {
			return err
		}
	}
}

// deleteFreed deletes bytes that no chunk has. looks: a repair may have given them to one, which is looked at first.
func (s *Store) deleteFreed(id freedID, looks bool) error {
	at := id.spot()
	if looks {
		if is, err := s.isNamed(at); is || err != nil {
			return err
		}
	}
	if err := s.deleteBytes(at.packed, at.id); err != nil {
		return s.fail(err)
	}
	return nil
}

// isNamed tells whether the index names the bytes there, for what they are.
func (s *Store) isNamed(at spot) (bool, error) {
	p := s.bytesBucket(at.packed).Get(binary.BigEndian.AppendUint64(nil, at.id))
	if p == nil {
		return false, s.tx.Err()
	}
	levels := []uint8{0}
	if len(p) > 4 && p[4] > 0 && p[4] <= maxLevel {
		levels = append(levels, p[4])
	}
	addr := s.options.Algorithm.sum(p)
	for _, level := range levels {
		e, found, err := s.lookup(&chunkKey{addr, level})
		if err != nil && s.tx.Err() != nil {
			return false, err
		}
		if err != nil || found && (spot{e.packed, e.id}) == at {
			return true, nil
		}
	}
	return false, nil
}

// deleteNoted deletes what is noted, at least limit of it if there is so much. n is how many steps it took, 0: nothing is noted.
func (s *Store) deleteNoted(limit int) (n int, err error) {
	ids, last, err := s.noted(limit)
	if err != nil || last == nil {
		return 0, err
	}
	slices.SortFunc(ids, freedID.compare)
	for _, id := range ids {
		if err := s.deleteFreed(id, true); err != nil {
			return 0, err
		}
	}
	if err := s.forgetNoted(last); err != nil {
		return 0, s.fail(err)
	}
	return max(len(ids), 1), nil
}

// freeing deletes, in the order of their ids and in many transactions, bytes of chunks that are not in the index any more.
type freeing struct {
	ids   []freedID
	at    int
	last  []byte // key of the last record of them
	looks bool   // they are of an earlier Collect
	skip  map[freedID]error
}

// some deletes the bytes of at most n.
func (f *freeing) some(s *Store, n int) error {
	for ; f.at < len(f.ids) && n > 0; n-- {
		id := f.ids[f.at]
		if _, skip := f.skip[id]; !skip {
			if err := s.deleteFreed(id, f.looks); err != nil {
				return err
			}
		}
		f.at++
	}
	if !f.done() {
		return nil
	}
	return s.forgetNoted(f.last)
}

func (f *freeing) done() bool { return f.at == len(f.ids) }

// pass passes over the id at a place, whose bytes the file cannot give up, because of err.
func (f *freeing) pass(at int, err error) error {
	if at >= len(f.ids) {
		return err
	}
	if _, again := f.skip[f.ids[at]]; again {
		return err
	}
	if f.skip == nil {
		f.skip = map[freedID]error{}
	}
	f.skip[f.ids[at]] = err
	return nil
}
