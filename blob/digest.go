package blob

import (
	"bytes"
	"errors"
	"fmt"

	"holdfast"
)

// The bucket of digests holds, for blobs whose SHA-256 of the whole is not their
// address: digest (32 bytes) -> encoded Ref, and, so that it goes with the blob,
// key of the root chunk (33 bytes) -> digest. In an encrypted store a keyed hash of the digest
// stands for it as a key, and as a value it is sealed, as one of the root.
var digestsName = []byte("digests")

// digestKey is the key under which a digest leads to its blob.
func (s *Store) digestKey(sha256 *[32]byte) [32]byte {
	if key := s.options.Key; key != nil {
		return key.wholes.hash(sha256[:])
	}
	return *sha256
}

const sealedDigest = "digest of a blob"

// digestValue is what stands for a digest under the key of its root.
func (s *Store) digestValue(root []byte, sha256 *[32]byte) []byte {
	if key := s.options.Key; key != nil {
		return key.sealRecord(sha256[:], sealedDigest, root)
	}
	return bytes.Clone(sha256[:])
}

// openDigest gives the digest for which v stands under the key of its root.
func (s *Store) openDigest(root, v []byte) (sum [32]byte, err error) {
	if key := s.options.Key; key != nil {
		if v, err = key.openRecord(v, sealedDigest, root); err != nil {
			return sum, err
		}
	}
	if len(v) != len(sum) {
		return sum, corruptf("digest of %d bytes", len(v))
	}
	return [32]byte(v), nil
}

// leadsTo tells whether v, under the key of a root, stands for the digest with that key.
func (s *Store) leadsTo(root, v, key []byte) bool {
	sum, err := s.openDigest(root, v)
	if err != nil {
		return false
	}
	at := s.digestKey(&sum)
	return bytes.Equal(at[:], key)
}

// ByDigest finds a blob by the SHA-256 of its whole content: the digest by which
// OCI registries name it. It finds blobs of one leaf in stores with SHA-256, and all
// that were written with that digest computed (Writer.Digest, or an Ingest).
// ErrNotFound if there is none.
func (s *Store) ByDigest(sha256 [32]byte) (Ref, error) {
	if err := s.flush(); err != nil {
		return Ref{}, err
	}
	if s.options.Algorithm == SHA256 {
		k := chunkKey{addr: sha256}
		if e, ok, err := s.lookup(&k); err != nil {
			return Ref{}, err
		} else if ok && !e.dead() {
			return s.ref(k, int64(e.length)), nil
		}
	}
	notFound := fmt.Errorf("blob of digest sha256:%x: %w", sha256, ErrNotFound)
	b, err := s.child(digestsName)
	if b == nil {
		return Ref{}, firstError(err, notFound)
	}
	at := s.digestKey(&sha256)
	ref, ok, err := s.byDigestKey(b, at[:])
	switch {
	case err != nil:
		return Ref{}, fmt.Errorf("blob of digest sha256:%x: %w", sha256, err)
	case !ok:
		return Ref{}, notFound
	}
	if s.options.Key != nil { // the reference is not sealed, and may have been exchanged with another
		root := ref.key()
		if key := root.encode(); !s.leadsTo(key[:], b.Get(key[:]), at[:]) {
			return Ref{}, firstError(s.tx.Err(), corruptf("digest sha256:%x leads to blob %v, which has another", sha256, ref))
		}
	}
	return ref, nil
}

// byDigestKey finds a blob by the key of its digest; false: there is none.
func (s *Store) byDigestKey(b *holdfast.Bucket, at []byte) (ref Ref, ok bool, err error) {
	v := b.Get(at)
	if v == nil {
		return Ref{}, false, s.tx.Err()
	}
	if err := ref.UnmarshalBinary(v); err != nil {
		return Ref{}, false, corruptf("%v", err)
	}
	_, e, ok, err := s.root(ref)
	if errors.Is(err, ErrInvalidRef) || errors.Is(err, ErrAlgorithm) {
		return Ref{}, false, corruptf("%v", err)
	}
	return ref, ok && !e.dead(), err
}

// DigestOf gives the SHA-256 of the whole content of a blob that is stored, by which ByDigest finds
// it. ok is false if it was not computed when the blob was written, or the store has no such blob.
func (s *Store) DigestOf(ref Ref) (sum [32]byte, ok bool, err error) {
	if ref.inlined {
		return SHA256.sum(ref.value()), true, nil
	}
	if _, _, ok, err = s.root(ref); err != nil || !ok {
		return sum, false, err
	}
	if ref.level == 0 && ref.algorithm == SHA256 {
		return ref.addr, true, nil
	}
	b, err := s.child(digestsName)
	if b == nil {
		return sum, false, err
	}
	root := ref.key()
	key := root.encode()
	v := b.Get(key[:])
	if v == nil {
		return sum, false, s.tx.Err()
	}
	if sum, err = s.openDigest(key[:], v); err != nil {
		return sum, false, fmt.Errorf("digest of blob %v: %w", ref, err)
	}
	return sum, true, nil
}

// setDigest has ByDigest find a stored blob by the SHA-256 of its content.
func (s *Store) setDigest(sha256 [32]byte, ref Ref) error {
	if ref.inlined || ref.level == 0 && s.options.Algorithm == SHA256 {
		return nil
	}
	b, err := s.bucket.CreateBucketIfNotExists(digestsName)
	if err != nil {
		return err
	}
	v, err := ref.MarshalBinary()
	if err != nil {
		return err
	}
	at, root := s.digestKey(&sha256), ref.key()
	key := root.encode()
	named := bytes.Equal(b.Get(at[:]), v)
	if named && s.leadsTo(key[:], b.Get(key[:]), at[:]) {
		return nil
	}
	if !named {
		err = b.Put(at[:], v)
	}
	if err != nil {
		return err
	}
	err = b.Put(key[:], s.digestValue(key[:], &sha256))
	if err == nil || named && errors.Is(err, holdfast.ErrIncompatibleValue) { // a bucket in its place is for Check
		return nil
	}
	return s.fail(err) // one of the two stands there without the other
}

// forgetDigest takes the digest of a chunk that is removed off, if it has one.
func (s *Store) forgetDigest(k *chunkKey) error {
	if k.level == 0 && s.options.Algorithm == SHA256 {
		return nil
	}
	b, err := s.child(digestsName)
	if b == nil {
		return err
	}
	key := k.encode()
	digest := b.Get(key[:])
	if digest == nil {
		return s.tx.Err()
	}
	// Without its digest, which Check reports, the other key is not known. Nor does a bucket in its place keep the chunk.
	if sum, err := s.openDigest(key[:], digest); err == nil {
		at := s.digestKey(&sum)
		if err := b.Delete(at[:]); err != nil && !errors.Is(err, holdfast.ErrIncompatibleValue) {
			return err
		}
	}
	return b.Delete(key[:])
}

// child is a bucket of the store that is made when it is first used; nil if there is
// none.
func (s *Store) child(name []byte) (*holdfast.Bucket, error) {
	b := s.bucket.Bucket(name)
	if b == nil {
		return nil, s.tx.Err()
	}
	return b, nil
}

func (s *Store) ref(k chunkKey, size int64) Ref {
	return Ref{addr: k.addr, level: k.level, size: size, algorithm: s.options.Algorithm}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
