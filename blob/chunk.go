package blob

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// This file has what a program needs that moves blobs from store to store in chunks, as package exchange does.

// Chunk names a chunk of a blob's tree: a leaf, of level 0, or a node.
type Chunk struct {
	Address Address
	Level   uint8
	Size    int64 // bytes of content in the leaf, or below the node
}

func (c *Chunk) key() chunkKey { return chunkKey{c.Address, c.Level} }

// Root is the root of the blob's tree. Of an inline blob it is the leaf that it would be.
func (r Ref) Root() Chunk { return Chunk{r.Address(), r.level, r.size} }

// MaxChunk is the length in bytes of the longest chunk of a store with these options.
func (o Options) MaxChunk() int { return max(int(o.shape().maxLeaf()), maxNodeSize) }

// MinLeaf is the length in bytes of the shortest leaf of a blob but for its last one.
func (o Options) MinLeaf() int {
	if o.Chunking == FastCDC {
		return o.LeafSize / maxSpread
	}
	return o.LeafSize
}

// CheckRef tells whether a store with these options can have a blob of that reference: ErrInvalidRef,
// ErrAlgorithm.
func (o Options) CheckRef(r Ref) error {
	switch {
	case r.IsZero():
		return fmt.Errorf("the zero reference: %w", ErrInvalidRef)
	case r.algorithm != o.Algorithm:
		return fmt.Errorf("blob %v: %w", r, ErrAlgorithm)
	case r.inlined:
		return nil
	}
	if err := o.shape().checkSize(r.size, r.level); err != nil {
		return fmt.Errorf("blob %v: %w: %w", r, ErrInvalidRef, err)
	}
	return nil
}

// VerifiedChunk is a chunk with bytes that were compared with its address.
type VerifiedChunk struct {
	Chunk
	algorithm Algorithm
	of        *Key // of the store
	node      node // of a node
	bytes     []byte
}

// VerifyChunk compares p with what c says: its address, its level, and its size. Anything else is ErrCorrupt. p is
// kept, and must stay as it is.
func (o Options) VerifyChunk(c Chunk, p []byte) (VerifiedChunk, error) {
	v := VerifiedChunk{Chunk: c, algorithm: o.Algorithm, of: o.Key, bytes: p}
	size := int64(len(p))
	if sum := o.sum(p); sum != c.Address {
		return VerifiedChunk{}, corruptf("chunk %v has the address %v", c.key(), sum)
	}
	sh := o.shape()
	if c.Level > 0 {
		var err error
		if v.node, err = parseNode(p, c.Level, sh); err != nil {
			return VerifiedChunk{}, fmt.Errorf("chunk %v: %w", c.key(), err)
		}
		size = v.node.size
	}
	if size != c.Size || c.Level == 0 && size > sh.maxLeaf() {
		return VerifiedChunk{}, corruptf("chunk %v has %d bytes of content where one with %d should be", c.key(), size, c.Size)
	}
	return v, nil
}

// Children are the chunks right below a node, in the order of their content; none of a leaf.
func (v *VerifiedChunk) Children() []Chunk {
	var list []Chunk
	if v.Level > 0 {
		list = make([]Chunk, v.node.count())
		for i := range list {
			k, size := v.node.child(i)
			list[i] = Chunk{k.addr, k.level, size}
		}
	}
	return list
}

// Full tells whether v is a node that has as many children as a node can have, and as much content as they can have
// unless it is cut by content. Such a node, or a leaf, can be appended to an ingest.
func (v *VerifiedChunk) Full() bool {
	return v.Level > 0 && v.node.count() == v.node.fanout() && v.node.whole()
}

// whole tells whether no child of n is the rest of a blob, less high or shorter than the others.
func (n *node) whole() bool {
	last, size := n.child(n.count() - 1)
	return last.level == n.level-1 && (n.cdc || size == n.stride)
}

// Chunk gives the bytes of a chunk of the store, verified against its address. They are valid as long as the
// transaction. ErrMissing: there is no such chunk. ErrCorrupt: it is damaged; both: its bytes are missing where the index says
// that they are.
func (s *Store) Chunk(a Address, level uint8) ([]byte, error) {
	k := chunkKey{a, level}
	var p []byte
	e, found, err := s.lookup(&k)
	switch {
	case err == nil && !found:
		err = ErrMissing
	case err == nil:
		if p, err = s.loadEntry(&k, &e); errors.Is(err, ErrMissing) && !e.lost() {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("chunk %v: %w", k, err)
	}
	return p, nil
}

// HasChunk tells whether the store has a chunk, also one that nothing uses and Collect has not removed yet. Of a node it
// has all that is below it, too. The index is believed, but with VerifyStored the chunk is read. A chunk of another
// size than c says is another chunk.
func (s *Store) HasChunk(c Chunk) (bool, error) {
	_, _, ok, err := s.standingChunk(&c)
	if err != nil {
		err = fmt.Errorf("chunk %v: %w", c.key(), err)
	}
	return ok, err
}

func (s *Store) standingChunk(c *Chunk) (k chunkKey, e entry, ok bool, err error) {
	k = c.key()
	if e, ok, err = s.lookup(&k); err != nil || !ok {
		return k, e, false, err
	}
	if unsound, err := s.unsound(&k, &e); err != nil || unsound {
		return k, e, false, err
	}
	size, err := s.sizeOf(&k, &e)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrMissing) {
		return k, e, false, s.damage() // it is damaged: as good as none
	}
	return k, e, err == nil && size == c.Size, err
}

// AppendStored appends a chunk that the store has to what was written, without its bytes being written again, nor read,
// unless they are short or the SHA-256 of the whole is computed. It must begin where a chunk can: after whole
// ones, and a node must be full (VerifiedChunk.Full). false: it is not in the store, or cannot be appended so, and nothing has
// changed: its bytes, or the chunks below it, have to be written. An error gives up what was written since
// the last Save.
func (in *Ingest) AppendStored(c Chunk) (bool, error) {
	if in.err != nil {
		return false, in.err
	}
	ok, err := in.appendStored(&c)
	if err != nil {
		return false, in.fail(fmt.Errorf("appending chunk %v: %w", c.key(), err))
	}
	return ok, nil
}

func (in *Ingest) appendStored(c *Chunk) (bool, error) {
	s := in.s
	k, e, ok, err := s.standingChunk(c)
	if err != nil || !ok {
		return false, err
	}
	whole, err := in.fits(c, &k, &e)
	if err != nil || !whole && c.Level > 0 {
		return false, err
	}
	if !whole || in.whole != nil {
		p, err := s.loadEntry(&k, &e)
		if err != nil {
			return false, s.damage()
		}
		p = slices.Clone(p) // what is written can move what is read
		return true, in.appendLeaf(VerifiedChunk{Chunk: *c, algorithm: s.options.Algorithm, of: s.options.Key, bytes: p})
	}
	if err := in.grow(c.Size); err != nil {
		return false, err
	}
	if err := s.count(&k, 1, 0); err != nil {
		return false, err
	}
	return true, in.w.tree.push(k, c.Size)
}

// fits tells whether a stored chunk can be appended as it is.
func (in *Ingest) fits(c *Chunk, k *chunkKey, e *entry) (bool, error) {
	if len(in.w.leaf) > 0 {
		return false, nil
	}
	if c.Level == 0 {
		return in.s.isLeaf(k, e.length) && c.Size <= in.s.options.shape().maxLeaf(), nil
	}
	if in.whole != nil || in.s.verifies { // what is below it has to be read
		return false, nil
	}
	for level := range min(int(c.Level), len(in.w.tree.levels)) {
		if in.w.tree.levels[level].n > 0 {
			return false, nil
		}
	}
	n, err := in.s.loadNode(k)
	if err != nil {
		return false, in.s.damage()
	}
	v := VerifiedChunk{Chunk: *c, node: n}
	return v.Full(), nil
}

// AppendVerified appends a leaf. It is Write of its bytes, which are neither cut nor hashed again: so where content says how
// blobs are cut, it must be a leaf of a blob that was cut so, for equal content to be stored once. An error gives up
// what was written since the last Save.
func (in *Ingest) AppendVerified(v VerifiedChunk) error {
	if in.err != nil {
		return in.err
	}
	if v.Level > 0 || v.algorithm != in.s.options.Algorithm || !sameKey(v.of, in.s.options.Key) {
		return in.fail(fmt.Errorf("appending chunk %v: %w", v.key(), ErrAlgorithm))
	}
	if err := in.appendLeaf(v); err != nil {
		return in.fail(fmt.Errorf("appending chunk %v: %w", v.key(), err))
	}
	return nil
}

// appendLeaf appends a leaf with its bytes. One that is short is the last one, or is cut again.
func (in *Ingest) appendLeaf(v VerifiedChunk) error {
	k := v.key()
	if in.whole != nil {
		in.whole.Write(v.bytes)
	}
	if len(in.w.leaf) > 0 || !in.s.isLeaf(&k, len(v.bytes)) || v.Size > in.s.options.shape().maxLeaf() {
		_, err := in.w.Write(v.bytes)
		return err
	}
	if err := in.grow(v.Size); err != nil {
		return err
	}
	return in.w.store(v.Address, v.bytes, nil)
}

// grow counts content that does not come through the writer's cutter.
func (in *Ingest) grow(size int64) error {
	w := in.w
	if err := w.start(); err != nil {
		return err
	}
	switch limit := w.expected.size; {
	case size > math.MaxInt64-w.size:
		return errTooLarge
	case limit >= 0 && size > limit-w.size:
		return fmt.Errorf("%w: more than %d bytes", ErrSizeMismatch, limit)
	}
	w.size += size
	return nil
}

// Bytes are those of the chunk, which must not be changed.
func (v *VerifiedChunk) Bytes() []byte { return v.bytes }
