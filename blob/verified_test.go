package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"holdfast"
)

// rewriter gives the one leaf of a blob other bytes, as damage, a repair, or a transaction that is rolled back may.
type rewriter struct {
	t     *testing.T
	db    *holdfast.DB
	ref   Ref
	right []byte
	rng   *rand.Rand

	verified map[uintptr]bool // where in memory the right bytes were read
	again    int              // how often others lay there then
}

// rewrite deletes the leaf's bytes and stores others under the same number, or a new one.
func (r *rewriter) rewrite(tx *holdfast.Tx, p []byte, appended bool) {
	s := openIn(tx)
	k := r.ref.key()
	e, _, err := s.lookup(&k)
	must(r.t, err)
	must(r.t, s.deleteBytes(e.packed, e.id))
	id := binary.BigEndian.AppendUint64(nil, e.id)
	b := s.bytesBucket(e.packed)
	others := must2(tx.CreateBucketIfNotExists([]byte("others")))
	for range r.rng.IntN(3) { // written before, or in one call with it
		must(r.t, others.Put([]byte{byte(r.rng.IntN(8))}, r.right))
	}
	if appended {
		e.id = must2(s.takeID(e.packed, false))
		must(r.t, b.Append(binary.BigEndian.AppendUint64(nil, e.id), p))
		last := binary.BigEndian.AppendUint64(nil, must2(s.takeID(e.packed, false))) // so that the one before is complete
		must(r.t, b.Append(last, r.right))
		must(r.t, b.Delete(last))
	} else {
		must(r.t, b.Put(id, p))
	}
	in := s.index
	if e.recent {
		in = s.recent
	}
	must(r.t, in.Put(k.encoded(), e.append(nil)))
}

// read reads the blob in two transactions of db, which has the right bytes, or not.
func (r *rewriter) read(db *holdfast.DB, right bool) {
	for range 2 {
		must(r.t, db.View(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			k := r.ref.key()
			e, _, err := s.lookup(&k)
			must(r.t, err)
			at := uintptr(unsafe.Pointer(unsafe.SliceData(must2(s.data(&e)))))
			p := make([]byte, len(r.right))
			_, err = must2(s.Reader(r.ref)).ReadAt(p, 0)
			switch {
			case right && (err != nil || !bytes.Equal(p, r.right)):
				r.t.Fatalf("the right bytes: %v", err)
			case right:
				r.verified[at] = true
			case !errors.Is(err, ErrCorrupt):
				r.t.Fatalf("other bytes: %v", err)
			case r.verified[at]:
				r.again++
			}
			return nil
		}))
	}
}

// What was verified in an earlier transaction is verified again once its pages have been written, by whatever kind of write: the
// same chunk, of the same number, in the same place of the file, may have other bytes then.
func TestVerifiedPagesWrittenAgain(t *testing.T) {
	for _, size := range []int{1500, 65488} {
		for _, appended := range []bool{false, true} {
			for _, procs := range []int{1, 2} {
				t.Run(fmt.Sprint(size, appended, procs), func(t *testing.T) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					r := rewriter{t: t, db: newStore(t, Options{}), right: random(1, size), rng: rand.New(rand.NewPCG(1, 1)), verified: map[uintptr]bool{}}
					update(t, r.db, func(s *Store) { r.ref = must2(s.Put(r.right)) })
					is := true
					for range 60 {
						right := r.rng.IntN(2) == 0
						p := bytes.Clone(r.right)
						if !right {
							flip(p)
						}
						err := r.db.Update(func(tx *holdfast.Tx) error {
							if r.rewrite(tx, p, appended); r.rng.IntN(4) > 0 {
								is = right
								return nil
							}
							if appended { // has the rest of it written
								r.rewrite(tx, p, appended)
							}
							return errPlanted
						})
						if err != nil && err != errPlanted {
							t.Fatal(err)
						}
						r.read(r.db, is)
					}
					if r.again < 5 {
						t.Errorf("other bytes lay %d times where the right ones had been verified", r.again)
					}
				})
			}
		}
	}
}

// A mark is of one address, in one kind of store.
func TestMarksAreOfOneAddress(t *testing.T) {
	db := newStore(t, Options{})
	a, b := random(1, 65488), random(2, 65488)
	var refs [2]Ref
	update(t, db, func(s *Store) { refs = [2]Ref{must2(s.Put(a)), must2(s.Put(b))} })
	read := func(want error) {
		t.Helper()
		for _, ref := range refs {
			view(t, db, func(s *Store) {
				_, err := must2(s.Reader(ref)).ReadAt(make([]byte, 100), 0)
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
		}
	}
	read(nil)
	view(t, db, func(s *Store) {
		k := refs[0].key()
		e, _, err := s.lookup(&k)
		must(t, err)
		p := must2(s.data(&e))
		if m := s.memory(&k, &e, p); !m.has() {
			t.Error("what was verified in an earlier transaction is not remembered")
		}
		s.options.Algorithm = BLAKE3
		if m := s.memory(&k, &e, p); m.has() {
			t.Error("what has an address by one hash function counts for another")
		}
	})
	must(t, db.Update(func(tx *holdfast.Tx) error { // the two entries are exchanged
		s := openIn(tx)
		var entries [2]entry
		for i, ref := range refs {
			k := ref.key()
			entries[i], _, _ = s.lookup(&k)
		}
		for i, ref := range refs {
			key, in := ref.key().encoded(), s.index
			if entries[i].recent {
				in = s.recent
			}
			must(t, in.Put(key, entries[1-i].append(nil)))
		}
		return nil
	}))
	read(ErrCorrupt)
}

func (k chunkKey) encoded() []byte {
	b := k.encode()
	return b[:]
}

// Between the first time that a chunk is read and the closing of the database, damage is not noticed by readers; but by Check, also
// without the bytes of leaves, and by a put that verifies; and by readers after the next opening.
func TestDamageAfterVerifying(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is mapped is not written by others")
	}
	path := filepath.Join(t.TempDir(), "db")
	open := func() *holdfast.DB {
		return must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, NoSeals: true, PageSize: 4096}))
	}
	db := open()
	defer func() { db.Close() }()
	data := random(3, 5*65488)
	var ref Ref
	must(t, db.Update(func(tx *holdfast.Tx) error {
		ref = must2(must2(Create(must2(tx.CreateBucket(storeName)), Options{})).Put(data))
		return nil
	}))
	readAt := func() error {
		return db.View(func(tx *holdfast.Tx) error {
			s, err := openAny(tx.Bucket(storeName))
			if err != nil {
				return err
			}
			r, err := s.Reader(ref)
			if err == nil {
				_, err = r.ReadAt(make([]byte, len(data)), 0)
			}
			return err
		})
	}
	must(t, readAt())
	var node []byte
	view(t, db, func(s *Store) {
		k := ref.key()
		node = bytes.Clone(must2(s.load(&k)))
	})
	file := must2(os.OpenFile(path, os.O_RDWR, 0))
	defer file.Close()
	all := must2(os.ReadFile(path))
	for _, damaged := range []struct {
		what, by []byte
		o        CheckOptions
	}{
		{data[65488 : 65488+100], data[:100], CheckOptions{Data: true}},
		{node, slices.Concat(node[:16], node[48:80], node[16:48], node[80:]), CheckOptions{}}, // two children are exchanged
	} {
		at := int64(bytes.Index(all, damaged.what))
		must2(file.WriteAt(damaged.by, at))
		if err := readAt(); err != nil {
			t.Errorf("a chunk that was verified was read again: %v", err)
		}
		problems := 0
		view(t, db, func(s *Store) {
			_, err := s.Check(context.Background(), damaged.o, func(Problem) error { problems++; return nil })
			if err != nil && problems == 0 {
				t.Error(err)
			}
		})
		if problems == 0 {
			t.Error("Check relies on what readers have verified")
		}
		must(t, db.Close())
		db = open()
		if readAt() == nil {
			t.Error("after opening again the damage is not noticed")
		}
		must2(file.WriteAt(damaged.what, at))
		must(t, readAt())
	}
	at := int64(bytes.Index(all, data[:100])) + 50
	must2(file.WriteAt([]byte{all[at] ^ 4}, at))
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		s.VerifyStored(true)
		_, err := s.Put(data)
		return err
	}))
	must(t, db.Close())
	db = open()
	if err := readAt(); err != nil {
		t.Errorf("a put that verifies relies on what readers have verified: %v", err)
	}
}

// That bytes are the content of an address says nothing of what they are as a compressed leaf.
func TestMarkOfCompressed(t *testing.T) {
	db := newStore(t, Options{})
	data := noise(1, 5000)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(data)) })
	view(t, db, func(s *Store) {
		k := ref.key()
		e, _, err := s.lookup(&k)
		must(t, err)
		p := s.unsealed(&e, false)
		compressed := e
		compressed.stored = len(p)
		if !s.verify(&k, &e, p, p) {
			t.Fatal("it does not verify")
		}
		plain, frame := s.memory(&k, &e, p), s.memory(&k, &compressed, p)
		if !plain.has() || frame.has() {
			t.Errorf("plain: marked %v, compressed: marked %v", plain.has(), frame.has())
		}
	})
}
