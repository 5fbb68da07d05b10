package blob

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
)

// Collect finds dead chunks in the order of their addresses, but their bytes lie in the order of their ids. If it deleted the bytes of
// small chunks as it finds them, each page would be written once for each of its chunks. So it first takes chunks off the index, in
// many transactions, each of which notes the ids of their bytes in the bucket freed. Then it deletes the bytes in the order of the ids,
// in many more transactions, the last of which deletes the notes.
//
// After a crash the next Collect deletes what is noted. A repair by an older version, which does not know the bucket, may have given
// such bytes to a chunk again, so that Collect looks first whether the index names them. A repair by this version deletes them
// before it looks for bytes without a chunk. An id is never used twice, so deleting it again has no effect.
//
// Several calls of Collect may run at the same time.

// freedName is the bucket of the notes: number -> ids, 8 bytes each. It exists only while there are some.
var freedName = []byte("freed")

// freedID is an id in a note, shifted left by one; the lowest bit says whether the bytes are packed.
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

const (
	maxWindow  = 512 << 10 // ids in memory at most, but for those of one record
	maxRecords = 64 << 10  // records whose ids they are
)

// noteFreed writes ids down, and gives the key of the record. Numbers begin at random: so a Collect that looks for its records again
// takes none for its own that another Collect has written after the bucket was deleted, or the whole store made anew.
func (s *Store) noteFreed(ids []freedID) (key []byte, err error) {
	b, err := s.bucket.CreateBucketIfNotExists(freedName)
	if err == nil && b.Sequence() == 0 {
		err = b.SetSequence(rand.Uint64() >> 1)
	}
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

// noted reads records from key from on, until it has at least limit ids, maxRecords records, or all, and gives their keys. Of what
// is malformed, which Check reports, there are no ids.
func (s *Store) noted(from []byte, limit int) (ids []freedID, records [][]byte, err error) {
	b, err := s.child(freedName)
	if b == nil {
		return nil, nil, err
	}
	var unordered error
	err = b.Scan(from, func(k, v []byte) bool {
		if n := len(records); n > 0 {
			if unordered = goesOn(records[n-1], k); unordered != nil {
				return false
			}
		}
		records = append(records, bytes.Clone(k))
		for ; len(v) >= 8; v = v[8:] {
			ids = append(ids, freedID(binary.LittleEndian.Uint64(v)))
		}
		return len(ids) < limit && len(records) < maxRecords
	})
	return ids, records, errors.Join(err, unordered, s.tx.Err())
}

// forgetNoted deletes those of the records that are still there, and the bucket if nothing is left in it.
func (s *Store) forgetNoted(records [][]byte) (forgotten int, err error) {
	b, err := s.child(freedName)
	if b == nil {
		return 0, err
	}
	for _, key := range records {
		v := b.Get(key)
		switch inner := v == nil && b.Bucket(key) != nil; {
		case s.tx.Err() != nil:
			return forgotten, s.tx.Err()
		case inner:
			err = b.DeleteBucket(key)
		case v == nil:
			continue
		default:
			err = b.Delete(key)
		}
		if err != nil {
			return forgotten, err
		}
		forgotten++
	}
	if k, _ := b.Cursor().First(); k != nil || s.tx.Err() != nil {
		return forgotten, s.tx.Err()
	}
	return forgotten, s.bucket.DeleteBucket(freedName)
}

// deleteFreed deletes bytes that no chunk has. looks: it verifies first that no repair has given them to a chunk.
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
	v := s.bytesBucket(at.packed).Get(binary.BigEndian.AppendUint64(nil, at.id))
	if v == nil {
		return false, s.tx.Err()
	}
	p, _ := s.contentAt(at, v, nil)
	levels := []uint8{0}
	if len(p) > 4 && p[4] > 0 && p[4] <= maxLevel {
		levels = append(levels, p[4])
	}
	addr := s.options.sum(p)
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

// deleteNoted deletes noted bytes, those of at least limit ids if there are so many. n is the number of steps, 0 if nothing is noted.
func (s *Store) deleteNoted(limit int) (n int, err error) {
	ids, records, err := s.noted(nil, limit)
	if err != nil || len(records) == 0 {
		return 0, err
	}
	slices.SortFunc(ids, freedID.compare)
	for _, id := range ids {
		if err := s.deleteFreed(id, true); err != nil {
			return 0, err
		}
	}
	n, err = s.forgetNoted(records)
	if err == nil && n < len(records) { // else the next call would meet them again
		err = corruptf("keys of what is to be deleted are not in their order")
	}
	if err != nil {
		return 0, s.fail(err)
	}
	return max(len(ids), 1), nil
}

// freeing deletes the bytes of chunks that were taken off the index, in the order of their ids and in many transactions.
type freeing struct {
	ids     []freedID
	at      int
	records [][]byte // keys of those in which they stand
	looks   bool     // they are of an earlier Collect
	from    []byte   // where the next records of an earlier one begin
	skip    map[freedID]error

	failed freedID // could not be deleted, if fails
	fails  bool
}

// take takes up the next ids that an earlier Collect has left; none: it has left no more.
func (f *freeing) take(s *Store) (err error) {
	if f.ids, f.records, err = s.noted(f.from, maxWindow); err != nil {
		return err
	}
	slices.SortFunc(f.ids, freedID.compare)
	f.at, f.looks = 0, true
	if n := len(f.records); n > 0 {
		f.from = append(bytes.Clone(f.records[n-1]), 0)
	}
	return nil
}

// begin begins a transaction. If none of its notes is there any more, another Collect has deleted the bytes, or the store was deleted
// and made anew, with other bytes under these ids: then f forgets them.
func (f *freeing) begin(s *Store) error {
	b, err := s.child(freedName)
	if err != nil || len(f.records) == 0 {
		return err
	}
	for _, key := range f.records {
		if b != nil && (b.Get(key) != nil || b.Bucket(key) != nil) {
			return nil
		}
	}
	f.ids, f.records, f.at = f.ids[:0], nil, 0
	return s.damage()
}

// some deletes the bytes of at most n, and when those of all are deleted it forgets some records: there may be tens of thousands, too many
// for one transaction. After a crash those that are left delete nothing more.
func (f *freeing) some(s *Store, n int) error {
	for ; f.at < len(f.ids) && n > 0; n-- {
		id := f.ids[f.at]
		if _, skip := f.skip[id]; !skip {
			if err := s.deleteFreed(id, f.looks); err != nil {
				f.failed, f.fails = id, true
				return err
			}
		}
		f.at++
	}
	if f.at < len(f.ids) {
		return nil
	}
	n = min(max(n, collectPiece), len(f.records))
	_, err := s.forgetNoted(f.records[:n])
	if err == nil {
		f.records = f.records[n:]
	}
	return err
}

func (f *freeing) done() bool { return f.at == len(f.ids) && len(f.records) == 0 }

// full tells whether no more is to be added before it is deleted.
func (f *freeing) full() bool { return len(f.ids) >= maxWindow || len(f.records) >= maxRecords }

// pass passes over an id, whose bytes the file cannot give up, because of err.
func (f *freeing) pass(id freedID, err error) error {
	if _, again := f.skip[id]; again {
		return err
	}
	if f.skip == nil {
		f.skip = map[freedID]error{}
	}
	f.skip[id] = err
	return nil
}
