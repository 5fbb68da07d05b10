package blob

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// This file encodes and decodes the numbers and records of a store.

var (
	errShort = errors.New("bytes are missing")
	errLong  = errors.New("more than belongs there")
	errForm  = errors.New("not of the form that it should have")
)

// uvarint reads a number from the front of b. It takes the shortest encoding
// only: so equal things are equal bytes.
func uvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	switch {
	case n == 0:
		return 0, nil, errShort
	case n < 0:
		return 0, nil, errLong
	case n > 1 && b[n-1] == 0:
		return 0, nil, errLong
	}
	return v, b[n:], nil
}

// maxChunk is the length in bytes of the longest chunk that any store can hold.
const maxChunk = maxSpread * MaxLeafSize

// maxStored is that of the longest bytes that are stored of one.
const maxStored = maxChunk + maxOverhead

// configSize is the length in bytes of the encoded configuration; sealedSize is that of an encrypted store.
const (
	configSize = 16
	sealedSize = configSize + 2*checkSize
)

// Versions of the configuration. In the first one nothing says whether it is as it was written: there, a
// flipped bit may make another leaf size of it.
const (
	configMagic   = "HFBS"
	configPlain   = 1
	configVersion = 2 // with a checksum
	configPacking = 3 // and with compression
	configSealed  = 4 // and with encryption, and compression perhaps
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendConfig encodes what a store keeps of its options.
func appendConfig(b []byte, o Options) []byte {
	begin := len(b)
	b = append(b, configMagic...)
	version := byte(configVersion) // what older programs can read as well
	switch {
	case o.Key != nil:
		version = configSealed
	case o.Compression != NoCompression:
		version = configPacking
	}
	b = append(b, version, byte(o.Algorithm), byte(o.Chunking), byte(o.Compression))
	b = binary.LittleEndian.AppendUint32(b, uint32(o.LeafSize))
	if o.Key != nil {
		b = append(b, o.Key.check[:]...)
		sum := o.Key.records.hash(b[begin:])
		b = append(b, sum[:checkSize]...)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[begin:], castagnoli))
}

// parseConfig decodes it. key is that with which the store is opened; nil: without one.
func parseConfig(b []byte, key *Key) (Options, error) {
	if len(b) < len(configMagic) || string(b[:len(configMagic)]) != configMagic {
		return Options{}, ErrNotStore
	}
	size := configSize
	if len(b) > len(configMagic) && b[len(configMagic)] == configSealed {
		size = sealedSize
	}
	if len(b) != size {
		return Options{}, corruptf("configuration of %d bytes", len(b))
	}
	o := Options{
		Key:         key,
		Algorithm:   Algorithm(b[5]),
		Chunking:    Chunking(b[6]),
		Compression: Compression(b[7]),
		LeafSize:    int(min(binary.LittleEndian.Uint32(b[8:]), MaxLeafSize+1)),
	}
	last := binary.LittleEndian.Uint32(b[size-4:])
	switch {
	case b[4] < configPlain || b[4] > configSealed:
		return Options{}, fmt.Errorf("%w: version %d of the format is unknown; a newer program may have written it", ErrCorrupt, b[4])
	case b[4] != configPlain && last != crc32.Checksum(b[:size-4], castagnoli):
		return Options{}, corruptf("configuration: it does not have its checksum")
	case b[4] < configPacking && b[7] != 0 || b[4] == configPlain && last != 0:
		return Options{}, corruptf("configuration: reserved bytes are set")
	case b[4] == configPacking && o.Compression == NoCompression:
		return Options{}, corruptf("configuration: version %d without compression", b[4])
	}
	if err := checkKey(b, key); err != nil {
		return Options{}, err
	}
	if err := o.check(); err != nil && b[4] != configPlain { // it has its checksum
		return Options{}, fmt.Errorf("%w: %w; a newer program may have written it", ErrCorrupt, err)
	} else if err != nil {
		return Options{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return o, nil
}

// checkKey tells whether a configuration, which has its checksum, is that of a store with the key, and as it was written.
func checkKey(b []byte, key *Key) error {
	sealed := b[4] == configSealed
	switch {
	case sealed && key == nil:
		return fmt.Errorf("%w: it is encrypted, and no key is given (OpenEncrypted)", ErrKey)
	case !sealed && key != nil:
		return fmt.Errorf("%w: a key is given, and it is not encrypted", ErrKey)
	case !sealed:
		return nil
	}
	check, rest := b[configSize-4:][:checkSize], b[configSize-4+checkSize:]
	if subtle.ConstantTimeCompare(check, key.check[:]) == 0 {
		return fmt.Errorf("%w: it is encrypted with another key", ErrKey)
	}
	sum := key.records.hash(b[:len(b)-len(rest)])
	if subtle.ConstantTimeCompare(rest[:checkSize], sum[:checkSize]) == 0 {
		return corruptf("configuration: it was not written with the key")
	}
	return nil
}

// chunkKey is what the index finds a chunk by. The level is part of it, so that
// a blob whose content is the bytes of a node is another chunk than that node.
type chunkKey struct {
	addr  Address
	level uint8
}

// keySize is the length in bytes of an encoded chunkKey.
const keySize = len(Address{}) + 1

func (k *chunkKey) encode() (b [keySize]byte) {
	copy(b[:], k.addr[:])
	b[keySize-1] = k.level
	return b
}

func (k *chunkKey) compare(o *chunkKey) int {
	if c := bytes.Compare(k.addr[:], o.addr[:]); c != 0 {
		return c
	}
	return int(k.level) - int(o.level)
}

// parseKey decodes a key of the index.
func parseKey(b []byte) (k chunkKey, err error) {
	if len(b) != keySize {
		return k, corruptf("key of %d bytes in the index", len(b))
	}
	copy(k.addr[:], b)
	if k.level = b[keySize-1]; k.level > maxLevel {
		return k, corruptf("key of level %d in the index", k.level)
	}
	return k, nil
}

// entry is what the index knows of a chunk.
type entry struct {
	packed  bool   // in the bucket of short chunks, else in that of leaves
	id      uint64 // its key there
	length  int    // bytes of content
	stored  int    // bytes of its frame, compressed or encrypted; 0: it is stored as it is
	parents uint64 // occurrences as a child in stored nodes
	users   uint64 // references from outside: blobs that were put, and leases
	leased  uint64 // of the users: leases
	recent  bool   // it stands in the small bucket: not a part of what is encoded
}

const (
	packedFlag = 1
	leasedFlag = 2 // leased is not 0, and stands after users
	frameFlag  = 4 // stored is not 0, and stands after length
)

// maxEntrySize is the length in bytes of the longest encoded entry.
const maxEntrySize = 1 + 6*binary.MaxVarintLen64

func (e *entry) append(b []byte) []byte {
	var flags byte
	if e.packed {
		flags |= packedFlag
	}
	if e.leased > 0 {
		flags |= leasedFlag
	}
	if e.stored > 0 {
		flags |= frameFlag
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, e.id)
	b = binary.AppendUvarint(b, uint64(e.length))
	if e.stored > 0 {
		b = binary.AppendUvarint(b, uint64(e.stored))
	}
	b = binary.AppendUvarint(b, e.parents)
	b = binary.AppendUvarint(b, e.users)
	if e.leased > 0 {
		b = binary.AppendUvarint(b, e.leased)
	}
	return b
}

// lost tells that a repair has found the bytes of the chunk missing: they are stored again when they
// are written again. Ids begin with 1.
func (e *entry) lost() bool { return e.id == 0 }

// size is how many bytes are stored of the chunk.
func (e *entry) size() int {
	if e.stored > 0 {
		return e.stored
	}
	return e.length
}

func (e *entry) dead() bool { return e.parents == 0 && e.users == 0 }

// parseEntry decodes a value of the index.
func parseEntry(b []byte) (entry, error) {
	if len(b) == 0 {
		return entry{}, corruptf("entry of the index: %v", errShort)
	}
	flags := b[0]
	if flags&^(packedFlag|leasedFlag|frameFlag) != 0 {
		return entry{}, corruptf("entry of the index: unknown flags %#x", flags)
	}
	e := entry{packed: flags&packedFlag != 0}
	b = b[1:]
	var length, stored uint64
	for _, field := range [...]struct {
		flag  byte // with which it is there, and is not 0; 0: always
		value *uint64
	}{{0, &e.id}, {0, &length}, {frameFlag, &stored}, {0, &e.parents}, {0, &e.users}, {leasedFlag, &e.leased}} {
		if field.flag != 0 && flags&field.flag == 0 {
			continue
		}
		var err error
		if *field.value, b, err = uvarint(b); err == nil && field.flag != 0 && *field.value == 0 {
			err = errForm
		}
		if err != nil {
			return entry{}, corruptf("entry of the index: %v", err)
		}
	}
	switch {
	case len(b) != 0:
		return entry{}, corruptf("entry of the index: %v", errLong)
	case length > maxChunk || stored > maxStored:
		return entry{}, corruptf("entry of the index: a chunk of %d bytes, stored as %d", length, stored)
	case e.parents > maxCount || e.users > maxCount || e.leased > maxLeased:
		return entry{}, corruptf("entry of the index: counts of %d, %d and %d", e.parents, e.users, e.leased)
	}
	e.length, e.stored = int(length), int(stored)
	return e, nil
}

// They bound the counts, so that adding to them cannot overflow.
const (
	maxCount  = 1 << 60
	maxLeased = 1 << 30
)
