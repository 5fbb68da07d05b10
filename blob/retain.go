package blob

import "fmt"

// Has tells whether the store holds the blob: it has users, or it is a part of
// another one. It reads no leaf. An inline reference is always held.
func (s *Store) Has(ref Ref) (bool, error) {
	if ref.inlined {
		return true, nil
	}
	_, e, ok, err := s.standingRoot(ref)
	return ok && !e.dead(), err
}

// Users is how many users a blob has: one for each Put, Commit and Retain of it that was not
// deleted, and one for each lease that holds it. 0: the store does not hold it, or only as a part of another one.
func (s *Store) Users(ref Ref) (uint64, error) {
	if ref.inlined {
		return 0, nil
	}
	_, e, ok, err := s.standingRoot(ref)
	if err != nil || !ok {
		return 0, err
	}
	return e.users, nil
}

// Retain gives a blob one user more, who gives it back with Delete. ErrNotFound
// if the store does not hold the blob; what was deleted is not held any more,
// whether or not Collect has come by. Of an inline reference nothing is stored.
func (s *Store) Retain(ref Ref) error {
	if ref.inlined {
		return nil
	}
	k, e, ok, err := s.standingRoot(ref)
	if err != nil {
		return err
	}
	if !ok || e.dead() {
		return fmt.Errorf("retain blob %v: %w", ref, ErrNotFound)
	}
	return s.count(&k, 0, 1)
}

// Delete takes one user from a blob: one for each Put, Commit and Retain of it.
// ErrNotFound if it has none; what leases hold, and what ingests stand on, it leaves to
// them. Without users, and if it is not a part of another, it
// is not held any more; Collect frees its space, so Delete takes the same short
// time for a blob of any size.
func (s *Store) Delete(ref Ref) error {
	if ref.inlined {
		return nil
	}
	k, e, ok, err := s.standingRoot(ref)
	if err != nil {
		return err
	}
	if !ok || e.users <= e.leased {
		return fmt.Errorf("delete blob %v: %w", ref, ErrNotFound)
	}
	return s.count(&k, 0, -1)
}

// standingRoot is root as standing is lookup.
func (s *Store) standingRoot(ref Ref) (k chunkKey, e entry, ok bool, err error) {
	return s.rootBy(ref, s.standing)
}

// root looks the root chunk of a reference up. A reference of another algorithm
// or size than the stored chunk is an error. Where the content of a node is damaged its size
// is not known, and not compared: what is damaged can still be deleted.
func (s *Store) root(ref Ref) (k chunkKey, e entry, ok bool, err error) {
	return s.rootBy(ref, s.lookup)
}

func (s *Store) rootBy(ref Ref, find func(k *chunkKey) (entry, bool, error)) (k chunkKey, e entry, ok bool, err error) {
	if ref.IsZero() {
		return k, e, false, fmt.Errorf("the zero reference: %w", ErrInvalidRef)
	}
	if ref.algorithm != s.options.Algorithm {
		return k, e, false, fmt.Errorf("blob %v: %w", ref, ErrAlgorithm)
	}
	k = ref.key()
	e, ok, err = find(&k)
	if err != nil || !ok {
		return k, e, false, err
	}
	size := int64(e.length)
	if k.level > 0 {
		if size, err = s.nodeSize(&k, &e); err != nil {
			return k, e, s.damage() == nil, s.damage()
		}
	}
	if size != ref.size {
		return k, e, false, fmt.Errorf("blob %v: it has %d bytes, and the reference says %d: %w", ref, size, ref.size, ErrInvalidRef)
	}
	return k, e, true, nil
}

// nodeSize is how much content is below a node.
func (s *Store) nodeSize(k *chunkKey, e *entry) (int64, error) {
	p, err := s.loadEntry(k, e)
	if err != nil {
		return 0, err
	}
	n, err := parseNode(p, k.level, s.options.shape())
	return n.size, err
}
