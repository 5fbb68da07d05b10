package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"holdfast"
)

// A reader behaves as one of bytes.
func TestReader(t *testing.T) {
	for _, o := range small {
		t.Run(o.String(), func(t *testing.T) {
			db := newStore(t, o)
			for _, size := range []int{0, 1, 1024, 1025, 30_000, 300_000} {
				data := random(uint64(size), size)
				var ref, inline Ref
				update(t, db, func(s *Store) {
					var err error
					ref, err = s.Put(data)
					must(t, err)
					s.InlineUpTo(MaxInline)
					inline, err = s.Put(data)
					must(t, err)
					r, err := s.Reader(ref)
					must(t, err)
					must(t, iotest.TestReader(r, data))
				})
				if _, ok := inline.Inline(); ok != (size <= MaxInline && o.Key == nil) {
					t.Errorf("%d bytes inline: %v", size, ok)
				}
				view(t, db, func(s *Store) {
					for _, ref := range []Ref{ref, inline} {
						r, err := s.Reader(ref)
						must(t, err)
						must(t, iotest.TestReader(r, data))
						must2(r.Seek(0, io.SeekStart))
						compareReaders(t, r, data)
					}
				})
			}
		})
	}
}

// How long a value is that Put keeps in the reference. A writer keeps none there.
func TestInlineUpTo(t *testing.T) {
	db := newStore(t, Options{})
	update(t, db, func(s *Store) {
		for _, c := range []struct {
			set  func(*Store)
			most int
		}{
			{func(*Store) {}, 255},
			{func(s *Store) { s.InlineUpTo(-1) }, -1},
			{func(s *Store) { s.InlineUpTo(0) }, 0},
			{func(s *Store) { s.InlineUpTo(MaxInline + 1) }, MaxInline},
		} {
			s := must2(openAny(s.bucket))
			c.set(s)
			for _, n := range []int{c.most, c.most + 1} {
				if n < 0 {
					continue
				}
				data := random(uint64(n), n)
				ref := must2(s.Put(data))
				if _, inline := ref.Inline(); inline != (n <= c.most) {
					t.Errorf("%d bytes inline: %v, up to %d are", n, inline, c.most)
				}
				if got := readAll(t, s, ref); !bytes.Equal(got, data) {
					t.Errorf("%d bytes are not read as they were put", n)
				}
			}
			w := s.Writer()
			must2(w.Write([]byte("short")))
			if _, inline := must2(w.Commit()).Inline(); inline {
				t.Error("a writer makes an inline reference")
			}
		}
	})
	view(t, db, func(s *Store) {
		if _, err := s.Put(nil); !errors.Is(err, holdfast.ErrTxNotWritable) {
			t.Errorf("Put in a reading transaction: %v", err)
		}
	})
}

// compareReaders does the same at random with r and a reader of data.
func compareReaders(t *testing.T, r *Reader, data []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(len(data))))
	want := bytes.NewReader(data)
	if r.Size() != want.Size() {
		t.Fatalf("size %d, want %d", r.Size(), want.Size())
	}
	for range 300 {
		offset := rng.Int64N(int64(len(data))+10) - 3
		p, q := make([]byte, rng.IntN(5000)), make([]byte, 5000)
		q = q[:len(p)]
		n, err := r.ReadAt(p, offset)
		m, wantErr := want.ReadAt(q, offset)
		if n != m || !bytes.Equal(p[:n], q[:m]) || (err == io.EOF) != (wantErr == io.EOF) || (err == nil) != (wantErr == nil) {
			t.Fatalf("ReadAt(%d, %d): %d %v, want %d %v", len(p), offset, n, err, m, wantErr)
		}
		whence := rng.IntN(4)
		at, err := r.Seek(offset, whence)
		wantAt, wantErr := want.Seek(offset, whence)
		if at != wantAt || (err == nil) != (wantErr == nil) {
			t.Fatalf("Seek(%d, %d): %d %v, want %d %v", offset, whence, at, err, wantAt, wantErr)
		}
		if rng.IntN(10) > 0 {
			n, err = io.ReadFull(r, p)
			m, wantErr = io.ReadFull(want, q)
			if n != m || err != wantErr || !bytes.Equal(p[:n], q[:m]) {
				t.Fatalf("ReadFull of %d bytes at %d: %d %v, want %d %v", len(p), at, n, err, m, wantErr)
			}
			continue
		}
		var got, rest bytes.Buffer
		if _, err := r.WriteTo(&got); err != nil {
			t.Fatal(err)
		}
		if _, err := want.WriteTo(&rest); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), rest.Bytes()) {
			t.Fatalf("WriteTo from %d gave other bytes", at)
		}
	}
}

// A writer that fails ends WriteTo, which goes on where it ended.
func TestWriteToFailing(t *testing.T) {
	db := newStore(t, small[0])
	data := random(4, 10_000)
	var ref Ref
	update(t, db, func(s *Store) {
		var err error
		ref, err = s.Put(data)
		must(t, err)
	})
	view(t, db, func(s *Store) {
		r, err := s.Reader(ref)
		must(t, err)
		n, err := r.WriteTo(badWriter(func(p []byte) (int, error) { return 10, errPlanted }))
		if n != 10 || err != errPlanted {
			t.Errorf("%d %v", n, err)
		}
		n, err = r.WriteTo(badWriter(func(p []byte) (int, error) { return 5, nil }))
		if n != 5 || err != io.ErrShortWrite {
			t.Errorf("%d %v", n, err)
		}
		if n, err = r.WriteTo(badWriter(func(p []byte) (int, error) { return len(p) + 1, nil })); err == nil {
			t.Errorf("%d %v", n, err)
		}
		rest, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(rest, data[15:]) {
			t.Errorf("%d bytes after 15, %v", len(rest), err)
		}
	})
}

type badWriter func(p []byte) (int, error)

func (w badWriter) Write(p []byte) (int, error) { return w(p) }

// Several goroutines may use a store and a reader at once.
func TestConcurrentReads(t *testing.T) {
	db := newStore(t, small[0])
	data := random(5, 1_000_000)
	var ref Ref
	update(t, db, func(s *Store) {
		var err error
		ref, err = s.Put(data)
		must(t, err)
	})
	view(t, db, func(s *Store) {
		r, err := s.Reader(ref)
		must(t, err)
		var wg sync.WaitGroup
		for i := range uint64(4) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				rng := rand.New(rand.NewPCG(i, 0))
				p := make([]byte, 4096)
				for range 500 {
					at := rng.IntN(len(data) - len(p))
					if _, err := r.ReadAt(p, int64(at)); err != nil || !bytes.Equal(p, data[at:at+len(p)]) {
						t.Errorf("at %d: %v", at, err)
						return
					}
				}
				if own, err := s.Reader(ref); err != nil || own.Size() != ref.Size() {
					t.Error(err)
				}
			}()
		}
		wg.Wait()
	})
}

// References that lead nowhere, or elsewhere.
func TestWrongRefs(t *testing.T) {
	db := newStore(t, small[0])
	var one, tree Ref
	update(t, db, func(s *Store) {
		var err error
		one, err = s.Put(random(1, 1000))
		must(t, err)
		tree, err = s.Put(random(1, 5000))
		must(t, err)
	})
	view(t, db, func(s *Store) {
		change := func(r Ref, fn func(*Ref)) Ref { fn(&r); return r }
		for i, c := range []struct {
			ref  Ref
			want error
		}{
			{Ref{}, ErrInvalidRef},
			{change(one, func(r *Ref) { r.addr[0]++ }), ErrNotFound},
			{change(one, func(r *Ref) { r.size++ }), ErrInvalidRef},
			{change(one, func(r *Ref) { r.level = 1 }), ErrNotFound},
			{change(one, func(r *Ref) { r.algorithm = BLAKE3 }), ErrAlgorithm},
			{change(tree, func(r *Ref) { r.size-- }), ErrInvalidRef},
			{change(tree, func(r *Ref) { r.level = 0 }), ErrNotFound},
			{change(tree, func(r *Ref) { r.level = 2 }), ErrNotFound},
		} {
			if _, err := s.Reader(c.ref); !errors.Is(err, c.want) {
				t.Errorf("reference %d: %v, want %v", i, err, c.want)
			}
		}
	})
}

// Nothing can be done with a store or a reader after their transaction, and nothing is
// changed in a reading one.
func TestAfterTheTransaction(t *testing.T) {
	db := newStore(t, small[0])
	var s *Store
	var r *Reader
	var ref Ref
	update(t, db, func(store *Store) {
		s = store
		var err error
		ref, err = s.Put(random(1, 5000))
		must(t, err)
	})
	if _, err := s.Put(nil); !errors.Is(err, holdfast.ErrTxClosed) {
		t.Error(err)
	}
	view(t, db, func(store *Store) {
		s = store
		var err error
		r, err = s.Reader(ref)
		must(t, err)
		if _, err := r.Read(make([]byte, 10)); err != nil {
			t.Error(err)
		}
		if _, err := s.Put(nil); !errors.Is(err, holdfast.ErrTxNotWritable) {
			t.Error(err)
		}
		if _, err := s.Writer().Write(nil); !errors.Is(err, holdfast.ErrTxNotWritable) {
			t.Error(err)
		}
	})
	if _, err := s.Reader(ref); !errors.Is(err, holdfast.ErrTxClosed) {
		t.Error(err)
	}
	if _, err := r.Read(make([]byte, 10)); !errors.Is(err, holdfast.ErrTxClosed) {
		t.Error(err)
	}
	if _, err := r.ReadAt(make([]byte, 10), 3000); !errors.Is(err, holdfast.ErrTxClosed) {
		t.Error(err)
	}
	if _, err := r.WriteTo(io.Discard); !errors.Is(err, holdfast.ErrTxClosed) {
		t.Error(err)
	}
}

// Every chunk of a blob, lost or changed in several ways: what is read is right or an error
// that names the blob, the chunk and the place, and the rest can be read.
func TestDamagedChunks(t *testing.T) {
	for _, o := range small {
		t.Run(o.String(), func(t *testing.T) {
			data := random(6, 200_000)
			other := random(7, 50_000)
			for _, d := range damages {
				db := newStore(t, o)
				var ref, healthy Ref
				update(t, db, func(s *Store) {
					var err error
					ref, err = s.Put(data)
					must(t, err)
					healthy, err = s.Put(other)
					must(t, err)
				})
				for _, c := range chunksOf(t, db, ref) {
					damageChunk(t, db, ref, healthy, data, other, c, d)
				}
			}
		})
	}
}

var damages = []struct {
	name   string
	want   error
	change func(t *testing.T, s *Store, k *chunkKey, e *entry)
}{
	{"bytes missing", ErrMissing, func(t *testing.T, s *Store, k *chunkKey, e *entry) {
		must(t, s.deleteBytes(e.packed, e.id))
	}},
	{"entry missing", ErrMissing, func(t *testing.T, s *Store, k *chunkKey, e *entry) {
		key := k.encode()
		must(t, s.at(key[:]).Delete(key[:]))
	}},
	{"a bit", ErrCorrupt, func(t *testing.T, s *Store, k *chunkKey, e *entry) {
		changeBytes(t, s, e, func(p []byte) []byte { p[len(p)/2] ^= 4; return p })
	}},
	{"shorter", ErrCorrupt, func(t *testing.T, s *Store, k *chunkKey, e *entry) {
		changeBytes(t, s, e, func(p []byte) []byte { return p[:len(p)-1] })
	}},
	{"shorter, and the entry says so", ErrCorrupt, func(t *testing.T, s *Store, k *chunkKey, e *entry) {
		changeBytes(t, s, e, func(p []byte) []byte { return p[:len(p)-1] })
		e.length--
		key := k.encode()
		must(t, s.at(key[:]).Put(key[:], e.append(nil)))
	}},
	{"entry of nonsense", ErrCorrupt, func(t *testing.T, s *Store, k *chunkKey, e *entry) {
		key := k.encode()
		must(t, s.at(key[:]).Put(key[:], []byte{0xff}))
	}},
	{"entry of another chunk", ErrCorrupt, func(t *testing.T, s *Store, k *chunkKey, e *entry) {
		other := chunkKey{addr: s.options.sum(random(1, 10))}
		at, found, err := s.lookup(&other)
		must(t, err)
		if !found {
			t.Fatal("no other chunk")
		}
		key := k.encode()
		must(t, s.at(key[:]).Put(key[:], at.append(nil)))
	}},
}

func changeBytes(t *testing.T, s *Store, e *entry, fn func([]byte) []byte) {
	p, err := s.data(e)
	must(t, err)
	must(t, s.bytesBucket(e.packed).Put(binary.BigEndian.AppendUint64(nil, e.id), fn(bytes.Clone(p))))
}

type place struct {
	key    chunkKey
	offset int64
	size   int64
}

// chunksOf lists some of the chunks of a blob: the nodes and every few leaves.
func chunksOf(t *testing.T, db *holdfast.DB, ref Ref) (list []place) {
	view(t, db, func(s *Store) {
		var walk func(p place)
		walk = func(p place) {
			if len(list)%20 == 0 || p.key.level > 0 {
				list = append(list, p)
			}
			if p.key.level == 0 {
				return
			}
			b, err := s.load(&p.key)
			must(t, err)
			n, err := parseNode(b, p.key.level, s.options.shape())
			must(t, err)
			at := p.offset
			for i := range n.count() {
				k, size := n.child(i)
				if i, begin := n.find(at - p.offset); begin != at-p.offset || i < 0 {
					t.Errorf("child at %d is found at %d", at-p.offset, begin)
				}
				if i%30 == 3 || k.level > 0 {
					list = append(list, place{k, at, size})
				}
				if k.level > 0 {
					walk(place{k, at, size})
				}
				at += size
			}
		}
		walk(place{ref.key(), 0, ref.size})
	})
	return list
}

// damageChunk damages one chunk in a transaction that is rolled back, and reads.
func damageChunk(t *testing.T, db *holdfast.DB, ref, healthy Ref, data, other []byte, c place, d struct {
	name   string
	want   error
	change func(t *testing.T, s *Store, k *chunkKey, e *entry)
}) {
	t.Helper()
	must(t, ignore(db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		_, err := s.Put(random(1, 10))
		must(t, err)
		e, found, err := s.lookup(&c.key)
		must(t, err)
		if !found {
			t.Fatal("no such chunk")
		}
		d.change(t, s, &c.key, &e)
		s = openIn(tx) // which has verified nothing
		r, err := s.Reader(ref)
		if c.key == ref.key() {
			if !errors.Is(err, d.want) && !errors.Is(err, ErrNotFound) {
				t.Fatalf("%s at the root: %v", d.name, err)
			}
			r, err = &Reader{s: s, ref: ref}, nil
		}
		must(t, err)
		p := make([]byte, 1000)
		for at := int64(0); at < ref.size; at += 1000 {
			n, err := r.ReadAt(p, at)
			hit := at < c.offset+c.size && at+1000 > c.offset
			if !bytes.Equal(p[:n], data[at:at+int64(n)]) {
				t.Fatalf("%s: wrong bytes at %d", d.name, at)
			}
			if !hit {
				if err != nil {
					t.Fatalf("%s at %d: reading at %d: %v", d.name, c.offset, at, err)
				}
				continue
			}
			var damage *CorruptError
			if !errors.Is(err, ErrCorrupt) || !errors.Is(err, d.want) || !errors.As(err, &damage) {
				t.Fatalf("%s at %d: reading at %d: %v", d.name, c.offset, at, err)
			}
			if damage.Offset != c.offset || damage.Chunk != c.key.addr || damage.Level != c.key.level || damage.Ref != ref {
				t.Fatalf("%s at %d, level %d: %v", d.name, c.offset, c.key.level, err)
			}
		}
		if got := readAll(t, s, healthy); !bytes.Equal(got, other) {
			t.Fatal("another blob is damaged")
		}
		return errPlanted
	}), errPlanted))
}
