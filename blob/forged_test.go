package blob

import (
	"errors"
	"math"
	"testing"
	"time"

	"holdfast"
)

// forgedCalls are all that takes a reference to a blob that is stored.
var forgedCalls = []struct {
	name string
	do   func(s *Store, ref Ref) error
}{
	{"Has", func(s *Store, ref Ref) error {
		ok, err := s.Has(ref)
		if err == nil && !ok {
			err = ErrNotFound
		}
		return err
	}},
	{"Retain", (*Store).Retain},
	{"Delete", (*Store).Delete},
	{"Users", func(s *Store, ref Ref) error {
		n, err := s.Users(ref)
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return err
	}},
	{"Stat", func(s *Store, ref Ref) error { _, err := s.Stat(ref); return err }},
	{"Reader", func(s *Store, ref Ref) error { _, err := s.Reader(ref); return err }},
	{"DigestOf", func(s *Store, ref Ref) error {
		_, ok, err := s.DigestOf(ref)
		if err == nil && !ok {
			err = ErrNotFound
		}
		return err
	}},
	{"Diff from", func(s *Store, ref Ref) error {
		return s.Diff(ref, inlineRef(s.options.Algorithm, nil), func(Range) error { return nil })
	}},
	{"Diff to", func(s *Store, ref Ref) error {
		return s.Diff(inlineRef(s.options.Algorithm, nil), ref, func(Range) error { return nil })
	}},
	{"Diff both", func(s *Store, ref Ref) error { return s.Diff(ref, ref, func(Range) error { return nil }) }},
	{"Reclaimable", func(s *Store, ref Ref) error { _, _, err := s.Reclaimable([]Ref{ref}); return err }},
	{"Lease.Add", func(s *Store, ref Ref) error {
		l, err := s.Lease("another", time.Time{})
		if err != nil {
			return err
		}
		return l.Add(ref)
	}},
	{"Lease.Add again", func(s *Store, ref Ref) error {
		l, err := s.Lease("holds it", time.Time{})
		if err != nil {
			return err
		}
		return l.Add(ref)
	}},
	{"ExpectRef", func(s *Store, ref Ref) error {
		w := s.Writer()
		w.ExpectRef(ref)
		if _, err := w.Write(forgedContent); err != nil {
			w.Abort()
			return err
		}
		_, err := w.Commit()
		return err
	}},
}

var forgedContent = random(1, 200*MinLeafSize+9)

// forgeable makes a store with a blob of two levels whose digest is known and that a lease holds.
func forgeable(t testing.TB, o Options) (db *holdfast.DB, ref Ref) {
	db = newStore(t, o)
	update(t, db, func(s *Store) {
		w := s.Writer()
		w.Digest(true)
		must2(w.Write(forgedContent))
		ref = must2(w.Commit())
		must(t, must2(s.Lease("holds it", time.Time{})).Add(ref))
	})
	return db, ref
}

// A reference with the address of a tree and another size was believed by Has, Retain, Delete, Users,
// Lease.Add and Stat, which gave that size back: 9,223,372,036,854,775,807 bytes. Size and level are
// compared wherever a reference is taken, and nothing in the store is another afterwards.
func TestForgedReferences(t *testing.T) {
	for _, o := range small {
		db, ref := forgeable(t, o)
		var was []byte
		view(t, db, func(s *Store) { was = content(t, s) })
		for _, call := range forgedCalls {
			for _, size := range []int64{2, ref.size - 1, ref.size + 1, MinLeafSize * 126, math.MaxInt64} {
				checkForged(t, db, call.name, call.do, Ref{algorithm: ref.algorithm, addr: ref.addr, level: ref.level, size: size})
			}
			for level := range uint8(maxLevel + 1) {
				if level != ref.level {
					checkForged(t, db, call.name, call.do, Ref{algorithm: ref.algorithm, addr: ref.addr, level: level, size: ref.size})
				}
			}
			must(t, inTransaction(db, func(s *Store) error { return call.do(s, ref) }))
		}
		view(t, db, func(s *Store) {
			if string(content(t, s)) != string(was) {
				t.Errorf("%v: forged references have changed the store", o)
			}
		})
	}
}

var errForged = errors.New("rolled back")

// inTransaction runs fn in a transaction that is rolled back after a flush.
func inTransaction(db *holdfast.DB, fn func(s *Store) error) error {
	err := db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		err := errors.Join(fn(s), s.finish())
		if err == nil {
			err = errForged
		}
		return err
	})
	if errors.Is(err, errForged) {
		return nil
	}
	return err
}

func checkForged(t testing.TB, db *holdfast.DB, name string, do func(*Store, Ref) error, forged Ref) {
	t.Helper()
	err := inTransaction(db, func(s *Store) error { return do(s, forged) })
	for _, want := range []error{ErrInvalidRef, ErrNotFound, ErrSizeMismatch, ErrDigestMismatch} {
		if errors.Is(err, want) {
			return
		}
	}
	t.Errorf("%s of a forged reference of level %d and %d bytes: %v", name, forged.level, forged.size, err)
}

func FuzzForgedReference(f *testing.F) {
	f.Add(int64(2), uint8(2), uint8(0))
	f.Add(int64(math.MaxInt64), uint8(2), uint8(3))
	f.Add(int64(len(forgedContent)), uint8(1), uint8(10))
	db, ref := forgeable(f, small[0])
	f.Fuzz(func(t *testing.T, size int64, level, call uint8) {
		forged := Ref{algorithm: ref.algorithm, addr: ref.addr, level: level}
		if size < 0 || forged.level > maxLevel || forged.setSize(uint64(size)) != nil || forged == ref {
			return
		}
		c := forgedCalls[int(call)%len(forgedCalls)]
		checkForged(t, db, c.name, c.do, forged)
	})
}

// A blob whose root is damaged can still be deleted: the size in the reference cannot be compared with anything then.
func TestDamagedRootIsDeleted(t *testing.T) {
	db, ref := forgeable(t, small[0])
	must(t, db.Update(func(tx *holdfast.Tx) error {
		d := damaged{Store: openIn(tx), t: t}
		d.overwrite(ref.key(), flip)
		s := reopened(t, tx)
		if ok, err := s.Has(ref); !ok || err != nil {
			t.Errorf("Has: %v, %v", ok, err)
		}
		if _, err := s.Stat(ref); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Stat: %v", err)
		}
		if err := must2(s.Lease("another", time.Time{})).Add(ref); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Add: %v", err)
		}
		must(t, s.Delete(ref))
		if n := must2(s.Users(ref)); n != 1 {
			t.Errorf("%d users", n)
		}
		return nil
	}))
}

// References of the caller's with another size are found by Check, as are those of a lease, which a repair sets right.
func TestCheckForgedSizes(t *testing.T) {
	for _, i := range []int{0, 1} { // a tree, a leaf
		db, tree := forgeable(t, small[0])
		update2(t, db, func(s *Store) {
			leaf := must2(s.Put(random(9, 50)))
			must(t, must2(s.Lease("holds it", time.Time{})).Add(leaf))
			refs := []Ref{tree, leaf}
			must(t, checkClean(s, CheckOptions{Roots: rootsOf(refs...)}))
			forged := refs[i]
			forged.size++
			found, text := problems(t, s, CheckOptions{Roots: rootsOf(refs[1-i], forged)})
			if len(found) != 1 || found[0] != WrongLength {
				t.Errorf("found %v:\n%s", found, text)
			}
			l := &Lease{s, "holds it", s.bucket.Bucket(leasesName).Bucket([]byte("holds it"))}
			key := forged.key()
			b := key.encode()
			must(t, l.b.Put(b[:], []byte{7}))
			for _, repair := range []bool{false, true} {
				found, text = problems(t, s, CheckOptions{Roots: rootsOf(refs...), Repair: repair})
				if len(found) != 1 || found[0] != WrongLength {
					t.Errorf("found %v:\n%s", found, text)
				}
			}
			must(t, checkClean(s, CheckOptions{Roots: rootsOf(refs...)}))
			for ref, err := range l.Refs() {
				if must(t, err); ref != tree && ref != leaf {
					t.Errorf("%v of %d bytes", ref, ref.size)
				}
			}
		})
	}
}

// A lease on a blob whose entry in the index is malformed ended a check with an error.
func TestCheckLeaseOfMalformedEntry(t *testing.T) {
	db, ref := forgeable(t, small[0])
	update2(t, db, func(s *Store) {
		k := ref.key()
		key := k.encode()
		must(t, s.at(key[:]).Put(key[:], []byte("malformed")))
		found, text := problems(t, s, CheckOptions{})
		if len(found) == 0 || found[0] != Malformed {
			t.Errorf("found %v:\n%s", found, text)
		}
	})
}

// What a saved ingest says of the sizes of its chunks was believed: with content-defined chunking, a blob
// came of it whose nodes said the same, and that could not be read. It does not go on, and a repair removes
// it.
func TestForgedIngestSizes(t *testing.T) {
	db := newStore(t, small[2])
	update(t, db, func(s *Store) {
		in := must2(s.Ingest("name", IngestOptions{}))
		must2(in.Write(random(1, 50*MinLeafSize)))
		must(t, in.Save())
	})
	update2(t, db, func(s *Store) {
		b := s.bucket.Bucket(ingestsName).Bucket([]byte("name"))
		state := must2(s.loadIngest([]byte("name"), b))
		l := &state.levels[0]
		l.children = append([]byte(nil), l.children...)
		l.children[len(Address{})]++
		l.children[cdcEntry+len(Address{})]-- // the sum is what it was
		must(t, s.putIngest([]byte("name"), b, &state))
		if _, err := s.Ingest("name", IngestOptions{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("it goes on: %v", err)
		}
		if found, text := problems(t, s, CheckOptions{}); len(found) != 1 || found[0] != Malformed {
			t.Errorf("found %v:\n%s", found, text)
		}
		_, _ = problems(t, s, CheckOptions{Repair: true})
		must(t, checkClean(s, CheckOptions{}))
	})
}
