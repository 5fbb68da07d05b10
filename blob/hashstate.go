package blob

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"fmt"
	"hash"
)

// hashState is the state of a SHA-256 that is under way: what FIPS 180-4 calls the intermediate hash value,
// and the bytes of a block that is not whole. How many bytes were hashed is stored with it.
type hashState struct {
	value [sha256.Size]byte // eight words, the highest byte of each first
	block []byte            // fewer than a block
}

func (h *hashState) append(b []byte) []byte { return append(append(b, h.value[:]...), h.block...) }

// parseHash decodes the state after size bytes.
func parseHash(b []byte, size int64) (h hashState, err error) {
	switch want := len(h.value) + int(size%sha256.BlockSize); {
	case len(b) < want:
		return h, errShort
	case len(b) > want:
		return h, errLong
	}
	h.block = b[copy(h.value[:], b):]
	return h, nil
}

// The form in which crypto/sha256 gives its state, and takes it: four bytes, the value, a block with zeros
// after what there is of it, and how many bytes were hashed. It is in no file but those with the first
// version of saved ingests.
const (
	goHashMagic = "sha\x03"
	goHashSize  = len(goHashMagic) + sha256.Size + sha256.BlockSize + 8
)

// parseGoHash decodes that form of the state after size bytes.
func parseGoHash(b []byte, size int64) (h hashState, err error) {
	if len(b) != goHashSize || string(b[:len(goHashMagic)]) != goHashMagic {
		return h, fmt.Errorf("state of SHA-256: %w", errForm)
	}
	if n := binary.BigEndian.Uint64(b[goHashSize-8:]); n != uint64(size) {
		return h, fmt.Errorf("state of SHA-256 of %d bytes, where %d were written", n, size)
	}
	b = b[len(goHashMagic):]
	b = b[copy(h.value[:], b):]
	h.block = b[:size%sha256.BlockSize]
	return h, nil
}

// saveHash gives the state of a SHA-256 after size bytes.
func saveHash(sum hash.Hash, size int64) (hashState, error) {
	b, err := sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return hashState{}, err
	}
	return parseGoHash(b, size)
}

// load gives sum the state after size bytes.
func (h *hashState) load(sum hash.Hash, size int64) error {
	b := append(make([]byte, 0, goHashSize), goHashMagic...)
	b = append(append(b, h.value[:]...), h.block...)
	b = append(b, make([]byte, sha256.BlockSize-len(h.block))...)
	b = binary.BigEndian.AppendUint64(b, uint64(size))
	if err := sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil {
		return fmt.Errorf("state of SHA-256: %w", err)
	}
	return nil
}
