package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// TestWriteVecShort writes through writers that keep within the limits and
// write less than they are given.
func TestWriteVecShort(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := vecLimit{buffers: 1 + random.IntN(5), bytes: 1 + random.IntN(50)}
		var bufs [][]byte
		for range random.IntN(20) {
			bufs = append(bufs, pattern(random.IntN(30), random.Uint64()))
		}
		var written []byte
		const start = 1000
		err := writeVec(bufs, start, limit, func(batch [][]byte, off int64) (int, error) {
			if off != start+int64(len(written)) {
				t.Fatalf("seed %d: write at %d, want %d", seed, off, start+len(written))
			}
			offered := bytes.Join(batch, nil)
			if len(batch) == 0 || len(batch) > limit.buffers || len(offered) > limit.bytes {
				t.Fatalf("seed %d: %d buffers with %d bytes, limit %+v", seed, len(batch), len(offered), limit)
			}
			for _, buf := range batch {
				if len(buf) == 0 {
					t.Fatalf("seed %d: an empty buffer", seed)
				}
			}
			n := 1 + random.IntN(len(offered))
			written = append(written, offered[:n]...)
			return n, nil
		})
		if want := bytes.Join(bufs, nil); err != nil || !bytes.Equal(written, want) {
			t.Fatalf("seed %d: wrote %d of %d bytes: %v", seed, len(written), len(want), err)
		}
	}
}

func TestWriteVecFails(t *testing.T) {
	bufs := [][]byte{{1}, {2}}
	broken := errors.New("broken")
	for _, want := range []error{broken, io.ErrShortWrite} {
		calls := 0
		err := writeVec(bufs, 0, vecLimit{1, 100}, func([][]byte, int64) (int, error) {
			if calls++; calls == 1 {
				return 1, nil
			}
			if want == broken {
				return 0, broken
			}
			return 0, nil
		})
		if err != want || calls != 2 {
			t.Errorf("%v after %d calls, want %v after 2", err, calls, want)
		}
	}
}
