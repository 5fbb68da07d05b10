package extension

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"holdfast/internal/page"
)

// Hash is a keyed checksum.
type Hash [16]byte

// Purpose separates what is hashed.
type Purpose uint32

// What is hashed.
const (
	OfMeta Purpose = iota + 1
	OfSnapshot
	OfLog
)

// A Hasher makes checksums with one key: AES-GMAC, which processors compute at
// several bytes a cycle. (Measured for 4 KiB: 0.7 µs; SHA-256 without
// instructions of its own 9 µs.) It finds accidents; it is no seal against whoever
// can write the file.
type Hasher struct{ aead cipher.AEAD }

// NewHasher makes a Hasher. It fails where a policy forbids GCM with a nonce of
// our own (GODEBUG=fips140=only); then no extension is written or believed.
func NewHasher(key [16]byte) (*Hasher, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("checksums of free-space records: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("checksums of free-space records: %w", err)
	}
	return &Hasher{aead}, nil
}

// Sum is the checksum of b, which begins at page id.
func (h *Hasher) Sum(p Purpose, id page.ID, b []byte) (sum Hash) {
	var nonce [12]byte
	binary.LittleEndian.PutUint32(nonce[:], uint32(p))
	binary.LittleEndian.PutUint64(nonce[4:], uint64(id))
	h.aead.Seal(sum[:0], nonce[:], nil, b)
	return sum
}
