package page_test

import (
	"bytes"
	"testing"

	"holdfast/internal/page"
)

// A leaf of one element that is laid out around its value is, to the byte, the one that an
// Encoder makes and Seal seals, and takes no page for its seal alone. So is its fingerprint, which is
// taken before it is written; what gives it up reads it from the file.
func TestLoneLeaf(t *testing.T) {
	const size = 512
	tail := make([]byte, size)
	key := []byte("a key")
	for n := size - 80; n < 3*size; n++ {
		for _, sealed := range []bool{true, false} {
			value := bytes.Repeat([]byte{byte(n), 7, 0}, n)[:n]
			pages := page.LoneLeafPages(key, value, size)
			if content := page.HeaderSize + page.LeafElementSize + len(key) + n; pages != uint64((content+size-1)/size) {
				t.Fatalf("%d pages for %d bytes", pages, content)
			}
			head, end := page.LoneLeaf(nil, tail, 77, key, value, pages, sealed)
			got := bytes.Join([][]byte{head, value, tail[end:]}, nil)
			want := bytes.Repeat([]byte{0xEE}, int(pages)*size)
			enc := page.NewLeaf(want, 77, 1, uint32(pages-1))
			enc.Leaf(0, key, value)
			enc.Finish(sealed)
			if !bytes.Equal(got, want) {
				t.Fatalf("a value of %d bytes, sealed %t: the run is another", n, sealed)
			}
			f, ok := page.LoneLeafFingerprint(head, value, tail, end, 77)
			if want, wantOK := page.Fingerprint(want, 77); f != want || !ok || !wantOK {
				t.Fatalf("a value of %d bytes, sealed %t: its fingerprint is %x, %t, want %x, %t", n, sealed, f, ok, want, wantOK)
			}
		}
	}
}
