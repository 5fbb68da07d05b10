package blob

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"holdfast"
)

// What a function that is called before the commit put into a store, or deleted from it, was lost if
// the store had been flushed before.
func TestBeforeCommitPuts(t *testing.T) {
	db := newStore(t, Options{})
	var ref Ref
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		must2(s.Put([]byte("first")))
		tx.BeforeCommit(func() error {
			var err error
			ref, err = s.Put([]byte("second"))
			return err
		})
		return nil
	}))
	view(t, db, func(s *Store) {
		if _, err := s.Reader(ref); err != nil {
			t.Errorf("a blob put by a hook: %v", err)
		}
	})
}

// TestBeforeCommitDeletes is TestBeforeCommitPuts for a deletion.
func TestBeforeCommitDeletes(t *testing.T) {
	db := newStore(t, Options{})
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put([]byte("old"))) })
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		must2(s.Put([]byte("first")))
		tx.BeforeCommit(func() error { return s.Delete(ref) })
		return nil
	}))
	view(t, db, func(s *Store) {
		if n := must2(s.Users(ref)); n != 0 {
			t.Errorf("%d users after a Delete", n)
		}
	})
}

// After a leaf could not be stored the next blob was hashed and stored out of memory that was being
// filled: other content than was written.
func TestWriterAfterAnError(t *testing.T) {
	db := newStore(t, Options{LeafSize: 8 << 10})
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		data := random(1, 64<<10)
		k := chunkKey{addr: SHA256.sum(data[:8<<10])}
		key := k.encode()
		must(t, s.at(key[:]).Put(key[:], []byte{0xff}))
		w := s.Writer()
		w.Concurrent(true)
		var err error
		for i := 0; i < len(data) && err == nil; i += 1000 {
			_, err = w.Write(data[i:min(i+1000, len(data))])
		}
		t.Log(err)
		w.Abort()
		good := random(2, 1<<20)
		for round := range 20 {
			good[0] = byte(round)
			for i := 0; i < len(good); i += 1000 {
				must2(w.Write(good[i:min(i+1000, len(good))]))
			}
			ref := must2(w.Commit())
			r, err := s.Reader(ref)
			if err != nil {
				t.Fatal(round, err)
			}
			var got bytes.Buffer
			if _, err = r.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), good) {
				t.Fatalf("round %d: other content than was written: %v", round, err)
			}
		}
		return nil
	}))
}

// A chunk counted as verified under another address that begins with the same bytes.
func TestVerifiedMark(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	update(t, db, func(s *Store) { must2(s.Put(random(1, MinLeafSize))) })
	view(t, db, func(s *Store) {
		k := chunkKey{addr: SHA256.sum(random(1, MinLeafSize))}
		e, _, err := s.probe(&k)
		must(t, err)
		p := must2(s.loadEntry(&k, &e))
		other := k
		other.addr[20] ^= 1
		if s.verify(&other, &e, p, p) {
			t.Error("bytes pass as those of another address, whose first 8 bytes are the same")
		}
	})
}

// A blob whose bytes were lost was not stored again by a Put in a transaction that had deleted or
// retained it.
func TestPutCountedLost(t *testing.T) {
	for _, first := range []string{"none", "delete", "retain"} {
		db := newStore(t, Options{})
		p := random(1, 5000)
		var ref Ref
		update(t, db, func(s *Store) { ref = must2(s.Put(p)) })
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			k := ref.key()
			e, _, err := s.probe(&k)
			must(t, err)
			must(t, s.deleteBytes(e.packed, e.id))
			return s.lose(&k, &e)
		}))
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			switch first {
			case "delete":
				must(t, s.Delete(ref))
			case "retain":
				must(t, s.Retain(ref))
			}
			ref = must2(s.Put(p))
			return nil
		}))
		view(t, db, func(s *Store) {
			r, err := s.Reader(ref)
			if err == nil {
				var got bytes.Buffer
				_, err = r.WriteTo(&got)
			}
			if err != nil {
				t.Errorf("%s: put again, and not there: %v", first, err)
			}
		})
	}
}

// An expired ingest of which a chunk is missing made each Collect fail, and lower counts of others.
func TestExpiredIngestLacksAChunk(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	data := random(1, 4*MinLeafSize)
	var shared Ref
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		shared = must2(s.Put(data[:2*MinLeafSize])) // leaves 0, 1
		in := must2(s.Ingest("x", IngestOptions{Lifetime: time.Second}))
		must2(in.Write(data))
		return in.Save()
	}))
	must(t, db.Update(func(tx *holdfast.Tx) error { // damage: leaf 3 is missing
		s := openIn(tx)
		k := chunkKey{addr: SHA256.sum(data[3*MinLeafSize:])}
		key := k.encode()
		return s.at(key[:]).Delete(key[:])
	}))
	time.Sleep(2100 * time.Millisecond)
	for range 4 {
		must(t, db.Update(func(tx *holdfast.Tx) error {
			_, _, err := openIn(tx).Collect(1000)
			t.Log(err)
			return nil
		}))
	}
	view(t, db, func(s *Store) {
		r, err := s.Reader(shared)
		if err == nil {
			var got bytes.Buffer
			_, err = r.WriteTo(&got)
		}
		if err != nil {
			t.Errorf("collected, and in use: %v", err)
		}
		for i := range 2 {
			k := chunkKey{addr: SHA256.sum(data[i*MinLeafSize : (i+1)*MinLeafSize])}
			e, ok, err := s.probe(&k)
			t.Log(e, ok, err)
		}
	})
}

// An ingest that could not be resumed, for a chunk was missing, went on holding the others.
func TestResumeLacksAChunk(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	data := random(1, 4*MinLeafSize)
	must(t, db.Update(func(tx *holdfast.Tx) error {
		in := must2(openIn(tx).Ingest("x", IngestOptions{}))
		must2(in.Write(data))
		return in.Save()
	}))
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		k := chunkKey{addr: SHA256.sum(data[3*MinLeafSize:])}
		key := k.encode()
		return s.at(key[:]).Delete(key[:])
	}))
	must(t, db.Update(func(tx *holdfast.Tx) error {
		_, err := openIn(tx).Ingest("x", IngestOptions{})
		if !errors.Is(err, ErrMissing) {
			t.Error(err)
		}
		return nil
	}))
	view(t, db, func(s *Store) {
		for i := range 3 {
			k := chunkKey{addr: SHA256.sum(data[i*MinLeafSize : (i+1)*MinLeafSize])}
			e, ok, err := s.probe(&k)
			if !ok || err != nil || e.parents != 1 {
				t.Errorf("leaf %d: %d parents, want 1 %v", i, e.parents, err)
			}
		}
	})
}
