package blob

import (
	"bytes"
	"errors"
	"testing"
)

// In an encrypted store the references in two digests had been exchanged, for which no key is needed. Each SHA-256 led to the content
// of the other, without an error.
func TestSwappedDigests(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize, Key: testKey})
	contents := [][]byte{noise(1, 100), noise(2, 5000)}
	var refs []Ref
	update(t, db, func(s *Store) {
		for _, p := range contents {
			refs = append(refs, withDigest(s, p))
		}
		for i, p := range contents {
			if got := must2(s.ByDigest(SHA256.sum(p))); got != refs[i] {
				t.Errorf("%v, not %v", got, refs[i])
			}
		}
	})
	must(t, commits(db, func(s *Store) error {
		b := s.bucket.Bucket(digestsName)
		for i, p := range contents {
			sum := [32]byte(SHA256.sum(p))
			at := s.digestKey(&sum)
			must(t, b.Put(at[:], bytes.Clone(must2(refs[1-i].MarshalBinary()))))
		}
		return nil
	}))
	view(t, db, func(s *Store) {
		for _, p := range contents {
			sum := SHA256.sum(p)
			if ref, err := s.ByDigest(sum); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v, %v", ref, err)
			}
			if refs, err := s.Find(sum.String()); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v, %v", refs, err)
			}
		}
	})
}
