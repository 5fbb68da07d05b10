package blob

import (
	"bytes"
	"crypto/sha256"
	"io"
	"testing"

	"github.com/zeebo/blake3"
)

// boundaries are the sizes around which something changes in a tree of fixed leaves.
func boundaries(leaf int) []int {
	sizes := []int{0, 1, 2, 100}
	for _, n := range []int{1, 2, 3, 125, 126, 127, 128, 252, 253, 2 * 126 * 2} {
		sizes = append(sizes, n*leaf-1, n*leaf, n*leaf+1)
	}
	return append(sizes, 126*126*leaf, 126*126*leaf+1, 126*126*leaf+leaf+1, 126*127*leaf, 126*127*leaf+1)
}

// readAll reads a blob in one of several ways.
func readAll(t testing.TB, s *Store, ref Ref) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := value(t, must2(s.Reader(ref)), nil).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Blobs of all sizes come back as they were, before and after the commit, and
// have the same address in whatever way they were written.
func TestSizes(t *testing.T) {
	for _, o := range small {
		t.Run(o.String(), func(t *testing.T) {
			db := newStore(t, o)
			sizes := boundaries(o.LeafSize)
			refs := make([]Ref, len(sizes))
			update(t, db, func(s *Store) {
				w := s.Writer()
				for i, size := range sizes {
					data := random(1, size)
					ref, err := s.Put(data)
					must(t, err)
					refs[i] = ref
					must(t, dropErr(w.ReadFrom(bytes.NewReader(data))))
					again, err := w.Commit()
					must(t, err)
					if again != ref {
						t.Fatalf("%d bytes are %v by Put, %v by ReadFrom", size, ref, again)
					}
					if i%4 == 0 && !bytes.Equal(readAll(t, s, ref), data) {
						t.Fatalf("%d bytes are others before the commit", size)
					}
				}
			})
			view(t, db, func(s *Store) {
				for i, size := range sizes {
					data := random(1, size)
					if got := readAll(t, s, refs[i]); !bytes.Equal(got, data) {
						t.Fatalf("%d bytes came back as %d others", size, len(got))
					}
					if refs[i].Size() != int64(size) {
						t.Errorf("%d bytes have the size %d", size, refs[i].Size())
					}
					plain := Address(sha256.Sum256(data))
					if o.Algorithm == BLAKE3 {
						plain = blake3.Sum256(data)
					}
					if (refs[i].Level() == 0 && o.Key == nil) != (refs[i].Address() == plain) {
						t.Errorf("%d bytes: level %d, address %v, plain hash %v", size, refs[i].Level(), refs[i].Address(), plain)
					}
					if o.Chunking != FastCDC && refs[i].Level() == 0 != (size <= MinLeafSize) {
						t.Errorf("%d bytes have level %d", size, refs[i].Level())
					}
				}
			})
		})
	}
}

func dropErr(_ int64, err error) error { return err }

var _ io.Reader = (*Reader)(nil)
