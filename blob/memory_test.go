package blob

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"holdfast"
)

// heapWatch sees how much of the heap is in use in the course of some work.
type heapWatch struct{ before, most int64 }

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func watchHeap() *heapWatch {
	heapInUse() // what the collector gives to finalizers and pools is free behind the next one
	return &heapWatch{before: heapInUse()}
}

func (w *heapWatch) look() { w.most = max(w.most, heapInUse()-w.before) }

// numbered gives size bytes of which no chunk comes twice.
type numbered struct {
	left int
	rng  *rand.Rand
	look func()
	next int // look when so many are left
	each int
}

func newNumbered(size int, look func()) *numbered {
	each := size / 20
	return &numbered{left: size, rng: rand.New(rand.NewPCG(1, uint64(size))), look: look, next: size - each, each: each}
}

func (r *numbered) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), r.left)]
	for i := 0; i+8 <= len(p); i += 512 {
		binary.LittleEndian.PutUint64(p[i:], r.rng.Uint64())
	}
	if r.left -= len(p); r.left <= r.next {
		r.next -= r.each
		r.look()
	}
	return len(p), nil
}

// TestMemoryOfWriting sees that what a transaction has in memory does not depend on the number and the size of
// its blobs.
func TestMemoryOfWriting(t *testing.T) {
	kinds := []struct {
		name  string
		n     int
		most  int64 // bytes of memory
		write func(s *Store, n int, look func()) error

		compression Compression
	}{
		{"short blobs", 120_000, 14 << 20, func(s *Store, n int, look func()) error {
			for i := range n {
				if i%(n/20) == n/20-1 {
					look()
				}
				if _, err := s.Put(fmt.Appendf(nil, "blob %d", i)); err != nil {
					return err
				}
			}
			return nil
		}, NoCompression},
		{"blobs of a kilobyte", 25_000, 8 << 20, func(s *Store, n int, look func()) error {
			r := newNumbered(n<<10, look)
			b := make([]byte, 1<<10)
			for range n {
				if _, err := io.ReadFull(r, b); err != nil {
					return err
				}
				if _, err := s.Put(b); err != nil {
					return err
				}
			}
			return nil
		}, NoCompression},
		{"one blob", 48 << 20, 10 << 20, func(s *Store, n int, look func()) error {
			w := s.Writer()
			if _, err := w.ReadFrom(newNumbered(n, look)); err != nil {
				return err
			}
			_, err := w.Commit()
			return err
		}, NoCompression},
	}
	for _, k := range kinds[1:] { // the encoder, and what is compressed and not stored yet
		better := k
		k.compression, k.most = Zstd, k.most+4<<20
		better.compression, better.most = ZstdBetter, better.most+16<<20
		kinds = append(kinds, k, better)
	}
	for _, k := range kinds {
		t.Run(fmt.Sprintf("%s, %v", k.name, k.compression), func(t *testing.T) {
			var most []int64
			for _, n := range []int{k.n, 4 * k.n} {
				// Leaves of 1 KiB, so that a blob of some MiB has many.
				db := newStore(t, Options{LeafSize: 1 << 10, Compression: k.compression})
				watch := watchHeap()
				must(t, db.Update(func(tx *holdfast.Tx) error { return k.write(openIn(tx), n, watch.look) }))
				most = append(most, watch.most)
				view(t, db, func(s *Store) {
					_, err := s.Check(context.Background(), CheckOptions{}, func(p Problem) error { return fmt.Errorf("%v", p) })
					must(t, err)
				})
				must(t, db.Close())
			}
			t.Logf("%d bytes of memory, %d for four times as much", most[0], most[1])
			slack := int64(k.compression)*4<<20 + 256<<10 // encoders, of which there may be one or two; a slab of pages
			if most[1] > most[0]*5/4+slack || most[1] > k.most {
				t.Errorf("%d bytes of memory, %d for four times as much: at most %d, and a quarter more", most[0], most[1], k.most)
			}
		})
	}
}
