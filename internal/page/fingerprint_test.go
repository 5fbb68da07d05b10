package page_test

import (
	"bytes"
	"testing"

	"holdfast/internal/page"
)

// Of a run so full that it has no seal the first page counted only: an old version of a later one was not
// told. Each byte counts, in a run with a seal by way of it, and so does the place.
func TestFingerprint(t *testing.T) {
	const size = 512
	for _, room := range []int{0, page.SealSize - 1, page.SealSize} {
		key := []byte("k")
		value := bytes.Repeat([]byte("v"), 3*size-page.HeaderSize-page.LeafElementSize-len(key)-room)
		tail := make([]byte, size)
		made := func(value []byte, id page.ID) []byte {
			head, end := page.LoneLeaf(nil, tail, id, key, value, 3, true)
			return append(append(head, value...), tail[end:]...)
		}
		run := made(value, 7)
		if len(run) != 3*size {
			t.Fatalf("a run of %d bytes", len(run))
		}
		want, ok := page.Fingerprint(run, 7)
		if other, _ := page.Fingerprint(made(value, 8), 8); !ok || other == want {
			t.Errorf("%d bytes of room: %t, %x in page 7 and %x in page 8", room, ok, want, other)
		}
		for at := 0; at < len(value); at += 100 {
			changed := bytes.Clone(value)
			changed[at]++
			if got, ok := page.Fingerprint(made(changed, 7), 7); !ok || got == want {
				t.Errorf("%d bytes of room: with another byte %d: %t, %x", room, at, ok, got)
			}
		}
	}
}
