package blob

import (
	"encoding/binary"
	"fmt"
)

// Stat describes a stored blob.
type Stat struct {
	Size   int64 // bytes of content
	Level  int   // of the root; 0: one leaf
	Leaves int64 // in the tree, each as often as it occurs
	Nodes  int64 // likewise

	// Of the chunks of the tree, each counted once:

	Chunks      int64 // how many
	Content     int64 // their bytes
	Stored      int64 // these as they are stored, compressed perhaps
	Shared      int64 // how many occur more than once, here or in other blobs, or have users besides
	SharedBytes int64 // of these, as they are stored

	Users uint64 // of the blob, leases included
}

// Stat tells how a blob is stored. It reads the nodes of its tree and the index, but
// no leaf, and keeps some 100 bytes for each different node: 3 kB for each 10 MB of the
// blob. ErrNotFound if the store does not hold the blob; of an inline reference
// only Size is known.
func (s *Store) Stat(ref Ref) (Stat, error) {
	if ref.inlined {
		return Stat{Size: ref.size}, nil
	}
	k, e, ok, err := s.root(ref)
	if err != nil {
		return Stat{}, fmt.Errorf("stat: %w", err)
	}
	if !ok || e.dead() {
		return Stat{}, fmt.Errorf("stat of blob %v: %w", ref, ErrNotFound)
	}
	w := statWalk{s: s, seen: map[chunkKey]treeCounts{}}
	w.stat = Stat{Size: ref.size, Level: ref.Level(), Users: e.users}
	counts, err := w.tree(k)
	if err == nil {
		err = w.leaves(k)
	}
	if err != nil {
		return Stat{}, fmt.Errorf("stat of blob %v: %w", ref, err)
	}
	w.stat.Leaves, w.stat.Nodes = counts.leaves, counts.nodes
	return w.stat, nil
}

// treeCounts is how many leaves and nodes a tree has, each as often as it occurs.
type treeCounts struct{ leaves, nodes int64 }

type statWalk struct {
	s    *Store
	stat Stat
	seen map[chunkKey]treeCounts // different nodes
	low  int64                   // leaves that these name
}

// tree counts what is below k, and takes each different node up once.
func (w *statWalk) tree(k chunkKey) (treeCounts, error) {
	if k.level == 0 {
		return treeCounts{leaves: 1}, nil
	}
	if known, ok := w.seen[k]; ok {
		return known, nil
	}
	if err := w.chunk(&k); err != nil {
		return treeCounts{}, err
	}
	n, err := w.s.loadNode(&k)
	if err != nil {
		return treeCounts{}, err
	}
	sum := treeCounts{nodes: 1}
	for i := range n.count() {
		child, _ := n.child(i)
		if child.level == 0 {
			w.low++
		}
		below, err := w.tree(child)
		if err != nil {
			return treeCounts{}, err
		}
		sum.leaves += below.leaves
		sum.nodes += below.nodes
	}
	w.seen[k] = sum
	return sum, nil
}

// statLeaves is how many different leaves are remembered at once.
const statLeaves = 1 << 18

// leaves takes each different leaf up once: in as many passes as their number asks
// for, each of which has its share of the addresses.
func (w *statWalk) leaves(root chunkKey) error {
	if root.level == 0 {
		return w.chunk(&root)
	}
	passes := uint64(w.low/statLeaves + 1)
	for pass := range passes {
		seen := map[Address]struct{}{}
		for k := range w.seen {
			n, err := w.s.loadNode(&k)
			if err != nil {
				return err
			}
			for i := range n.count() {
				child, _ := n.child(i)
				if child.level > 0 || binary.BigEndian.Uint64(child.addr[:])%passes != pass {
					continue
				}
				if _, again := seen[child.addr]; again {
					continue
				}
				seen[child.addr] = struct{}{}
				if err := w.chunk(&child); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// chunk takes a chunk up.
func (w *statWalk) chunk(k *chunkKey) error {
	e, ok, err := w.s.lookup(k)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("chunk %v: %w", k, ErrMissing)
	}
	w.stat.Chunks++
	w.stat.Content += int64(e.length)
	w.stat.Stored += int64(e.size())
	if e.parents+e.users > 1 {
		w.stat.Shared++
		w.stat.SharedBytes += int64(e.size())
	}
	return nil
}

// loadNode gives a node, verified.
func (s *Store) loadNode(k *chunkKey) (node, error) {
	b, err := s.load(k)
	if err != nil {
		return node{}, err
	}
	n, err := parseNode(b, k.level, s.options.shape())
	if err != nil {
		return node{}, fmt.Errorf("chunk %v: %w", k, err)
	}
	return n, nil
}

// Usage describes a store.
type Usage struct {
	Blobs   int64  // with users
	Users   uint64 // of all these
	Content int64  // bytes of the blobs, each counted once

	Leaves      int64 // chunks stored
	LeafBytes   int64 // as they are stored
	LeafContent int64 // of these leaves, before compression and encryption
	LiveContent int64 // of those that are not dead
	Compressed  int64 // how many of the leaves are
	Nodes       int64
	NodeBytes   int64
	Packed      int64 // of these chunks, how many are shorter than a leaf and lie together
	Dead        int64 // and how many wait for Collect
	DeadBytes   int64
	Leases      int
	Ingests     int
	Digests     int64
	Unreadable  int64 // entries of the index, or nodes of blobs, that are damaged
}

// Usage adds up what is in the store. It reads the whole index, and the root of each blob.
func (s *Store) Usage() (Usage, error) {
	var u Usage
	if err := s.flush(); err != nil {
		return u, err
	}
	c := s.seekIndex(nil)
	for key, v := c.next(); key != nil; key, v = c.next() {
		k, err := parseKey(key)
		if err != nil {
			u.Unreadable++
			continue
		}
		e, err := parseEntry(v)
		if err != nil {
			u.Unreadable++
			continue
		}
		u.chunk(&k, &e)
	}
	for info, err := range s.blobs(nil) {
		if err != nil {
			if s.tx.Err() != nil {
				return u, err
			}
			u.Unreadable++
			continue
		}
		u.Blobs++
		u.Users += info.users
		u.Content += info.ref.size
	}
	return u, s.usageBesides(&u)
}

func (u *Usage) chunk(k *chunkKey, e *entry) {
	if k.level == 0 {
		u.Leaves++
		u.LeafBytes += int64(e.size())
		u.LeafContent += int64(e.length)
		if e.stored > 0 && e.stored < e.length {
			u.Compressed++
		}
		if !e.dead() {
			u.LiveContent += int64(e.length)
		}
	} else {
		u.Nodes++
		u.NodeBytes += int64(e.length)
	}
	if e.packed {
		u.Packed++
	}
	if e.dead() {
		u.Dead++
		u.DeadBytes += int64(e.size())
	}
}

// usageBesides adds leases, ingests and digests.
func (s *Store) usageBesides(u *Usage) error {
	for _, err := range s.Leases() {
		if err != nil {
			return err
		}
		u.Leases++
	}
	for _, err := range s.Ingests() {
		if err != nil {
			return err
		}
		u.Ingests++
	}
	b, err := s.child(digestsName)
	if b == nil {
		return err
	}
	for key := range b.All() {
		if len(key) == len(Address{}) {
			u.Digests++
		}
	}
	return s.tx.Err()
}
