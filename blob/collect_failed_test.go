package blob

import "testing"

// Collect met an error after it had taken a parent from the children of several nodes, and before it had removed all of these: a bucket
// where a digest should be. The caller committed, the next Collect took the parents again, and what a blob in use shared was gone.
func TestCollectFailedHalfWay(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize, Algorithm: BLAKE3})
	shared := noise(1, 4*MinLeafSize)
	var live Ref
	var deleted []Ref
	update(t, db, func(s *Store) {
		w := s.Writer()
		w.Digest(true)
		write := func(p []byte) Ref {
			must2(w.Write(p))
			return must2(w.Commit())
		}
		live = write(shared)
		for i := range uint64(8) {
			deleted = append(deleted, write(append(shared[:4*MinLeafSize:4*MinLeafSize], noise(10+i, 100)...)))
		}
	})
	must(t, commits(db, func(s *Store) error {
		b := s.bucket.Bucket(digestsName)
		for _, ref := range deleted[:4] {
			sum, _, err := s.DigestOf(ref)
			must(t, err)
			must(t, b.Delete(sum[:]))
			must2(b.CreateBucket(sum[:]))
		}
		for _, ref := range deleted {
			must(t, s.Delete(ref))
		}
		return nil
	}))
	must(t, commits(db, func(s *Store) error { return collectAll(s) }))
	view(t, db, func(s *Store) {
		if err := reads(s, live, shared); err != nil {
			t.Error(err)
		}
		if u := must2(s.Usage()); u.Blobs != 1 || u.Leaves != 4 {
			t.Errorf("%+v", u)
		}
	})
}
