package blob

import (
	"bytes"
	"testing"
)

// A blob whose SHA-256 was computed was deleted in the transaction that had written it. Its chunks were not stored, but the digest was:
// nothing ever removed it, and Check said of a sound store that a chunk was missing.
func TestDigestOfGivenUp(t *testing.T) {
	for _, o := range small {
		t.Run(o.String(), func(t *testing.T) {
			db := newStore(t, o)
			for _, size := range []int{100, 5000, 300 << 10} {
				for name, write := range map[string]func(s *Store, p []byte) Ref{"writer": withDigest, "ingest": ingested} {
					p := random(uint64(size), size)
					update(t, db, func(s *Store) {
						must(t, s.Delete(write(s, p)))
					})
					update(t, db, func(s *Store) { must(t, collectAll(s)) }) // what was stored before it was deleted
					view(t, db, func(s *Store) { noDigests(t, s, name) })
					// What is put again has one.
					update(t, db, func(s *Store) {
						must(t, s.Delete(write(s, p)))
						ref := write(s, p)
						must(t, s.flush())
						if got := must2(s.ByDigest(SHA256.sum(p))); got != ref {
							t.Errorf("%s of %d bytes: its digest finds %v", name, size, got)
						}
						must(t, s.Delete(ref))
						must(t, collectAll(s))
					})
					view(t, db, func(s *Store) { noDigests(t, s, name) })
				}
			}
		})
	}
}

func withDigest(s *Store, p []byte) Ref {
	w := s.Writer()
	w.Digest(true)
	must2(w.ReadFrom(bytes.NewReader(p)))
	return must2(w.Commit())
}

func ingested(s *Store, p []byte) Ref {
	in := must2(s.Ingest("in", IngestOptions{WholeDigest: true}))
	must2(in.Write(p))
	return must2(in.Commit())
}

// noDigests is an error if the store is not sound, or has a digest.
func noDigests(t *testing.T, s *Store, what string) {
	t.Helper()
	if found, text := problems(t, s, CheckOptions{Roots: rootsOf()}); len(found) > 0 {
		t.Errorf("%s: %s", what, text)
	}
	if u := must2(s.Usage()); u.Digests != 0 {
		t.Errorf("%s: %d digests of blobs that are not there", what, u.Digests)
	}
}
