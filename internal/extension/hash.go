package extension

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"fmt"

	"holdfast/internal/page"
	"holdfast/internal/plant"
)

// Hash is a keyed checksum.
type Hash [16]byte

// Add adds o to h, or takes it away again.
func (h *Hash) Add(o Hash) { subtle.XORBytes(h[:], h[:], o[:]) }

// Purpose separates what is hashed.
type Purpose uint32

// What is hashed.
const (
	OfMeta Purpose = iota + 1
	OfSnapshot
	OfLog
	OfPage
)

// A Hasher makes checksums with one key: AES-GMAC, which processors compute at
// several bytes a cycle. (Measured for 4 KiB: 0.7 µs; SHA-256 without
// instructions of its own 9 µs.) It finds accidents; it is no seal against whoever
// can write the file. It is for one goroutine at a time.
type Hasher struct {
	block cipher.Block
	aead  cipher.AEAD
	nonce [12]byte // here and not on the stack, from where each call would move them to the heap
	sum   [16]byte
}

// NewHasher makes a Hasher. It fails where a policy forbids GCM with a nonce of
// our own (GODEBUG=fips140=only); then no extension is written or believed.
func NewHasher(key [16]byte) (*Hasher, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("checksums of meta extensions: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("checksums of meta extensions: %w", err)
	}
	return &Hasher{block: block, aead: aead}, nil
}

// Sum is the checksum of b, which begins at page id.
func (h *Hasher) Sum(p Purpose, id page.ID, b []byte) Hash {
	binary.LittleEndian.PutUint32(h.nonce[:], uint32(p))
	binary.LittleEndian.PutUint64(h.nonce[4:], uint64(id))
	h.aead.Seal(h.sum[:0], h.nonce[:], nil, b)
	return h.sum
}

// Pages adds to sum the checksums of the pages of pageSize bytes that b holds, of
// which id is the first. Sums of pages are combined by exclusive or, so that
// the order does not matter and a page can be taken out again.
//
// GMAC is linear but for its mask: the exclusive or of two of them does not change
// if the pages trade places, or if both change in the same way. So each is
// encrypted once more.
func (h *Hasher) Pages(sum *Hash, id page.ID, b []byte, pageSize int) {
	for len(b) >= pageSize {
		h.Sum(OfPage, id, b[:pageSize])
		if !plant.On(plant.HashLinear) {
			h.block.Encrypt(h.sum[:], h.sum[:])
		}
		sum.Add(h.sum)
		id, b = id+1, b[pageSize:]
	}
}
