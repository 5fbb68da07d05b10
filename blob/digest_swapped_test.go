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

// What stands for a digest under the key of its root was damaged, or gone. ByDigest found the blob no more, and putting it again with its
// digest, as "blob put --expect" does, changed nothing.
func TestDamagedDigestPutAgain(t *testing.T) {
	for _, o := range []Options{{LeafSize: MinLeafSize, Key: testKey}, {LeafSize: MinLeafSize}} {
		for _, gone := range []bool{true, false} {
			db := newStore(t, o)
			content := noise(1, 5000)
			var ref Ref
			update(t, db, func(s *Store) { ref = withDigest(s, content) })
			must(t, commits(db, func(s *Store) error {
				b, root := s.bucket.Bucket(digestsName), ref.key()
				key := root.encode()
				if gone {
					return b.Delete(key[:])
				}
				return b.Put(key[:], bytes.Repeat([]byte{1}, len(b.Get(key[:]))))
			}))
			update(t, db, func(s *Store) { withDigest(s, content) })
			view(t, db, func(s *Store) {
				if got, err := s.ByDigest(SHA256.sum(content)); got != ref || err != nil {
					t.Errorf("%v, %v", got, err)
				}
				if sum, ok, err := s.DigestOf(ref); sum != SHA256.sum(content) || !ok || err != nil {
					t.Errorf("%x, %v, %v", sum, ok, err)
				}
			})
		}
	}
}
