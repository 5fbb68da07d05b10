package blob

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"

	"holdfast"
)

// Roots iterates over the blobs of the store: all that have users, in the order of
// their addresses. What a saved ingest stands on is not among them. A blob that is
// damaged such that its size is not known is an error after which the iteration
// goes on. The last error is that of the transaction (holdfast.Tx.Err), if it has one, whichever call has met the
// damage: after it, what the iteration gave may not be all. The store must not be changed meanwhile.
func (s *Store) Roots() iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for info, err := range s.blobs(nil) {
			if !yield(info.ref, err) {
				return
			}
		}
	}
}

// Find finds the blobs whose address, or the SHA-256 of whose whole content as far as ByDigest would find
// it, begins with prefix, in hexadecimal: first those with users whose address does, in order.
// ErrInvalidRef if prefix is not hexadecimal.
func (s *Store) Find(prefix string) ([]Ref, error) {
	digits := strings.ToLower(prefix)
	whole, err := hex.DecodeString(digits[:len(digits)&^1])
	if err != nil || len(digits) > hex.EncodedLen(len(Address{})) || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("prefix %.100q of an address: %w", prefix, ErrInvalidRef)
	}
	var found []Ref
	for info, err := range s.blobs(whole) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(info.ref.addr.String(), digits) {
			found = append(found, info.ref)
		}
	}
	b, err := s.child(digestsName)
	if b == nil {
		return found, err
	}
	seen := make(map[Ref]bool)
	for _, ref := range found {
		seen[ref] = true
	}
	for sum := range s.digests(b, whole) {
		if !strings.HasPrefix(hex.EncodeToString(sum[:]), digits) {
			continue
		}
		ref, err := s.ByDigest(sum)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		case !seen[ref]:
			seen[ref] = true
			found = append(found, ref)
		}
	}
	return found, s.tx.Err()
}

// digests iterates over the digests in the bucket of them that begin with prefix, in order. Those of an encrypted store are
// all looked at, in no order.
func (s *Store) digests(b *holdfast.Bucket, prefix []byte) iter.Seq[[32]byte] {
	return func(yield func([32]byte) bool) {
		if s.options.Key != nil {
			for root, v := range b.All() {
				if len(root) != keySize {
					continue
				}
				sum, err := s.openDigest(root, v) // a damaged one is reported by Check
				if err == nil && bytes.HasPrefix(sum[:], prefix) && !yield(sum) {
					return
				}
			}
			return
		}
		c := b.Cursor()
		for key, _ := c.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, _ = c.Next() {
			if len(key) == len(Address{}) && !yield([32]byte(key)) {
				return
			}
		}
	}
}

// blobInfo is a blob as the index has it.
type blobInfo struct {
	ref   Ref
	users uint64
}

// blobs iterates over the blobs whose address begins with prefix.
func (s *Store) blobs(prefix []byte) iter.Seq2[blobInfo, error] {
	return func(yield func(blobInfo, error) bool) {
		if err := s.flush(); err != nil {
			yield(blobInfo{}, err)
			return
		}
		c := s.seekIndex(prefix)
		for key, v := c.next(); key != nil && bytes.HasPrefix(key, prefix); key, v = c.next() {
			k, err := parseKey(key)
			var e entry
			if err == nil {
				e, err = parseEntry(v)
			}
			if err == nil && e.users == 0 {
				continue
			}
			var size int64
			if err == nil {
				size, err = s.sizeOf(&k, &e)
			}
			if !yield(blobInfo{s.ref(k, size), e.users}, err) {
				return
			}
		}
		if err := s.tx.Err(); err != nil {
			yield(blobInfo{}, err)
		}
	}
}

// sizeOf is how many bytes of content a chunk stands for.
func (s *Store) sizeOf(k *chunkKey, e *entry) (int64, error) {
	if k.level == 0 {
		return int64(e.length), nil
	}
	n, err := s.loadNode(k)
	if err != nil {
		return 0, fmt.Errorf("blob %v: %w", k.addr, err)
	}
	return n.size, nil
}

// String names a chunk in messages.
func (k chunkKey) String() string {
	if k.level == 0 {
		return k.addr.String()
	}
	return fmt.Sprintf("%v (node of level %d)", k.addr, k.level)
}
