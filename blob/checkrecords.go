package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"holdfast"
)

// leased calls fn with each blob that a lease holds, as often as one does.
func (c *checker) leased(fn func(k chunkKey) error) error {
	return c.inRecords(leasesName, func(id []byte, b *holdfast.Bucket) error {
		return c.scan(inside(string(leasesName), id), b, nil, nil, func(key, v []byte) error {
			k, _, err := parseLeased(key, v)
			if err != nil {
				return nil
			}
			return fn(k)
		})
	})
}

// ingested calls fn with each chunk that a saved ingest stands on, as often as one does.
func (c *checker) ingested(fn func(k chunkKey) error) error {
	return c.inRecords(ingestsName, func(name []byte, b *holdfast.Bucket) error {
		state, damage, err := c.loadIngest(name, b)
		if damage != nil || err != nil {
			return nil
		}
		for _, k := range state.chunks() {
			if err := fn(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// inRecords calls fn with each bucket in one of the store's buckets that can be opened.
func (c *checker) inRecords(name []byte, fn func(id []byte, b *holdfast.Bucket) error) error {
	all, err := c.recordsIn(name)
	if all == nil {
		return err
	}
	return c.scan(string(name), all, nil, nil, func(id, _ []byte) error {
		b, _, err := c.record(all, id)
		if b == nil || err != nil {
			return err
		}
		return fn(id, b)
	})
}

// loadIngest loads a saved state, with bytes that it keeps. damage: that of the file there.
func (c *checker) loadIngest(name []byte, b *holdfast.Bucket) (state ingestState, damage, err error) {
	damage, err = c.try(func() (err error) {
		state, err = c.s.loadIngest(name, b)
		return err
	})
	return state, damage, err
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
	all, err := c.recordsIn(name)
	if all == nil {
		return err
	}
	var values, records [][]byte
	err = c.scan(string(name), all, nil, nil, func(id, _ []byte) error {
		b, damage, err := c.record(all, id)
		switch {
		case err != nil:
			return err
		case damage != nil:
			return c.found(Unreadable, chunkKey{}, false, "%s %.100q: %v", what, id, damage)
		case b == nil:
			values = append(values, bytes.Clone(id))
			return c.found(Malformed, chunkKey{}, c.o.Repair, "%s %.100q is not a bucket", what, id)
		}
		remove, err := check(id, b)
		if remove {
			records = append(records, bytes.Clone(id))
		}
		return err
	})
	if err != nil || !c.o.Repair {
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
	damage, err := c.try(func() error {
		_, err := decodeExpires(b.Get(expiresName))
		return err
	})
	if damage == nil && err != nil {
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
	var sizes []leasedSize
	err = c.scan(inside(string(leasesName), id), b, nil, nil, func(key, v []byte) error {
		if bytes.Equal(key, expiresName) {
			return nil
		}
		k, size, err := parseLeased(key, v)
		if err != nil {
			repaired := c.o.Repair && v != nil
			if repaired {
				wrong = append(wrong, bytes.Clone(key))
			}
			return c.found(Malformed, chunkKey{}, repaired, "lease %.100q: %v", id, err)
		}
		there, err := c.known(&k)
		if err != nil {
			return err
		}
		if there {
			has, wrong, err := c.otherSize(&k, size)
			if err != nil || !wrong {
				return err
			}
			sizes = append(sizes, leasedSize{bytes.Clone(key), has})
			return c.found(WrongLength, k, c.o.Repair, "the blob has %d bytes, and lease %.100q says %d", has, id, size)
		}
		wrong = append(wrong, bytes.Clone(key))
		return c.found(MissingChunk, k, c.o.Repair, "lease %.100q holds it", id)
	})
	if !c.o.Repair {
		return false, err
	}
	for _, s := range sizes {
		if err == nil {
			err = b.Put(s.key, binary.AppendUvarint(nil, uint64(s.size)))
		}
	}
	return false, c.drop(b, wrong, err)
}

// leasedSize is what a lease should say of a blob.
type leasedSize struct {
	key  []byte
	size int64
}

// known tells whether the index has a chunk, or may have it.
func (c *checker) known(k *chunkKey) (ok bool, err error) {
	damage, err := c.try(func() (err error) {
		_, ok, err = c.s.lookup(k)
		ok = ok || errors.Is(err, ErrCorrupt)
		return unlessCorrupt(err)
	})
	return ok || damage != nil || c.unindexed(k), err
}

// ingest checks an ingest. One that lacks something cannot go on: a repair removes it.
func (c *checker) ingest(name []byte, b *holdfast.Bucket) (remove bool, err error) {
	state, damage, err := c.loadIngest(name, b)
	if damage != nil {
		return false, c.found(Unreadable, chunkKey{}, false, "ingest %.100q: %v", name, damage)
	}
	if err != nil {
		return true, c.found(Malformed, chunkKey{}, c.o.Repair, "ingest %.100q: %v", name, err)
	}
	damage, err = c.try(func() error { return c.s.checkSizes(&state) })
	if err != nil && damage == nil {
		return true, c.found(Malformed, chunkKey{}, c.o.Repair, "ingest %.100q: %v", name, err)
	}
	for _, k := range state.chunks() {
		there, err := c.known(&k)
		if err != nil {
			return false, err
		}
		if there {
			continue
		}
		if err := c.found(MissingChunk, k, c.o.Repair, "ingest %.100q stands on it", name); err != nil {
			return false, err
		}
		remove = true
	}
	return remove, nil
}

// digests checks that each digest names a blob that is there, and is named by it; and, with Digests, that it is
// that of the content.
func (c *checker) digests() error {
	b, err := c.recordsIn(digestsName)
	if b == nil {
		return err
	}
	var wrong [][]byte
	err = c.scan(string(digestsName), b, nil, nil, func(key, v []byte) error {
		var k chunkKey
		damage, fault := c.try(func() (err error) {
			k, err = c.digest(b, key, v)
			return err
		})
		if damage != nil || errors.Is(fault, ErrMissing) && c.unindexed(&k) {
			return nil // reported
		}
		if fault == nil && c.o.Digests && len(key) == len(Address{}) {
			if damage, fault, err = c.wholeDigest(b, &k, v); err != nil {
				return err
			}
			if damage != nil {
				return c.found(Unreadable, k, false, "the content of the blob: %v", damage)
			}
			if c.o.Repair && errors.Is(fault, ErrDigestMismatch) {
				root := k.encode()
				wrong = append(wrong, root[:])
			}
		}
		if fault == nil {
			return nil
		}
		var content *CorruptError
		repaired := c.o.Repair && v != nil && !errors.As(fault, &content)
		if repaired {
			wrong = append(wrong, bytes.Clone(key))
		}
		return c.found(WrongDigest, k, repaired, "%x: %v", key[:min(len(key), keySize)], fault)
	})
	return c.drop(b, wrong, err)
}

// wholeDigest compares the content of a blob, to whose reference v its digest leads, with that.
func (c *checker) wholeDigest(b *holdfast.Bucket, k *chunkKey, v []byte) (damage, fault, err error) {
	var ref Ref
	if err := ref.UnmarshalBinary(v); err != nil {
		return nil, err, nil
	}
	root := k.encode()
	want, err := c.s.openDigest(root[:], b.Get(root[:]))
	if err != nil {
		return nil, err, nil
	}
	sum := sha256.New()
	damage, fault = c.try(func() error {
		r, err := c.s.Reader(ref)
		if err == nil {
			_, err = r.WriteTo(stoppable{c.ctx, sum})
		}
		return err
	})
	c.stats.Digests++
	switch got := [32]byte(sum.Sum(nil)); {
	case c.ctx.Err() != nil:
		return nil, nil, c.ctx.Err()
	case fault != nil:
		fault = fmt.Errorf("the content cannot be read: %w", fault)
	case got != want:
		fault = fmt.Errorf("%w: the content has sha256:%x", ErrDigestMismatch, got)
	}
	return damage, fault, nil
}

// stoppable is a writer that fails when its context has ended.
type stoppable struct {
	ctx context.Context
	w   io.Writer
}

func (s stoppable) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.w.Write(p)
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
		if err == nil && !c.s.leadsTo(root[:], b.Get(root[:]), key) {
			err = fmt.Errorf("the blob has another digest, or none")
		}
		return k, err
	case keySize:
		var ref Ref
		k, err := parseKey(key)
		var sum [32]byte
		if err == nil {
			sum, err = c.s.openDigest(key, v)
		}
		if err == nil {
			at := c.s.digestKey(&sum)
			err = ref.UnmarshalBinary(b.Get(at[:]))
		}
		if err == nil && ref.key() != k {
			err = fmt.Errorf("the digest names another blob")
		}
		return k, err
	}
	return k, corruptf("key of %d bytes", len(key))
}

// freed reads whose bytes Collect has still to delete. A repair deletes them: it would take them for lost ones.
func (c *checker) freed() error {
	b, err := c.recordsIn(freedName)
	if b == nil {
		return err
	}
	err = c.scan(string(freedName), b, nil, nil, func(key, v []byte) error {
		if len(key) != 8 || v == nil || len(v)%8 != 0 {
			return c.found(Malformed, chunkKey{}, c.o.Repair, "key %.100q in the bucket of what is to be deleted", key)
		}
		for ; len(v) > 0; v = v[8:] {
			c.waiting = append(c.waiting, freedID(binary.LittleEndian.Uint64(v)))
		}
		return nil
	})
	slices.SortFunc(c.waiting, freedID.compare)
	for c.o.Repair && err == nil && c.damage == nil {
		var n int
		if n, err = c.s.deleteNoted(maxWindow); n == 0 {
			break
		}
	}
	return err
}

// waits tells whether bytes wait for Collect.
func (c *checker) waits(at spot) bool {
	id, ok := idOf(&entry{packed: at.packed, id: at.id})
	_, found := slices.BinarySearchFunc(c.waiting, id, freedID.compare)
	return ok && found
}
