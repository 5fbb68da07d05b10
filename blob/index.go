package blob

import (
	"encoding/binary"
	"fmt"

	"holdfast"
	"holdfast/internal/bridge"
)

// probe finds what the index has of a chunk, without what was gathered.
func (s *Store) probe(k *chunkKey) (entry, bool, error) {
	key := k.encode()
	b, recent := s.indexed(key[:])
	if b == nil {
		return entry{}, false, s.damage()
	}
	e, err := parseEntry(b)
	if err != nil {
		return entry{}, false, fmt.Errorf("chunk %v: %w", k.addr, err)
	}
	e.recent = recent
	return e, true, nil
}

// damage is why a call that has no error to return gave nothing, if it should have.
func (s *Store) damage() error {
	if s.tx.DB() == nil {
		return holdfast.ErrTxClosed
	}
	return s.tx.Err()
}

func missing(k *chunkKey) error {
	return fmt.Errorf("chunk %v of level %d: %w", k.addr, k.level, ErrMissing)
}

// lookup finds a chunk; false if the store has none. If something of it was gathered, all that was is flushed first.
func (s *Store) lookup(k *chunkKey) (entry, bool, error) {
	if s.failed != nil {
		return entry{}, false, s.failed
	}
	if s.batch != nil && s.batch.find(k) != nil {
		if err := s.flush(); err != nil {
			return entry{}, false, err
		}
	}
	return s.probe(k)
}

// standing is lookup for a caller that wants the length and the counts only. What was gathered is counted in, and is
// flushed only where that would not do: so a transaction that deletes many blobs changes the index once.
func (s *Store) standing(k *chunkKey) (entry, bool, error) {
	var p *pending
	if s.batch != nil && s.failed == nil {
		p = s.batch.find(k)
	}
	if p == nil {
		return s.lookup(k)
	}
	e, found, err := s.probe(k)
	if err != nil {
		return entry{}, false, err
	}
	came := p.state&hasBytes != 0
	if !found {
		e = entry{length: int(p.length)}
	}
	parents, users, leased := int64(e.parents)+p.parents, int64(e.users)+p.users, int64(e.leased)+int64(p.leased)
	// A node that was gathered may not be stored in the end, and gives up its children then.
	unsure := users == 0 && parents > 0 && len(s.batch.nodes) > 0
	if !found && !came || came && k.level > 0 || found && e.lost() || min(parents, users, leased) < 0 || unsure {
		return s.lookup(k)
	}
	e.parents, e.users, e.leased = uint64(parents), uint64(users), uint64(leased)
	return e, true, nil
}

// refer adds to the counts of a chunk that exists: ErrMissing if it does not.
func (s *Store) refer(k *chunkKey, parents, users int64) error {
	if s.batch == nil || s.batch.find(k) == nil {
		_, found, err := s.probe(k)
		if err != nil {
			return err
		}
		if !found {
			return missing(k)
		}
	}
	return s.count(k, parents, users)
}

// count adds to the counts of a chunk that the caller has looked up. A count that gets below zero is an error of the flush.
func (s *Store) count(k *chunkKey, parents, users int64) error {
	if err := s.writable(); err != nil {
		return err
	}
	if s.batch != nil && len(s.batch.entries) >= maxCounted && s.batch.find(k) == nil {
		if err := s.flush(); err != nil {
			return err
		}
	}
	return s.adjust(k, parents, users)
}

// lend adds n to the leases that hold a chunk, and so to its users. The caller has looked the chunk up.
func (s *Store) lend(k *chunkKey, n int32) error {
	if err := s.count(k, 0, int64(n)); err != nil {
		return err
	}
	s.batch.find(k).leased += n
	return nil
}

// data gives the bytes of a chunk as they are stored, a frame perhaps, and not verified. They are valid as
// long as the transaction.
func (s *Store) data(e *entry) ([]byte, error) {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], e.id)
	p := s.bytesBucket(e.packed).Get(key[:])
	if p == nil {
		if err := s.damage(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMissing, err)
		}
		return nil, fmt.Errorf("bytes %d: %w", e.id, ErrMissing)
	}
	if len(p) != e.size() {
		return nil, corruptf("chunk has %d bytes, not %d", len(p), e.size())
	}
	if frame := e.stored > 0; frame != s.isFrame(e.packed, e.id) {
		return nil, corruptf("chunk is a frame: %v, by its number: %v", frame, !frame)
	}
	return p, nil
}

func (s *Store) bytesBucket(packed bool) *holdfast.Bucket {
	if packed {
		return s.packs
	}
	return s.leaves
}

// load gives the content of a chunk, verified against its address.
func (s *Store) load(k *chunkKey) ([]byte, error) {
	e, found, err := s.lookup(k)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrMissing
	}
	return s.loadEntry(k, &e)
}

func (s *Store) loadEntry(k *chunkKey, e *entry) ([]byte, error) {
	if e.stored > 0 {
		return s.loadFrame(k, e, new(expanded))
	}
	if p := s.unsealed(e, !e.packed); p != nil && s.verify(k, e, p, p) {
		return p, nil
	}
	// Whatever is wrong with it, the page may tell more.
	p, err := s.data(e)
	if err == nil && !s.verify(k, e, p, p) {
		return nil, corruptf("chunk has the address %v", s.options.sum(p))
	}
	return p, err
}

// unsealed is data, but that the seals of long leaves are not verified, for the bytes are going to be
// verified by their hash. alone: the system may read them at once, for they are alone on their pages. nil if there is anything wrong with them.
func (s *Store) unsealed(e *entry, alone bool) []byte {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], e.id)
	length := 0
	if alone {
		length = e.size()
	}
	p, err := bridge.GetUnsealed(s.bytesBucket(e.packed), key[:], length)
	if err != nil || len(p) != e.size() || (e.stored > 0) != s.isFrame(e.packed, e.id) {
		return nil
	}
	return p
}

// remove deletes a chunk that is not used: its bytes, its entry and its mark in dead. Those
// below a node are not touched.
func (s *Store) remove(k *chunkKey, e *entry) error {
	if err := s.forget(k); err != nil {
		return err
	}
	if err := s.deleteBytes(e.packed, e.id); err != nil {
		return s.fail(err)
	}
	return nil
}

// forget is remove but for the bytes.
func (s *Store) forget(k *chunkKey) error {
	if err := s.writable(); err != nil {
		return err
	}
	if s.batch != nil && s.batch.find(k) != nil {
		now, found, err := s.lookup(k)
		if err != nil {
			return err
		}
		if !found || !now.dead() {
			return fmt.Errorf("removing chunk %v, which is in use", k.addr)
		}
	}
	s.key = k.encode()
	if err := s.unindex(s.key[:]); err != nil {
		return s.fail(err)
	}
	if err := s.dead.Delete(s.key[:]); err != nil {
		return s.fail(err)
	}
	return nil
}

func (s *Store) deleteBytes(packed bool, id uint64) error {
	binary.BigEndian.PutUint64(s.key[:8], id)
	return s.bytesBucket(packed).Delete(s.key[:8])
}

// putBytes adds a blob that is in memory.
func (s *Store) putBytes(p []byte) (Ref, error) {
	single := s.options.LeafSize
	if s.options.Chunking == FastCDC {
		single /= maxSpread // cut no sooner than that
	}
	if len(p) > single {
		if s.put == nil {
			s.put = s.Writer()
		}
		return s.put.putAll(p)
	}
	k := chunkKey{addr: s.options.sum(p)}
	if _, err := s.add(&k, p, nil, asUser); err != nil {
		return Ref{}, err
	}
	return Ref{algorithm: s.options.Algorithm, addr: k.addr, size: int64(len(p))}, nil
}

// errNoID is of a store whose counter of ids is damaged: no store has had so many chunks. Number 0 is that
// of lost bytes.
var errNoID = corruptf("the counter of ids is used up")

// takeID gives a new id of a bucket, for a frame or not.
func (s *Store) takeID(isPacked, frame bool) (uint64, error) {
	b := s.bytesBucket(isPacked)
	id, err := s.idAfter(b.Sequence(), isPacked, frame)
	if err == nil {
		err = b.SetSequence(id)
	}
	return id, err
}

// idAfter is the next id after id. In a store with frames that of a frame is odd, and of other bytes in packs even.
func (s *Store) idAfter(id uint64, isPacked, frame bool) (uint64, error) {
	next := id + 1
	if isPacked && s.options.hasFrames() && isFrame(isPacked, next) != frame {
		next++
	}
	if next <= id {
		return 0, errNoID
	}
	return next, nil
}
