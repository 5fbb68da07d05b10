package blob

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"holdfast"
)

// BenchmarkCompressed puts blobs of text and of bytes that cannot be compressed, and reads them, in stores with compression and without.
// stored/B is how much of the content is stored.
func BenchmarkCompressed(b *testing.B) {
	for _, kind := range []string{"text", "noise"} {
		for _, size := range []int{300, 500, 1e3, 1e4, 1e6, 1e7} {
			for _, c := range []Compression{NoCompression, Zstd, ZstdBetter} {
				content := words(1, size)
				if kind == "noise" {
					content = noise(1, size)
				}
				b.Run(fmt.Sprintf("%s/size=%d/%v", kind, size, c), func(b *testing.B) { benchmarkStore(b, content, Options{Compression: c}) })
			}
		}
	}
}

// BenchmarkEncrypted puts blobs that cannot be compressed, and reads them, in stores with encryption and without, with the same hash.
func BenchmarkEncrypted(b *testing.B) {
	for _, size := range []int{1e3, 1e4, 1e5, 1e6, 1e7} {
		for name, o := range map[string]Options{"plain": {Algorithm: BLAKE3}, "encrypted": {Key: testKey}} {
			b.Run(fmt.Sprintf("size=%d/%s", size, name), func(b *testing.B) { benchmarkStore(b, noise(1, size), o) })
		}
	}
}

func benchmarkStore(all *testing.B, content []byte, o Options) {
	n := max(16<<20/len(content), 1)
	refs := make([]Ref, n)
	var db *holdfast.DB
	all.Run("put", func(b *testing.B) {
		b.SetBytes(int64(n * len(content)))
		for i := range b.N {
			b.StopTimer()
			if db != nil {
				must(b, db.Close())
			}
			db = newStore(all, o) // is read afterwards
			b.StartTimer()
			must(b, db.Update(func(tx *holdfast.Tx) (err error) {
				s := openIn(tx)
				for j := range refs {
					for at := 0; at+8 <= len(content); at += 4096 { // each is another one
						binary.LittleEndian.PutUint64(content[at:], uint64(i*n+j)*0x9e3779b97f4a7c15)
					}
					if refs[j], err = s.Put(content); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		b.StopTimer()
		view(b, db, func(s *Store) {
			u := must2(s.Usage())
			b.ReportMetric(float64(u.LeafBytes+u.NodeBytes)/float64(n*len(content)), "stored/B")
		})
	})
	all.Run("read", func(b *testing.B) {
		b.SetBytes(int64(n * len(content)))
		for range b.N {
			view(b, db, func(s *Store) {
				for _, ref := range refs {
					must2(must2(s.Reader(ref)).WriteTo(io.Discard))
				}
			})
		}
	})
}
