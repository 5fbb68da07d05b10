package blob

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Users is how many users a blob has: one for each Put, Commit and Retain of it that was not
// deleted, and one for each lease that holds it. 0: the store does not hold it, or only as a part of another one.
func (s *Store) Users(ref Ref) (uint64, error) {
	if ref.inlined {
		return 0, nil
	}
	_, e, ok, err := s.root(ref)
	if err != nil || !ok {
		return 0, err
	}
	return e.users, nil
}

// DigestOf gives the SHA-256 of the whole content of a blob that is stored, by which ByDigest finds
// it. ok is false if it was not computed when the blob was written, or the store has no such blob.
func (s *Store) DigestOf(ref Ref) (sum [32]byte, ok bool, err error) {
	if ref.inlined {
		return SHA256.sum(ref.bytes), true, nil
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

// FindDigest finds the blobs whose SHA-256 of the whole content begins with prefix, in
// hexadecimal, as far as ByDigest would find them. ErrInvalidRef if prefix is not
// hexadecimal.
func (s *Store) FindDigest(prefix string) ([]Ref, error) {
	digits := strings.ToLower(prefix)
	whole, err := hex.DecodeString(digits[:len(digits)&^1])
	if err != nil || len(whole) > len(Address{}) || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("prefix %.100q of a digest: %w", prefix, ErrInvalidRef)
	}
	var found []Ref
	add := func(sum [32]byte) error {
		if !strings.HasPrefix(hex.EncodeToString(sum[:]), digits) {
			return nil
		}
		ref, err := s.ByDigest(sum)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err == nil:
			found = append(found, ref)
		}
		return err
	}
	if s.options.Algorithm == SHA256 { // those of one leaf are named by their addresses
		refs, err := s.FindPrefix(digits)
		if err != nil {
			return nil, err
		}
		for _, ref := range refs {
			if ref.level == 0 {
				found = append(found, ref)
			}
		}
	}
	b, err := s.child(digestsName)
	if b == nil {
		return found, err
	}
	c := b.Cursor()
	for key, _ := c.Seek(whole); key != nil && bytes.HasPrefix(key, whole); key, _ = c.Next() {
		if len(key) != len(Address{}) {
			continue
		}
		if err := add([32]byte(key)); err != nil {
			return nil, err
		}
	}
	return found, s.tx.Err()
}
