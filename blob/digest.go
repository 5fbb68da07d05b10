package blob

import (
	"bytes"
	"errors"
	"fmt"

	"holdfast"
)

// The bucket of digests holds, for blobs whose SHA-256 of the whole is not their
// address: digest (32 bytes) -> encoded Ref, and, so that it goes with the blob,
// key of the root chunk (33 bytes) -> digest.
var digestsName = []byte("digests")

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
	v := b.Get(sha256[:])
	if v == nil {
		return Ref{}, firstError(s.tx.Err(), notFound)
	}
	var ref Ref
	if err := ref.UnmarshalBinary(v); err != nil {
		return Ref{}, corruptf("blob of digest sha256:%x: %v", sha256, err)
	}
	_, e, ok, err := s.root(ref)
	if errors.Is(err, ErrInvalidRef) || errors.Is(err, ErrAlgorithm) {
		return Ref{}, corruptf("blob of digest sha256:%x: %v", sha256, err)
	}
	if err != nil || !ok || e.dead() {
		return Ref{}, firstError(err, notFound)
	}
	return ref, nil
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
	if len(v) != len(sum) {
		return sum, false, corruptf("digest of blob %v has %d bytes", ref, len(v))
	}
	return [32]byte(v), true, nil
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
	if bytes.Equal(b.Get(sha256[:]), v) {
		return nil
	}
	if err := b.Put(sha256[:], v); err != nil {
		return err
	}
	root := ref.key()
	key := root.encode()
	if err := b.Put(key[:], bytes.Clone(sha256[:])); err != nil {
		return s.fail(err) // one of the two stands there without the other
	}
	return nil
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
	if err := b.Delete(bytes.Clone(digest)); err != nil {
		return err
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
