package page

import "hash/crc32"

// A fingerprint is a number for a page run as it lies in the file: of where it lies, and of what is in it, as
// its seal says. The fingerprints of all runs of a state are added up (Sum), and the sum is
// recorded with the state. A run that is whole, and of another state, makes the sum another, which no
// look at the run itself can tell.
//
// It takes a look at the run's header, its last elements and its last bytes, and not at the rest: who gives
// a run up takes its fingerprint off. A run whose content leaves no room for a seal is known by the
// checksum of all of it: there are few. One that bbolt wrote, whose place for a seal is empty, counts as 0.

// Sum is a sum of fingerprints, modulo 2^64. The zero Sum is not known.
type Sum struct {
	N     uint64
	Known bool // false: a run that counts, or counted, has no fingerprint
}

// Add adds a fingerprint.
func (s *Sum) Add(f uint64, ok bool) {
	s.N += f
	s.Known = s.Known && ok
}

// Remove takes a fingerprint off.
func (s *Sum) Remove(f uint64, ok bool) { s.Add(-f, ok) }

// AddSum adds a sum.
func (s *Sum) AddSum(t Sum) { s.Add(t.N, t.Known) }

// Fingerprint is that of the run that lies at page id; false if its last bytes are neither a seal
// nor empty. It does not tell whether the seal fits the content.
func Fingerprint(run []byte, id ID) (f uint64, ok bool) {
	at := len(run) - SealSize
	if at < HeaderSize {
		return 0, false
	}
	if !hasSealRoom(run) {
		return fullFingerprint(crc32.Checksum(run, castagnoli), id), true
	}
	return sealFingerprint(run[at:], id)
}

// sealFingerprint is the fingerprint of a run with these last bytes.
func sealFingerprint(seal []byte, id ID) (f uint64, ok bool) {
	first, second := order.Uint32(seal), order.Uint32(seal[4:])
	if first == 0 && second == 0 {
		return 0, true
	}
	return mix(id, first), first == second^sealMark
}

// fullFingerprint is the fingerprint of a run without a seal that has checksum sum.
func fullFingerprint(sum uint32, id ID) uint64 { return mix(id, ^sum) }

// mix makes of a page's number and a checksum a number all of whose bits depend on both, as the finalizer of
// SplitMix64 does (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func mix(id ID, sum uint32) uint64 {
	x := uint64(id)*0x9E3779B97F4A7C15 + uint64(sum)
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// LoneLeafFingerprint is Fingerprint of a run that LoneLeaf has made.
func LoneLeafFingerprint(head, value, tail []byte, end int, id ID) (f uint64, ok bool) {
	if len(tail)-end >= SealSize {
		return sealFingerprint(tail[len(tail)-SealSize:], id)
	}
	sum := crc32.Checksum(head, castagnoli)
	sum = crc32.Update(sum, castagnoli, value)
	sum = crc32.Update(sum, castagnoli, tail[end:])
	return fullFingerprint(sum, id), true
}
