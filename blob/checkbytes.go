package blob

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"holdfast"
)

// entries finds what is malformed in the index. A repair deletes it; the bytes that it has named
// belong to no chunk then, and are taken in again by bytes.
func (c *checker) entries() error {
	var drops []func() error
	err := c.each(nil, nil, func(chunkKey, entry) error { return nil }, func(b *holdfast.Bucket, key []byte, err error) error {
		repaired := false
		if c.o.Repair && b.Bucket(key) == nil {
			key := slices.Clone(key)
			drops = append(drops, func() error { return b.Delete(key) })
			repaired = true
		}
		return c.found(Malformed, chunkKey{}, repaired, "key %x of the index: %v", key[:min(len(key), 2*keySize)], err)
	})
	for _, drop := range drops {
		if err == nil {
			err = drop()
		}
	}
	return err
}

// drop deletes keys, unless err is not nil, which it returns.
func (c *checker) drop(b *holdfast.Bucket, keys [][]byte, err error) error {
	for _, key := range keys {
		if err == nil {
			err = b.Delete(key)
		}
	}
	return err
}

// holding is a value of the bucket of leaves, or of that of packs.
type holding struct {
	id     uint64
	length int      // as it is stored
	said   int      // of the content, as that says itself; -1: it is no frame where one should be; or unsaid
	opens  bool     // only its opening tells: said is what the index says
	key    chunkKey // that it belongs to
	named  bool
	dead   bool // as the index says
}

const holdingSize = 64 // bytes of memory, at most

// bytesOf compares one of these buckets with the index, in windows of ids.
type bytesOf struct {
	*checker
	bucket *holdfast.Bucket
	packed bool
	window []holding // in the order of ids
	last   uint64    // id that belongs to the window
	fixes  []func() error

	expanded []byte // memory for the content of a frame
	whole    bool   // what was read last is the content of a frame, if it should be
}

// bytes compares the bytes that are stored with those that the index names.
func (c *checker) bytes() error {
	for _, b := range []*bytesOf{{bucket: c.s.leaves}, {bucket: c.s.packs, packed: true}} {
		b.checker = c
		for from := uint64(0); ; from = b.last + 1 {
			if err := b.check(from); err != nil {
				return err
			}
			if b.last == math.MaxUint64 {
				break
			}
		}
	}
	return nil
}

// check is for one window. What it repairs it changes at its end, since nothing may be changed
// that is being iterated over.
func (b *bytesOf) check(from uint64) error {
	if err := b.fill(from); err != nil {
		return err
	}
	b.fixes = b.fixes[:0]
	err := b.each(nil, nil, func(k chunkKey, e entry) error {
		if e.packed != b.packed || e.id < from || e.id > b.last {
			return nil
		}
		return b.entry(k, e)
	}, nil)
	if err != nil {
		return err
	}
	if b.o.Data || b.o.Repair {
		if err := b.verify(); err != nil {
			return err
		}
	}
	if err := b.unchanged(); err != nil {
		return err
	}
	for _, fix := range b.fixes {
		if err := fix(); err != nil {
			return err
		}
	}
	for i := range b.window {
		if h := &b.window[i]; !h.named && (b.o.Repair || !b.waits(spot{b.packed, h.id})) {
			if err := b.leaked(&b.window[i]); err != nil {
				return err
			}
		}
	}
	if b.o.Repair {
		if err := b.rehome(); err != nil {
			return err
		}
		if err := b.tidy(); err != nil {
			return err
		}
	}
	return b.s.flush()
}

// fill reads the window's ids and lengths, from the id from on.
func (b *bytesOf) fill(from uint64) error {
	limit := max(b.o.Memory/holdingSize, 1)
	b.window, b.last = b.window[:0], math.MaxUint64
	err := b.scan(bytesName(b.packed), b.bucket, binary.BigEndian.AppendUint64(nil, from), nil, func(key, v []byte) error {
		if err := b.ctx.Err(); err != nil && len(b.window)%1024 == 0 {
			return err
		}
		if len(key) != 8 || v == nil {
			return b.found(Malformed, chunkKey{}, false, "key %.100q in the bucket of chunks", key)
		}
		if len(b.window) == limit {
			b.last = b.window[limit-1].id
			return errEnough
		}
		b.window = append(b.window, b.s.holdingOf(spot{b.packed, binary.BigEndian.Uint64(key)}, v))
		return nil
	})
	if err != nil {
		return err
	}
	if n := len(b.window); n > 0 && b.last == math.MaxUint64 && b.window[n-1].id > b.bucket.Sequence() {
		last := b.window[n-1].id
		if err := b.found(Malformed, chunkKey{}, b.o.Repair, "the counter of ids is %d, and %d is in use", b.bucket.Sequence(), last); err != nil {
			return err
		}
		if b.o.Repair {
			return b.bucket.SetSequence(last)
		}
	}
	return nil
}

// entry finds the bytes of a chunk in the window.
func (b *bytesOf) entry(k chunkKey, e entry) error {
	i, ok := slices.BinarySearchFunc(b.window, e.id, func(s holding, id uint64) int {
		switch {
		case s.id < id:
			return -1
		case s.id > id:
			return 1
		}
		return 0
	})
	if !ok && b.inGap(bytesName(b.packed), binary.BigEndian.AppendUint64(nil, e.id)) {
		return b.found(Unreadable, k, false, "%s %d", bytesWord(b.packed), e.id)
	}
	if !ok {
		// A dead chunk without bytes is nothing; a node would keep its children if they
		// had been counted, which counts mends.
		repaired := b.o.Repair && e.dead()
		switch {
		case repaired:
			b.fixes = append(b.fixes, func() error { return b.s.remove(&k, &e) })
		case b.o.Repair && !e.lost():
			b.fixes = append(b.fixes, func() error { return b.s.lose(&k, &e) })
		}
		return b.found(MissingBytes, k, repaired, "%s %d", b.name(), e.id)
	}
	s := &b.window[i]
	if s.named {
		if b.o.Repair {
			first := s.key
			b.fixes = append(b.fixes, func() error { return b.separate(first, k) })
		}
		return b.found(SharedBytes, k, b.o.Repair, "%s %d, which chunk %v has too", b.name(), e.id, s.key)
	}
	s.key, s.named, s.dead = k, true, e.dead()
	if s.said == unsaid {
		s.said, s.opens = e.length, true
	}
	if s.length == e.size() && s.said == e.length && (e.stored > 0) == b.s.isFrame(b.packed, e.id) {
		return nil
	}
	p, damage, err := b.read(e.id)
	if damage != nil {
		return b.unreadableBytes(k, &e, damage)
	}
	if err != nil {
		return err
	}
	was := e
	repaired := b.o.Repair && b.whole && b.s.options.sum(p) == k.addr && len(p) <= maxChunk
	if repaired {
		e.length, e.stored = len(p), 0
		if b.s.isFrame(b.packed, e.id) {
			e.stored = s.length
		}
		b.fixes = append(b.fixes, func() error { return b.s.putEntry(&k, &e) })
	}
	return b.found(WrongLength, k, repaired, "%s %d has %s, and the index says %s", b.name(), e.id, lengths(s.length, s.said), lengths(was.size(), was.length))
}

// holdingOf is a value of a bucket, of which nothing is known but what it says itself.
func (s *Store) holdingOf(at spot, v []byte) holding {
	h := holding{id: at.id, length: len(v), said: len(v)}
	if s.isFrame(at.packed, at.id) {
		var ok bool
		if h.said, ok = s.frameLength(v); !ok {
			h.said = -1
		}
	}
	return h
}

// lengths writes how long something is.
func lengths(stored, content int) string {
	switch {
	case stored == content:
		return fmt.Sprintf("%d bytes", stored)
	case content < 0:
		return fmt.Sprintf("%d bytes that are no compressed or encrypted leaf", stored)
	}
	return fmt.Sprintf("%d bytes, stored as %d", content, stored)
}

func (b *bytesOf) name() string { return bytesWord(b.packed) }

// bytesWord is what bytes in one of the two buckets are called, and bytesName which bucket that is.
func bytesWord(packed bool) string {
	if packed {
		return "pack"
	}
	return "leaf"
}

func bytesName(packed bool) string {
	if packed {
		return string(packsName)
	}
	return string(leavesName)
}

// verify verifies the bytes of the window, for a check those of leaves only; nodes are read anyway.
func (b *bytesOf) verify() error {
	for _, s := range b.window {
		switch {
		case !s.named, s.key.level > 0 && !b.o.Repair:
			continue
		case !b.o.Data && !b.search && !s.dead: // what is dead goes, so a repair looks whether it is what it is said to be
			continue
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
		var sum Address
		p, damage, err := b.readSum(s.id, &sum)
		if err != nil {
			return err
		}
		if damage != nil {
			if err := b.unreadableBytes(s.key, &entry{packed: b.packed, id: s.id, length: len(p)}, damage); err != nil {
				return err
			}
			continue
		}
		is := b.whatIs(spot{b.packed, s.id}, p, sum)
		if b.whole && (s.key == is[0] || s.key == is[1]) {
			if s.opens && len(p) != s.said {
				if err := b.otherLength(&s, len(p)); err != nil {
					return err
				}
			}
			if b.o.Repair && s.key != is[1] { // a leaf with the bytes of a node: its entry may have the wrong level
				b.strays = append(b.strays, stray{owner: s.key, at: spot{b.packed, s.id}, is: is})
			}
			continue
		}
		discarded := b.o.Repair && b.o.Discard && s.key.level == 0
		if b.o.Repair {
			b.strays = append(b.strays, stray{owner: s.key, at: spot{b.packed, s.id}, is: is, discard: discarded})
		}
		if s.key.level > 0 {
			continue // it is reported with the other nodes
		}
		if err := b.wrong(s.key, false, discarded, "%s %d: its bytes have the address %v", b.name(), s.id, sum); err != nil {
			return err
		}
	}
	return nil
}

// otherLength reports a frame of which only its opening tells how long its content is.
func (b *bytesOf) otherLength(h *holding, length int) error {
	k := h.key
	if b.o.Repair {
		b.fixes = append(b.fixes, func() error {
			e, ok, err := b.s.lookup(&k)
			if err != nil || !ok {
				return err
			}
			e.length = length
			return b.s.putEntry(&k, &e)
		})
	}
	return b.found(WrongLength, k, b.o.Repair, "%s %d has %s, and the index says %d", b.name(), h.id, lengths(h.length, length), h.said)
}

// read gives the content of bytes, until the next call. damage: that of the file there.
func (b *bytesOf) read(id uint64) (p []byte, damage, err error) { return b.readSum(id, nil) }

// readSum gives their address too.
func (b *bytesOf) readSum(id uint64, sum *Address) (p []byte, damage, err error) {
	damage, err = b.try(func() error {
		p = b.bucket.Get(binary.BigEndian.AppendUint64(nil, id))
		b.whole = true
		if at := (spot{b.packed, id}); b.s.isFrame(b.packed, id) && b.s.tx.Err() == nil {
			if p, b.whole = b.s.contentAt(at, p, b.expanded); b.whole {
				b.expanded = p
			}
		}
		if sum != nil && b.s.tx.Err() == nil {
			*sum = b.s.options.sum(p)
		}
		return nil
	})
	return p, damage, err
}

// stored gives bytes as they are stored.
func (b *bytesOf) stored(id uint64) (v []byte, damage, err error) {
	damage, err = b.try(func() error {
		v = b.bucket.Get(binary.BigEndian.AppendUint64(nil, id))
		return nil
	})
	return v, damage, err
}

// separate gives two chunks that share bytes their own: those that have the address of both a copy;
// otherwise the chunk whose they are not has none, and is reported as such from then on.
func (b *bytesOf) separate(first, second chunkKey) error {
	for _, k := range []*chunkKey{&second, &first} {
		e, ok, err := b.s.lookup(k)
		if err != nil || !ok {
			return err
		}
		at := spot{b.packed, e.id}
		p, damage, err := b.stored(e.id)
		if damage != nil || err != nil {
			return err
		}
		sound := b.isSound(k, &e)
		switch {
		case !sound:
			b.loose = append(b.loose, spot{e.packed, e.id})
			e.id, e.stored = 0, 0 // lost
		case k == &second:
			// The first one may be sound too: level and address differ in the level only then.
			at, err = b.putCopy(at, bytes.Clone(p), b.s.isFrame(at.packed, at.id))
			e.id = at.id
		default:
			continue
		}
		if err == nil {
			err = b.s.putEntry(k, &e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaked reports bytes that the index does not name. A repair gives them to the chunk whose
// they are, if that has none that are sound, or is not in the index; then it is dead for now, and counts finds
// out who uses it.
func (b *bytesOf) leaked(s *holding) error {
	if len(b.gaps[string(indexName)])+len(b.gaps[string(recentName)])+len(b.gaps[string(freedName)]) > 0 {
		return nil // it may be there that they are named, or said to be waiting
	}
	var k chunkKey
	p, damage, err := b.readSum(s.id, &k.addr)
	if damage != nil {
		return b.unreadableBytes(chunkKey{}, &entry{packed: b.packed, id: s.id}, damage)
	}
	if err != nil {
		return err
	}
	k = b.whatIs(spot{b.packed, s.id}, p, k.addr)[1]
	if err := b.found(LeakedBytes, k, b.o.Repair, "%s %d of %d bytes", b.name(), s.id, s.length); err != nil || !b.o.Repair {
		return err
	}
	return b.adopt(spot{b.packed, s.id})
}

// lose has a chunk that is in use, and whose bytes are not there, stored again when it is written
// again.
func (s *Store) lose(k *chunkKey, e *entry) error {
	e.id, e.stored = 0, 0
	return s.putEntry(k, e)
}

// putEntry changes the index, where nothing is pending.
func (s *Store) putEntry(k *chunkKey, e *entry) error {
	key := k.encode()
	return s.at(key[:]).Put(key[:], e.append(nil))
}

// setMark marks a chunk as dead or not.
func (s *Store) setMark(k *chunkKey, dead bool) error {
	key := k.encode()
	if dead {
		return s.dead.Put(key[:], []byte{})
	}
	return s.dead.Delete(key[:])
}
