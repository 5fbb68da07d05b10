package blob

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"holdfast"
)

// The bucket of ingests holds a bucket for each, named by its name, with two keys: the state, and
// the bytes after the last whole leaf.
var (
	ingestsName = []byte("ingests")
	stateName   = []byte("state")
	tailName    = []byte("tail")
)

// ingestState is an ingest as it is saved.
type ingestState struct {
	options        IngestOptions
	started, saved int64 // seconds since 1970
	offset         int64
	levels         []ingestLevel // unfinished nodes, from the lowest
	sum            hashState     // of the content so far; with WholeDigest
	tail           []byte        // after the last whole leaf

	shape shape
	err   error // why it cannot be used
}

// ingestLevel is a node that is not finished: its children as they stand in a node.
type ingestLevel struct {
	n        int
	size     int64
	children []byte
}

// expired tells whether the lifetime of the state has ended.
func (st *ingestState) expired(now time.Time) bool {
	life := int64(st.options.Lifetime / time.Second)
	return life > 0 && st.saved <= now.Unix()-life
}

// each calls fn with the chunks that the state stands on, each as often as it does, and how much content they are said
// to have.
func (st *ingestState) each(fn func(k chunkKey, size int64) error) error {
	for level := range st.levels {
		l := &st.levels[level]
		size := st.shape.full(uint8(level))
		for i := range l.n {
			if st.shape.cdc {
				n := node{shape: st.shape, children: l.children}
				size, _ = n.cdcChild(i)
			}
			k := chunkKey{level: uint8(level)}
			copy(k.addr[:], l.children[i*st.shape.entry():])
			if err := fn(k, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunks are those that the state stands on.
func (st *ingestState) chunks() (keys []chunkKey) {
	_ = st.each(func(k chunkKey, _ int64) error {
		keys = append(keys, k)
		return nil
	})
	return keys
}

// checkSizes compares what a saved state says of the content of its chunks with the store, as far as they
// are there and sound.
func (s *Store) checkSizes(st *ingestState) error {
	return st.each(func(k chunkKey, said int64) error {
		e, ok, err := s.lookup(&k)
		if err != nil || !ok {
			return unlessCorrupt(err)
		}
		if k.level == 0 && int64(e.length) == said {
			return nil // and the leaf need not be read
		}
		if _, err := s.loadEntry(&k, &e); err != nil {
			return s.damage() // the index may have the wrong length
		}
		if size, err := s.sizeOf(&k, &e); err == nil && size != said {
			return corruptf("saved state: chunk %v has %d bytes, not %d", k, size, said)
		}
		return nil
	})
}

// entry is the length in bytes of what a node has of a child.
func (sh shape) entry() int {
	if sh.cdc {
		return cdcEntry
	}
	return fixedEntry
}

const (
	ingestPlain   = 1 // the first version, whose state of SHA-256 is as Go has it
	ingestVersion = 2
	wholeFlag     = 1
	maxLifetime   = uint64(math.MaxInt64 / time.Second)
)

// append encodes the state but for the tail: version, flags, size and digest that are expected,
// the two times, lifetime, offset, number of levels, and for each how many children, how much content, and
// these; the state of the hash.
func (st *ingestState) append(b []byte) []byte {
	flags := byte(0)
	if st.options.WholeDigest {
		flags |= wholeFlag
	}
	b = append(b, ingestVersion, flags)
	b = binary.AppendUvarint(b, uint64(st.options.Size))
	b = append(b, st.options.Digest[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(st.started))
	b = binary.LittleEndian.AppendUint64(b, uint64(st.saved))
	b = binary.AppendUvarint(b, uint64(st.options.Lifetime/time.Second))
	b = binary.AppendUvarint(b, uint64(st.offset))
	b = append(b, byte(len(st.levels)))
	for _, l := range st.levels {
		b = append(b, byte(l.n))
		b = binary.AppendUvarint(b, uint64(l.size))
		b = append(b, l.children...)
	}
	if st.options.WholeDigest {
		b = st.sum.append(b)
	}
	return b
}

// What a saved ingest is sealed as in an encrypted store: the state as one of its name, the bytes after the last whole leaf
// as those of this state.
const (
	sealedState = "state of an ingest"
	sealedTail  = "rest of an ingest"
)

// putIngest writes a saved state.
func (s *Store) putIngest(name []byte, b *holdfast.Bucket, st *ingestState) error {
	state, tail := st.append(nil), st.tail
	if key := s.options.Key; key != nil {
		state = key.sealRecord(state, sealedState, name)
		tail = key.sealRecord(tail, sealedTail, state)
	}
	if err := b.Put(tailName, tail); err != nil {
		return err
	}
	return b.Put(stateName, state)
}

// ingestValues gives a saved state as it was encoded; nil: it is not there.
func (s *Store) ingestValues(name []byte, b *holdfast.Bucket) (state, tail []byte, err error) {
	v, tail := b.Get(stateName), b.Get(tailName)
	if err := s.tx.Err(); err != nil {
		return nil, nil, err
	}
	key := s.options.Key
	if key == nil {
		return v, tail, nil
	}
	if state, err = key.openRecord(v, sealedState, name); err == nil {
		tail, err = key.openRecord(tail, sealedTail, v)
	}
	return state, tail, err
}

// loadIngest reads a saved state. It is checked as far as the store need not be asked.
func (s *Store) loadIngest(name []byte, b *holdfast.Bucket) (ingestState, error) {
	v, tail, err := s.ingestValues(name, b)
	if err != nil {
		return ingestState{}, err
	}
	st, err := parseIngest(v, s.options.shape())
	if err != nil {
		return ingestState{}, corruptf("saved state: %v", err)
	}
	below := int64(0)
	for _, l := range st.levels {
		if l.size > math.MaxInt64-below {
			return ingestState{}, corruptf("saved state: %v", errTooLarge)
		}
		below += l.size
	}
	if tail == nil || st.offset-below != int64(len(tail)) || int64(len(tail)) >= st.shape.maxLeaf() {
		return ingestState{}, corruptf("saved state: %d bytes, %d of them in chunks, and %d in the rest", st.offset, below, len(tail))
	}
	st.tail = tail
	return st, nil
}

// parseIngest decodes a state.
func parseIngest(b []byte, sh shape) (st ingestState, err error) {
	st.shape = sh
	if len(b) < 2 {
		return st, errShort
	}
	version := b[0]
	switch {
	case version != ingestVersion && version != ingestPlain:
		return st, fmt.Errorf("version %d is unknown", version)
	case b[1]&^wholeFlag != 0:
		return st, errForm
	}
	st.options.WholeDigest = b[1]&wholeFlag != 0
	if st.options.Size, b, err = size(b[2:]); err != nil {
		return st, err
	}
	if len(b) < len(st.options.Digest)+16 {
		return st, errShort
	}
	b = b[copy(st.options.Digest[:], b):]
	st.started, st.saved = int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
	life, b, err := uvarint(b[16:])
	switch {
	case err != nil:
		return st, err
	case life > maxLifetime:
		return st, errLong
	}
	st.options.Lifetime = time.Duration(life) * time.Second
	if st.offset, b, err = size(b); err != nil {
		return st, err
	}
	if len(b) == 0 {
		return st, errShort
	}
	levels := int(b[0])
	if b = b[1:]; levels > maxLevel {
		return st, errLong
	}
	for level := range levels {
		var l ingestLevel
		if l, b, err = parseIngestLevel(b, uint8(level), sh); err != nil {
			return st, err
		}
		st.levels = append(st.levels, l)
	}
	switch {
	case !st.options.WholeDigest && len(b) > 0:
		return st, errLong
	case !st.options.WholeDigest:
		return st, nil
	case version == ingestPlain:
		st.sum, err = parseGoHash(b, st.offset)
	default:
		st.sum, err = parseHash(b, st.offset)
	}
	return st, err
}

// parseIngestLevel decodes an unfinished node, whose children have that level.
func parseIngestLevel(b []byte, level uint8, sh shape) (l ingestLevel, rest []byte, err error) {
	if len(b) == 0 {
		return l, nil, errShort
	}
	l.n = int(b[0])
	if l.size, b, err = size(b[1:]); err != nil {
		return l, nil, err
	}
	n := l.n * sh.entry()
	switch {
	case l.n >= sh.fanout():
		return l, nil, errLong
	case len(b) < n:
		return l, nil, errShort
	}
	l.children, rest = b[:n:n], b[n:]
	if sh.cdc {
		nd := node{shape: sh, children: l.children, size: l.size, level: level + 1}
		if err := nd.checkChildren(); err != nil {
			return l, nil, err
		}
		for i := range l.n {
			if _, of := nd.cdcChild(i); of != level {
				return l, nil, errForm
			}
		}
	} else if full := sh.full(level); l.n > 0 && l.size/int64(l.n) != full || l.size != int64(l.n)*full {
		return l, nil, errForm
	}
	return l, rest, nil
}

// size decodes a number of bytes.
func size(b []byte) (int64, []byte, error) {
	v, b, err := uvarint(b)
	if err == nil && v > math.MaxInt64 {
		err = errLong
	}
	return int64(v), b, err
}
