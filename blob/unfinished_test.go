package blob

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"holdfast"
)

// unfinishedWork is what may be open while a check runs. open gives how it ends; content is what has been
// written by then.
var unfinishedWork = []struct {
	name string
	open func(t testing.TB, s *Store, content []byte) (commit func() (Ref, error), abort func() error)
}{
	{"writer", func(t testing.TB, s *Store, content []byte) (func() (Ref, error), func() error) {
		w := s.Writer()
		must2(w.Write(content))
		return w.Commit, func() error { w.Abort(); return nil }
	}},
	{"concurrent writer", func(t testing.TB, s *Store, content []byte) (func() (Ref, error), func() error) {
		w := s.Writer()
		w.Concurrent(true)
		w.Digest(true)
		must2(w.ReadFrom(bytes.NewReader(content)))
		return w.Commit, func() error { w.Abort(); return nil }
	}},
	{"ingest", func(t testing.TB, s *Store, content []byte) (func() (Ref, error), func() error) {
		in := must2(s.Ingest("name", IngestOptions{}))
		must2(in.Write(content))
		return in.Commit, in.Abort
	}},
	{"saved ingest", func(t testing.TB, s *Store, content []byte) (func() (Ref, error), func() error) {
		in := must2(s.Ingest("name", IngestOptions{}))
		must2(in.Write(content))
		must(t, in.Save())
		return in.Commit, in.Abort
	}},
	{"ingest taken up again", func(t testing.TB, s *Store, content []byte) (func() (Ref, error), func() error) {
		in := must2(s.Ingest("name", IngestOptions{}))
		must2(in.Write(content[:len(content)/2]))
		must(t, in.Save())
		must(t, s.finish())
		in = must2(s.Ingest("name", IngestOptions{}))
		must2(in.Write(content[in.Offset():]))
		return in.Commit, in.Abort
	}},
}

// A Check with Repair beside an open Writer or Ingest took what that held for counts that are too high, and
// lowered them: the blob that it committed afterwards had chunks without users, which Collect removed. 10
// times of 10. What is open is counted, whatever becomes of it.
func TestRepairBesideUnfinished(t *testing.T) {
	for _, work := range unfinishedWork {
		for _, end := range []string{"commit", "abort", "leave"} {
			for _, o := range small {
				db := newStore(t, o)
				shared, content := random(1, 140*MinLeafSize), random(1, 131*MinLeafSize+17)
				var first, second Ref
				update(t, db, func(s *Store) { first = must2(s.Put(shared)) })
				must(t, db.Update(func(tx *holdfast.Tx) error {
					s := openIn(tx)
					commit, abort := work.open(t, s, content)
					for _, memory := range []int{0, 3000} {
						if err := checkClean(s, CheckOptions{Data: true, Repair: true, Roots: rootsOf(first), Memory: memory}); err != nil {
							t.Errorf("%s: %v", work.name, err)
						}
					}
					must(t, s.Delete(first))
					_, _, err := s.Collect(1 << 20)
					must(t, err)
					must(t, checkClean(s, CheckOptions{Repair: true, Roots: rootsOf()}))
					switch end {
					case "commit":
						second = must2(commit())
					case "abort":
						must(t, abort())
					}
					return nil
				}))
				_, err := Collect(context.Background(), db, openStoreOf, CollectOptions{})
				must(t, err)
				view(t, db, func(s *Store) {
					roots := rootsOf()
					if end == "commit" {
						roots = rootsOf(second)
						var got bytes.Buffer
						if _, err := must2(s.Reader(second)).WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), content) {
							t.Errorf("%s: %d bytes of %d, %v", work.name, got.Len(), len(content), err)
						}
					}
					must(t, checkClean(s, CheckOptions{Data: true, Roots: roots}))
					checkStore(t, s)
				})
			}
		}
	}
}

// What another Store of the transaction holds is not known: a check is refused until that has flushed and
// nothing of it is open, and from then on is not.
func TestCheckBesideAnotherStore(t *testing.T) {
	for _, work := range unfinishedWork {
		db := newStore(t, Options{LeafSize: MinLeafSize})
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s, other := openIn(tx), openIn(tx)
			sequence := s.index.Sequence()
			commit, _ := work.open(t, other, random(1, 10*MinLeafSize))
			for _, repair := range []bool{false, true} {
				if _, err := s.Check(context.Background(), CheckOptions{Repair: repair}, nil); !errors.Is(err, ErrUnfinished) {
					t.Errorf("%s: %v", work.name, err)
				}
			}
			mine := must2(s.Put([]byte("of this one"))) // its own does not matter
			ref := must2(commit())
			if _, err := s.Check(context.Background(), CheckOptions{Repair: true}, nil); !errors.Is(err, ErrUnfinished) {
				t.Errorf("%s: not flushed: %v", work.name, err)
			}
			must(t, other.flush())
			must(t, checkClean(s, CheckOptions{Data: true, Repair: true, Roots: rootsOf(ref, must2(s.Put([]byte("of this one"))), mine)}))
			if n := s.index.Sequence() >> comeBits; n != 0 || sequence>>comeBits != 0 {
				t.Errorf("%s: the sequence says %#x", work.name, n)
			}
			return nil
		}))
		must(t, db.Update(func(tx *holdfast.Tx) error {
			_, _ = work.open(t, openIn(tx), random(1, 10*MinLeafSize)) // is left
			return nil
		}))
		view(t, db, func(s *Store) {
			if s.index.Sequence()>>comeBits != 0 {
				t.Errorf("%s: the sequence says %#x in the file", work.name, s.index.Sequence())
			}
		})
		// What a damaged bucket has there means nothing to a later transaction.
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			return s.index.SetSequence(s.index.Sequence() | (uint64(tx.ID()+7)&0xff<<8|3)<<comeBits)
		}))
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			must2(s.Put([]byte("more")))
			return checkClean(s, CheckOptions{Repair: true})
		}))
	}
}

// What the caller's function puts while a repair runs would be set right away again: the repair ends with an error.
func TestPutDuringRepair(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	err := db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		d := someStore(t, s, inEither)
		d.change(d.child(3), func(e *entry) { e.parents = 9 })
		_, err := s.Check(context.Background(), CheckOptions{Repair: true, Roots: d.roots()}, func(Problem) error {
			_, err := s.Put([]byte("more"))
			if err == nil {
				err = s.flush()
			}
			return err
		})
		return err
	})
	if !errors.Is(err, errChanged) {
		t.Errorf("%v", err)
	}
}
