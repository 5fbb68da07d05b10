package blob

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
)

// WriteTo of OpenReader panicked for a blob of 2^63-1 bytes: the length of its buffer had one byte more. A peer can make such a blob of few
// chunks, and a Pull by a SHA-256 reads what the peer gives for it.
func TestLargestBlob(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	var ref Ref
	update(t, db, func(s *Store) { ref = largest(t, s) })
	r := must2(OpenReader(t.Context(), db, openStoreOf, ref))
	if n, err := r.WriteTo(full{}); n != 0 || !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("%d, %v", n, err)
	}
	must2(r.Seek(-10, io.SeekEnd))
	var b bytes.Buffer
	if n, err := r.WriteTo(&b); n != 10 || err != nil || !bytes.Equal(b.Bytes(), make([]byte, 10)) {
		t.Errorf("%d, %v, %x", n, err, b.Bytes())
	}
	view(t, db, func(s *Store) { must(t, checkClean(s, CheckOptions{Data: true})) })
}

// full is a writer that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortBuffer }

// largest makes a blob of zeros as long as a blob can be.
func largest(t *testing.T, s *Store) Ref {
	t.Helper()
	appendTo := func(in *Ingest, c Chunk) {
		if !must2(in.AppendStored(c)) {
			t.Fatalf("chunk %v could not be appended", c)
		}
	}
	sh := s.options.shape()
	trees := []Chunk{must2(s.Put(make([]byte, sh.leafSize))).Root()} // of each level the fullest
	for sh.full(uint8(len(trees))) < math.MaxInt64 {
		in := must2(s.Ingest("tree", IngestOptions{}))
		for range sh.fanout() {
			appendTo(in, trees[len(trees)-1])
		}
		trees = append(trees, must2(in.Commit()).Root())
	}
	in := must2(s.Ingest("largest", IngestOptions{}))
	for level := len(trees) - 1; level >= 0; level-- {
		for math.MaxInt64-in.Offset() >= trees[level].Size {
			appendTo(in, trees[level])
		}
	}
	must2(in.Write(make([]byte, math.MaxInt64-in.Offset())))
	ref := must2(in.Commit())
	if ref.Size() != math.MaxInt64 {
		t.Fatal(ref.Size())
	}
	return ref
}
