package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"holdfast"
)

// changedFile gives the database again after change has changed the bytes of its file.
func changedFile(t *testing.T, db *holdfast.DB, change func(file []byte)) *holdfast.DB {
	t.Helper()
	path := db.Path()
	must(t, db.Close())
	file := must2(os.ReadFile(path))
	change(file)
	must(t, os.WriteFile(path, file, 0o600))
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// ways are those to read a whole blob.
var ways = map[string]func(r *Reader) ([]byte, error){
	"WriteTo": func(r *Reader) ([]byte, error) {
		var b bytes.Buffer
		_, err := r.WriteTo(&b)
		return b.Bytes(), err
	},
	"Read":   func(r *Reader) ([]byte, error) { return io.ReadAll(struct{ io.Reader }{r}) },
	"ReadAt": func(r *Reader) ([]byte, error) { return io.ReadAll(io.NewSectionReader(r, 0, r.Size())) },
	"pieces": func(r *Reader) ([]byte, error) { return readAtBy(r, 5000) },
	"at once": func(r *Reader) ([]byte, error) {
		return readAtBy(r, int(r.Size()))
	},
}

// readAtBy reads all with ReadAt, in pieces of n bytes.
func readAtBy(r *Reader, n int) (all []byte, err error) {
	p := make([]byte, n)
	for err == nil {
		n, err = r.ReadAt(p, int64(len(all)))
		all = append(all, p[:n]...)
	}
	if err == io.EOF {
		err = nil
	}
	return all, err
}

// The seals of leaves are not looked at, however the blob is read, since their hash is compared.
func TestLeavesAreReadOnce(t *testing.T) {
	db := newStore(t, Options{})
	data := random(1, 64*65488+100)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(data)) })
	for way, read := range ways {
		db = changedFile(t, db, func([]byte) {})
		view(t, db, func(s *Store) {
			r := must2(s.Reader(ref))
			before := db.Stats().SealsVerified
			if got, err := read(r); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes, %v", way, len(got), err)
			}
			if n := db.Stats().SealsVerified - before; n > 16 {
				t.Errorf("%s: %d seals were looked at", way, n)
			}
			if r.order.after != 0 {
				t.Errorf("%s: an id was guessed wrong", way)
			}
		})
	}
}

// A bit of a leaf that has changed in the file is an error that names the blob, the place and the page; what is
// before can be read, and what is behind.
func TestChangedBitInTheFile(t *testing.T) {
	const leaf, leaves, bad = 65488, 20, 11
	data := random(2, leaf*leaves+5)
	for way, read := range ways {
		for _, at := range []int{0, leaf / 2, leaf - 1} {
			db := newStore(t, Options{})
			var ref Ref
			update(t, db, func(s *Store) { ref = must2(s.Put(data)) })
			db = changedFile(t, db, func(file []byte) {
				i := bytes.Index(file, data[bad*leaf:bad*leaf+100])
				if i < 0 {
					t.Fatal("no such leaf")
				}
				file[i+at] ^= 8
			})
			err := db.View(func(tx *holdfast.Tx) error {
				r := must2(openIn(tx).Reader(ref))
				got, err := read(r)
				if !bytes.Equal(got, data[:bad*leaf]) {
					t.Errorf("%s: %d bytes before, want %d", way, len(got), bad*leaf)
				}
				var where *CorruptError
				var page *holdfast.CorruptError
				if !errors.Is(err, ErrCorrupt) || !errors.As(err, &where) || !errors.As(err, &page) {
					t.Fatalf("%s: %v", way, err)
				}
				if where.Offset != bad*leaf || where.Ref != ref || page.Page < 4 {
					t.Errorf("%s: %v", way, err)
				}
				behind := make([]byte, len(data)-(bad+1)*leaf)
				if n, err := r.ReadAt(behind, (bad+1)*leaf); err != nil || !bytes.Equal(behind, data[(bad+1)*leaf:]) {
					t.Errorf("%s: behind it %d bytes, %v", way, n, err)
				}
				return nil
			})
			var page *holdfast.CorruptError
			if !errors.As(err, &page) {
				t.Errorf("%s: the transaction ends with %v", way, err)
			}
		}
	}
}

// Leaves that do not lie in the order of the blob.
func TestLeavesInAnotherOrder(t *testing.T) {
	const leaf = MinLeafSize
	first := random(3, 400*leaf)
	var data []byte // pieces of first, and others
	for i := 0; i < 400; {
		n := 1 + int(binary.LittleEndian.Uint16(first[i*leaf:]))%20
		data = append(data, first[i*leaf:min(i+n, 400)*leaf]...)
		if n%3 == 0 {
			data = append(data, random(uint64(100+i), leaf)...)
		}
		i += n + n%4
		if n%5 == 0 {
			i = max(0, i-7)
		}
	}
	db := newStore(t, Options{LeafSize: leaf})
	var ref Ref
	update(t, db, func(s *Store) {
		must2(s.Put(first))
		ref = must2(s.Put(data))
	})
	for way, read := range ways {
		view(t, db, func(s *Store) {
			r := must2(s.Reader(ref))
			if got, err := read(r); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes of %d, %v", way, len(got), len(data), err)
			}
			if r.order.after == 0 {
				t.Errorf("%s: no guess was wrong", way)
			}
		})
	}
}

// A leaf with the next id that the blob does not have may be damaged in any way.
func TestDamagedNeighbour(t *testing.T) {
	const leaf, leaves = 65488, 8
	data := random(4, leaf*leaves)
	neighbour, own := random(5, leaf), random(6, leaf)
	for what, change := range map[string]func(run []byte){
		"a bit":                func(run []byte) { run[1000] ^= 1 },
		"number of the page":   func(run []byte) { run[0] ^= 1 },
		"type of the page":     func(run []byte) { run[8] = 0x40 },
		"overflow of the page": func(run []byte) { run[15] = 0x7f },
		"length of the value":  func(run []byte) { run[16+15] = 0x7f },
		"key":                  func(run []byte) { run[32]++ },
	} {
		db := newStore(t, Options{})
		var ref Ref
		update(t, db, func(s *Store) {
			must2(s.Put(slices.Concat(data, neighbour)))
			ref = must2(s.Put(slices.Concat(data, own)))
		})
		db = changedFile(t, db, func(file []byte) {
			i := bytes.Index(file, neighbour)
			if i < 40 || (i-40)%4096 != 0 {
				t.Fatalf("a leaf at %d", i)
			}
			change(file[i-40:])
		})
		for way, read := range ways {
			view(t, db, func(s *Store) {
				r := must2(s.Reader(ref))
				if got, err := read(r); err != nil || !bytes.Equal(got, slices.Concat(data, own)) {
					t.Errorf("%s, %s: %d bytes, %v", what, way, len(got), err)
				}
				if r.order.after == 0 {
					t.Errorf("%s, %s: no guess was made", what, way)
				}
			})
		}
	}
}

// However the leaves lie, few are guessed wrong; of those in a row nearly all are guessed.
func TestGuesses(t *testing.T) {
	const leaves = 100_000
	for stretch := 1; stretch <= 3*lastGuess; stretch++ {
		var q sequence
		wrong, right := 0, 0
		for i := range leaves {
			a := Address{1: byte(i), 2: byte(i >> 8), 3: byte(i >> 16)}
			id := uint64(i + i/stretch*5 + 1)
			if guessed, ok := q.guess(&a); ok {
				q.found(&a, guessed)
				if guessed == id {
					right++
					continue
				}
				wrong++
				q.wrong()
			}
			q.found(&a, id)
			if guessed, ok := q.guess(&a); !ok || guessed != id {
				t.Fatalf("the same again: %d %t, want %d", guessed, ok, id)
			}
		}
		if wrong > leaves/lastGuess+10 {
			t.Errorf("in stretches of %d, %d guesses of %d leaves were wrong", stretch, wrong, leaves)
		}
		if stretch == 3*lastGuess && right < leaves/2 {
			t.Errorf("in stretches of %d, %d leaves were guessed", stretch, right)
		}
	}
	var q sequence
	for i := range leaves {
		a := Address{1: byte(i), 2: byte(i >> 8), 3: byte(i >> 16)}
		if id, ok := q.guess(&a); ok != (i > firstGuess) || ok && id != uint64(i+1) {
			t.Fatalf("leaf %d: %d %t", i, id, ok)
		}
		q.found(&a, uint64(i+1))
	}
}

// In a row, what is prefetched grows up to a bound, covers each leaf once and ends with the blob; elsewhere it is
// the leaf that is read.
func TestWindows(t *testing.T) {
	for _, length := range []int{1, 1024, 65488, 1 << 20, 16 << 20} {
		const leaves = 10_000
		var q sequence
		behind := 0 // leaves that were prefetched and not read
		largest := 0
		for i := range leaves {
			q.found(&Address{1: byte(i), 2: byte(i >> 8)}, uint64(i+1))
			rest := int64(leaves-1-i) * int64(length)
			ahead, ok := q.window(uint64(i+1), length, rest)
			if ok != (behind == 0) || ahead > max(maxAhead, length) || int64(ahead) > rest || ahead%length != 0 {
				t.Fatalf("%d bytes, leaf %d: %d %t with %d behind", length, i, ahead, ok, behind)
			}
			if !ok {
				behind--
			}
			if behind += ahead / length; i == 0 && ahead != 0 {
				t.Errorf("%d bytes: %d ahead of the first leaf", length, ahead)
			}
			largest = max(largest, ahead)
		}
		if largest < min(maxAhead, leaves*length)/4 {
			t.Errorf("%d bytes: %d ahead at most", length, largest)
		}
		for i := range 100 {
			id := uint64(i*7%100*3 + 1)
			q.found(&Address{5: byte(i)}, id)
			if ahead, ok := q.window(id, length, 1<<40); ahead != 0 || !ok {
				t.Errorf("%d bytes, elsewhere: %d %t", length, ahead, ok)
			}
		}
	}
}
