package blob

import (
	"bytes"
	"fmt"
	"time"

	"holdfast"
)

// leased calls fn with each blob that a lease holds, as often as one does.
func (s *Store) leased(fn func(id string, k chunkKey) error) error {
	all, err := s.child(leasesName)
	if all == nil {
		return err
	}
	for id := range all.All() {
		b := all.Bucket(id)
		if b == nil {
			continue
		}
		for key, v := range b.All() {
			k, _, err := parseLeased(key, v)
			if err != nil {
				continue
			}
			if err := fn(string(id), k); err != nil {
				return err
			}
		}
	}
	return s.tx.Err()
}

// records checks leases and ingests.
func (c *checker) records() error {
	if err := c.eachRecord(leasesName, "lease", c.lease); err != nil {
		return err
	}
	return c.eachRecord(ingestsName, "ingest", c.ingest)
}

// eachRecord calls check with each bucket in one of the store's buckets.
func (c *checker) eachRecord(name []byte, what string, check func(id []byte, b *holdfast.Bucket) (remove bool, err error)) error {
	all, err := c.s.child(name)
	if all == nil {
		return err
	}
	var values, records [][]byte
	for id := range all.All() {
		b := all.Bucket(id)
		if b == nil {
			values = append(values, bytes.Clone(id))
			if err := c.found(Malformed, chunkKey{}, c.o.Repair, "%s %.100q is no bucket", what, id); err != nil {
				return err
			}
			continue
		}
		remove, err := check(id, b)
		if err != nil {
			return err
		}
		if remove {
			records = append(records, bytes.Clone(id))
		}
	}
	if err := c.s.tx.Err(); err != nil || !c.o.Repair {
		return err
	}
	for _, id := range records {
		if err := all.DeleteBucket(id); err != nil {
			return err
		}
	}
	return c.drop(all, values, nil)
}

// lease checks a lease. A repair takes off what is not there; a lease whose end is not known
// does not end.
func (c *checker) lease(id []byte, b *holdfast.Bucket) (bool, error) {
	if _, err := decodeExpires(b.Get(expiresName)); err != nil {
		if err := c.found(Malformed, chunkKey{}, c.o.Repair, "lease %.100q: %v", id, err); err != nil {
			return false, err
		}
		if c.o.Repair {
			if err := b.Put(expiresName, encodeExpires(time.Time{})); err != nil {
				return false, err
			}
		}
	}
	var wrong [][]byte
	for key, v := range b.All() {
		if bytes.Equal(key, expiresName) {
			continue
		}
		k, _, err := parseLeased(key, v)
		if err != nil {
			repaired := c.o.Repair && v != nil
			if repaired {
				wrong = append(wrong, bytes.Clone(key))
			}
			if err := c.found(Malformed, chunkKey{}, repaired, "lease %.100q: %v", id, err); err != nil {
				return false, err
			}
			continue
		}
		_, ok, err := c.s.lookup(&k)
		if err != nil {
			return false, err
		}
		if !ok {
			wrong = append(wrong, bytes.Clone(key))
			if err := c.found(MissingChunk, k, c.o.Repair, "lease %.100q holds it", id); err != nil {
				return false, err
			}
		}
	}
	if !c.o.Repair {
		wrong = nil
	}
	return false, c.drop(b, wrong, c.s.tx.Err())
}

// ingest checks an ingest. One that lacks something cannot go on: a repair removes it.
func (c *checker) ingest(name []byte, b *holdfast.Bucket) (remove bool, err error) {
	state, err := c.s.loadIngest(b)
	if err != nil {
		return true, firstError(c.s.tx.Err(), c.found(Malformed, chunkKey{}, c.o.Repair, "ingest %.100q: %v", name, err))
	}
	for _, k := range state.chunks() {
		_, ok, err := c.s.lookup(&k)
		if err != nil {
			return false, err
		}
		if !ok {
			if err := c.found(MissingChunk, k, c.o.Repair, "ingest %.100q stands on it", name); err != nil {
				return false, err
			}
			remove = true
		}
	}
	return remove, nil
}

// digests checks that each digest names a blob that is there, and is named by it.
func (c *checker) digests() error {
	b, err := c.s.child(digestsName)
	if b == nil {
		return err
	}
	var wrong [][]byte
	for key, v := range b.All() {
		k, fault := c.digest(b, key, v)
		if err := c.s.tx.Err(); err != nil {
			return err
		}
		if fault == nil {
			continue
		}
		repaired := c.o.Repair && v != nil
		if repaired {
			wrong = append(wrong, bytes.Clone(key))
		}
		if err := c.found(WrongDigest, k, repaired, "%x: %v", key[:min(len(key), keySize)], fault); err != nil {
			return err
		}
	}
	return c.drop(b, wrong, c.s.tx.Err())
}

// digest checks a key of the bucket of digests.
func (c *checker) digest(b *holdfast.Bucket, key, v []byte) (k chunkKey, fault error) {
	switch len(key) {
	case len(Address{}):
		var ref Ref
		if err := ref.UnmarshalBinary(v); err != nil {
			return k, err
		}
		k = ref.key()
		_, _, ok, err := c.s.root(ref)
		if err == nil && !ok {
			err = ErrMissing
		}
		root := k.encode()
		if err == nil && !bytes.Equal(b.Get(root[:]), key) {
			err = fmt.Errorf("the blob has another digest, or none")
		}
		return k, err
	case keySize:
		var ref Ref
		k, err := parseKey(key)
		if err == nil {
			err = ref.UnmarshalBinary(b.Get(v))
		}
		if err == nil && ref.key() != k {
			err = fmt.Errorf("the digest names another blob")
		}
		return k, err
	}
	return k, corruptf("key of %d bytes", len(key))
}
