package blob

import (
	"bytes"
	"errors"
	"testing"

	"holdfast"
)

// The bucket of a store goes in the transaction in which something was put into it: at once, with the
// bucket around it, behind a flush, with a writer open. The transaction commits, and of the store nothing
// is left; one that is made anew in its place has what was put into it, and nothing else.
func TestBucketDeletedBehindPut(t *testing.T) {
	outer := []byte("outer")
	old := [][]byte{[]byte("short"), random(1, MinLeafSize), random(2, 140*MinLeafSize)}
	for name, after := range map[string]func(s *Store) error{
		"gathered": func(*Store) error { return nil },
		"flushed":  (*Store).flush,
		"writer open": func(s *Store) error {
			_, err := s.Writer().Write(random(3, 130*MinLeafSize))
			return err
		},
		"ingest":  func(s *Store) error { _, err := s.Ingest("name", IngestOptions{}); return err },
		"deleted": func(s *Store) error { return s.Delete(must2(s.Put(random(2, 140*MinLeafSize)))) },
	} {
		for _, anew := range []bool{false, true} {
			for _, whole := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					db := openDB(t)
					create := func(tx *holdfast.Tx) *Store {
						in := must2(tx.CreateBucketIfNotExists(outer))
						return inChunks(must2(Create(must2(in.CreateBucket(storeName)), small[0])))
					}
					must(t, db.Update(func(tx *holdfast.Tx) error {
						_, err := create(tx).Put(old[2])
						return err
					}))
					var ref Ref
					must(t, db.Update(func(tx *holdfast.Tx) error {
						in := tx.Bucket(outer)
						s := inChunks(must2(openAny(in.Bucket(storeName))))
						for _, p := range old {
							must2(s.Put(p))
						}
						must(t, after(s))
						if whole {
							must(t, tx.DeleteBucket(outer))
						} else {
							must(t, in.DeleteBucket(storeName))
						}
						if anew {
							ref = must2(create(tx).Put(random(4, 150*MinLeafSize)))
						}
						// The old one is of no use, and does no harm.
						if _, err := s.Put(random(5, MinLeafSize)); !errors.Is(err, holdfast.ErrBucketNotFound) {
							t.Errorf("Put into a store that is deleted: %v", err)
						}
						return nil
					}))
					must(t, db.View(func(tx *holdfast.Tx) error {
						for err := range tx.Check() {
							t.Error(err)
						}
						in := tx.Bucket(outer)
						if !anew {
							if in != nil && in.Bucket(storeName) != nil {
								t.Error("the store is still there")
							}
							return nil
						}
						s := inChunks(must2(openAny(in.Bucket(storeName))))
						must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(ref)}))
						if n := checkStore(t, s); n != 150+3 {
							t.Errorf("%d chunks", n)
						}
						if !bytes.Equal(readAll(t, s, ref), random(4, 150*MinLeafSize)) {
							t.Error("other content")
						}
						return nil
					}))
				})
			}
		}
	}
}

// The bucket of a store is moved behind a Put: what was put goes with it.
func TestBucketMovedBehindPut(t *testing.T) {
	db := newStore(t, small[0])
	var ref Ref
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		ref = must2(s.Put(random(1, 140*MinLeafSize)))
		return tx.MoveBucket(storeName, nil, must2(tx.CreateBucket([]byte("outer"))))
	}))
	must(t, db.View(func(tx *holdfast.Tx) error {
		s := inChunks(must2(openAny(tx.Bucket([]byte("outer")).Bucket(storeName))))
		checkStore(t, s)
		if !bytes.Equal(readAll(t, s, ref), random(1, 140*MinLeafSize)) {
			t.Error("other content")
		}
		return nil
	}))
}
