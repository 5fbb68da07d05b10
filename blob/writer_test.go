package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"holdfast"
)

// modes are the ways in which a writer can work.
var modes = []struct {
	name string
	set  func(w *Writer)
}{
	{"plain", func(*Writer) {}},
	{"concurrent", func(w *Writer) { w.Concurrent(true) }},
	{"digest", func(w *Writer) { w.Digest(true) }},
	{"both", func(w *Writer) { w.Digest(true); w.Concurrent(true) }},
}

// everyWay runs fn for all kinds of stores and writers.
func everyWay(t *testing.T, fn func(t *testing.T, db *holdfast.DB, set func(w *Writer))) {
	for _, o := range small {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%v-%s", o, mode.name), func(t *testing.T) { fn(t, newStore(t, o), mode.set) })
		}
	}
}

// Equal content has the same address and is stored once, in whatever pieces it came and
// however it was hashed; its digest is the plain SHA-256.
func TestPieces(t *testing.T) {
	everyWay(t, func(t *testing.T, db *holdfast.DB, set func(*Writer)) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, size := range []int{0, 1, 1000, 1024, 1025, 2048, 70_000, 300_000} {
			data := random(uint64(size), size)
			var first Ref
			chunks := 0
			update(t, db, func(s *Store) {
				var err error
				first, err = s.Put(data)
				must(t, err)
			})
			view(t, db, func(s *Store) { chunks = checkStore(t, s) })
			update(t, db, func(s *Store) {
				w := s.Writer()
				set(w)
				for _, most := range []int{1 << 20, 5000, 1024, 700, 3} {
					if most == 3 && size > 5000 {
						continue
					}
					for rest := data; len(rest) > 0; {
						n := min(1+rng.IntN(most), len(rest))
						piece := bytes.Clone(rest[:n])
						rest = rest[n:]
						if rng.IntN(2) == 0 {
							must(t, dropErr(w.ReadFrom(bytes.NewReader(piece))))
						} else if _, err := w.Write(piece); err != nil {
							t.Fatal(err)
						}
						clear(piece) // it was not kept
					}
					if w.Size() != int64(size) {
						t.Fatalf("size %d, not %d", w.Size(), size)
					}
					ref, err := w.Commit()
					must(t, err)
					if ref != first {
						t.Fatalf("%d bytes in pieces of up to %d: %v, by Put %v", size, most, ref, first)
					}
					sum, ok := w.DigestSum()
					if ok != w.digest || ok && sum != sha256.Sum256(data) {
						t.Fatalf("digest %x %v", sum, ok)
					}
				}
			})
			view(t, db, func(s *Store) {
				if now := checkStore(t, s); now != chunks {
					t.Fatalf("%d bytes: %d chunks, then %d", size, chunks, now)
				}
				if got := readAll(t, s, first); !bytes.Equal(got, data) {
					t.Fatalf("%d bytes came back as others", size)
				}
			})
		}
	})
}

// A reader may give its bytes as it likes.
func TestReadersThatGiveLittle(t *testing.T) {
	everyWay(t, func(t *testing.T, db *holdfast.DB, set func(*Writer)) {
		data := random(7, 10_000)
		update(t, db, func(s *Store) {
			want, err := s.Put(data)
			must(t, err)
			w := s.Writer()
			set(w)
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"half": iotest.HalfReader, "one byte": iotest.OneByteReader, "data with the error": iotest.DataErrReader,
				"sometimes nothing": func(r io.Reader) io.Reader { return &lazyReader{r: r} },
			} {
				n, err := w.ReadFrom(wrap(bytes.NewReader(data)))
				if err != nil || n != int64(len(data)) {
					t.Fatalf("%s: %d, %v", name, n, err)
				}
				ref, err := w.Commit()
				must(t, err)
				if ref != want {
					t.Errorf("%s: %v, want %v", name, ref, want)
				}
			}
		})
	})
}

// lazyReader gives nothing at all at most calls.
type lazyReader struct {
	r io.Reader
	n int
}

func (l *lazyReader) Read(p []byte) (int, error) {
	if l.n++; l.n%60 != 0 {
		return 0, nil
	}
	return l.r.Read(p)
}

type badReader func(p []byte) (int, error)

func (r badReader) Read(p []byte) (int, error) { return r(p) }

var errPlanted = errors.New("planted")

// What goes wrong while a blob is written gives it up, and nothing of it is stored.
func TestFailures(t *testing.T) {
	everyWay(t, func(t *testing.T, db *holdfast.DB, set func(*Writer)) {
		data := random(8, 400_000)
		var kept Ref
		update(t, db, func(s *Store) {
			var err error
			kept, err = s.Put(data[:150_000]) // some of what is given up is there
			must(t, err)
		})
		var before []byte
		view(t, db, func(s *Store) { before = content(t, s) })
		from := func(r io.Reader) func(w *Writer) error {
			return func(w *Writer) error { return dropErr(w.ReadFrom(r)) }
		}
		wrong := sha256.Sum256(nil)
		for _, c := range []struct {
			name  string
			want  error
			write func(w *Writer) error
		}{
			{"timeout", iotest.ErrTimeout, from(iotest.TimeoutReader(bytes.NewReader(data)))},
			{"error", errPlanted, from(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errPlanted)))},
			{"unexpected end", io.ErrUnexpectedEOF, from(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF)))},
			{"data with the error", errPlanted, from(iotest.DataErrReader(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errPlanted))))},
			{"nothing for ever", io.ErrNoProgress, from(badReader(func([]byte) (int, error) { return 0, nil }))},
			{"negative count", errReadCount, from(badReader(func([]byte) (int, error) { return -1, nil }))},
			{"count beyond the buffer", errReadCount, from(badReader(func(p []byte) (int, error) { return len(p) + 1, nil }))},
			{"too long", ErrSizeMismatch, func(w *Writer) error {
				w.Expect(int64(len(data)) - 1)
				_, err := w.Write(data)
				return err
			}},
			{"too long in pieces", ErrSizeMismatch, func(w *Writer) error {
				w.Expect(200_000)
				return dropErr(w.ReadFrom(bytes.NewReader(data)))
			}},
			{"too short", ErrSizeMismatch, func(w *Writer) error {
				w.Expect(int64(len(data)) + 1)
				_, err := w.Write(data)
				return err
			}},
			{"wrong digest", ErrDigestMismatch, func(w *Writer) error {
				w.ExpectDigest(wrong)
				_, err := w.Write(data)
				return err
			}},
			{"another blob", ErrDigestMismatch, func(w *Writer) error {
				r := kept
				r.size = int64(len(data))
				w.ExpectRef(r)
				_, err := w.Write(data)
				return err
			}},
			{"given up", nil, func(w *Writer) error {
				_, err := w.Write(data)
				w.Abort()
				return err
			}},
		} {
			update(t, db, func(s *Store) {
				w := s.Writer()
				set(w)
				err := c.write(w)
				if c.want != nil {
					ref, again := w.Commit()
					if err != nil && again == nil || !errors.Is(again, c.want) || !ref.IsZero() {
						t.Errorf("%s: %v, and Commit: %v %v", c.name, err, ref, again)
					}
				} else if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				if w.Size() != 0 {
					t.Errorf("%s: size %d afterwards", c.name, w.Size())
				}
			})
			view(t, db, func(s *Store) {
				if !bytes.Equal(content(t, s), before) {
					t.Fatalf("%s: the store is not as before", c.name)
				}
			})
		}
		// The writer can be used again, and what was expected is forgotten.
		update(t, db, func(s *Store) {
			w := s.Writer()
			set(w)
			w.Expect(3)
			if _, err := w.Write(data); !errors.Is(err, ErrSizeMismatch) {
				t.Error(err)
			}
			if _, err := w.Write(data[:1]); !errors.Is(err, ErrSizeMismatch) {
				t.Error(err)
			}
			if _, err := w.Commit(); !errors.Is(err, ErrSizeMismatch) {
				t.Error(err)
			}
			w.Expect(int64(len(data)))
			w.ExpectDigest(sha256.Sum256(data))
			if _, err := w.Write(data); err != nil {
				t.Error(err)
			}
			if _, err := w.Commit(); err != nil {
				t.Error(err)
			}
		})
	})
}

// What a writer was doing when its transaction committed is given up; what it was doing
// when that was rolled back has never been.
func TestAbandonedWriters(t *testing.T) {
	everyWay(t, func(t *testing.T, db *holdfast.DB, set func(*Writer)) {
		data := random(9, 300_000)
		var before []byte
		view(t, db, func(s *Store) { before = content(t, s) })
		var w *Writer
		update(t, db, func(s *Store) {
			w = s.Writer()
			set(w)
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		})
		if _, err := w.Write(data); !errors.Is(err, ErrWriterClosed) {
			t.Errorf("a writer after its transaction: %v", err)
		}
		if _, err := w.Commit(); !errors.Is(err, ErrWriterClosed) {
			t.Errorf("a writer after its transaction: %v", err)
		}
		if _, err := w.Write(data); !errors.Is(err, holdfast.ErrTxClosed) {
			t.Errorf("a writer after its transaction: %v", err)
		}
		must(t, ignore(db.Update(func(tx *holdfast.Tx) error {
			w = openIn(tx).Writer()
			set(w)
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
			return errPlanted
		}), errPlanted))
		if _, err := w.Write(data); !errors.Is(err, holdfast.ErrTxClosed) {
			t.Errorf("a writer after a rollback: %v", err)
		}
		w.Abort()
		view(t, db, func(s *Store) {
			if !bytes.Equal(content(t, s), before) {
				t.Fatal("the store is not as before")
			}
		})
	})
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return fmt.Errorf("%v, want %v", err, expected)
}

// Two writers of the same content, and several stores of the same bucket, in one
// transaction: it is stored once, and both uses are counted.
func TestTogether(t *testing.T) {
	everyWay(t, func(t *testing.T, db *holdfast.DB, set func(*Writer)) {
		data := random(10, 300_000)
		short := random(11, 300)
		var ref Ref
		update(t, db, func(s *Store) {
			other, third := openIn(s.tx), openIn(s.tx)
			writers := []*Writer{s.Writer(), s.Writer(), other.Writer(), third.Writer()}
			for at := 0; at < len(data); at += 30_000 {
				for _, w := range writers {
					set(w)
					if _, err := w.Write(data[at : at+30_000]); err != nil {
						t.Fatal(err)
					}
				}
				must(t, other.flush())
			}
			for i, w := range writers[:3] {
				got, err := w.Commit()
				must(t, err)
				if ref = got; i > 0 && got != ref {
					t.Fatal("another address")
				}
			}
			for _, store := range []*Store{s, other, third} {
				_, err := store.Put(short)
				must(t, err)
			}
		})
		view(t, db, func(s *Store) {
			if got := readAll(t, s, ref); !bytes.Equal(got, data) {
				t.Fatal("other bytes")
			}
			for _, c := range []chunkKey{ref.key(), {addr: s.options.sum(short)}} {
				e, found, err := s.lookup(&c)
				if err != nil || !found || e.users != 3 || e.parents != 0 {
					t.Errorf("%+v %v %v", e, found, err)
				}
			}
		})
	})
}

// The same content in one blob twice, and a blob whose content is the bytes of a node.
func TestSharing(t *testing.T) {
	for _, o := range small {
		t.Run(o.String(), func(t *testing.T) {
			db := newStore(t, o)
			part := random(12, 126*MinLeafSize*4)
			part = append(part, part...)
			zeros := make([]byte, 3_000_000)
			var refs []Ref
			var contents [][]byte
			update(t, db, func(s *Store) {
				put := func(p []byte) {
					ref, err := s.Put(p)
					must(t, err)
					refs, contents = append(refs, ref), append(contents, bytes.Clone(p))
				}
				put(part)
				put(zeros)
				put(zeros[:1_000_000])
				k := refs[0].key()
				node, err := s.load(&k)
				must(t, err)
				put(node)
			})
			view(t, db, func(s *Store) {
				for i, ref := range refs {
					if !bytes.Equal(readAll(t, s, ref), contents[i]) {
						t.Errorf("blob %d has come back as another", i)
					}
				}
				if refs[3].Level() == 0 && refs[3].Address() != refs[0].Address() {
					t.Error("the bytes of the node have another hash than the node")
				}
			})
		})
	}
}

// Blobs that fill a batch many times over.
func TestManyFlushes(t *testing.T) {
	db := newStore(t, Options{})
	sizes := []int{0, 10, 1000, 60_000, 65_487, 65_488, 65_489, 1_000_000}
	var refs []Ref
	update(t, db, func(s *Store) {
		w := s.Writer()
		w.Concurrent(true)
		for i := range 300 {
			size := sizes[i%len(sizes)]
			if _, err := w.Write(random(uint64(i), size)); err != nil {
				t.Fatal(err)
			}
			ref, err := w.Commit()
			must(t, err)
			refs = append(refs, ref)
		}
		for i := range uint64(100_000) { // more than a batch has entries
			_, err := s.Put(binaryOf(i))
			must(t, err)
		}
	})
	view(t, db, func(s *Store) {
		for i, ref := range refs {
			if !bytes.Equal(readAll(t, s, ref), random(uint64(i), sizes[i%len(sizes)])) {
				t.Fatalf("blob %d has come back as another", i)
			}
		}
		k := chunkKey{addr: SHA256.sum(nil)}
		e, found, err := s.lookup(&k)
		if err != nil || !found || e.users != 38 {
			t.Errorf("the empty blob: %+v %v %v", e, found, err)
		}
	})
}

func binaryOf(v uint64) []byte { return fmt.Appendf(nil, "%d", v) }
