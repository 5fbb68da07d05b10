package blob

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"holdfast"
)

// fresher makes a value new with few instructions.
func fresher(p []byte) func() {
	n := uint64(0)
	return func() {
		n++
		for i := 0; i+8 <= len(p); i += 4096 {
			v := n*0x9e3779b97f4a7c15 + uint64(i)
			p[i], p[i+1], p[i+2], p[i+3], p[i+4], p[i+5], p[i+6], p[i+7] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
		}
	}
}

var benchSizes = []int{1e3, 1e4, 1e5, 1e6, 1e7}

// BenchmarkPut stores unique values in transactions of 16 MiB, commits included.
func BenchmarkPut(b *testing.B) {
	for _, size := range benchSizes {
		for _, concurrent := range []bool{false, true} {
			if concurrent && size < 1e6 {
				continue
			}
			b.Run(fmt.Sprintf("size=%d/concurrent=%v", size, concurrent), func(b *testing.B) {
				benchmarkPut(b, size, concurrent, 16<<20)
			})
		}
	}
}

// maxBenchFile bounds the disk space of a benchmark in bytes, whatever b.N is: beyond, the
// database is begun anew.
const maxBenchFile = 1 << 30

func benchmarkPut(b *testing.B, size int, concurrent bool, transaction int) {
	data := random(rand.Uint64(), size)
	fresh := fresher(data)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var db *holdfast.DB
	pages, inFile := int64(0), maxBenchFile
	for done := 0; done < b.N; {
		if inFile >= maxBenchFile {
			b.StopTimer()
			if db != nil {
				pages += written(db)
				path := db.Path()
				must(b, db.Close())
				must(b, os.Remove(path))
			}
			db, inFile = newStore(b, Options{}), 0
			b.StartTimer()
		}
		must(b, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			w := s.Writer()
			w.Concurrent(concurrent)
			for n := 0; n < transaction && done < b.N; n += size {
				fresh()
				if !concurrent {
					if _, err := s.Put(data); err != nil {
						return err
					}
				} else if _, err := w.Write(data); err != nil {
					return err
				} else if _, err := w.Commit(); err != nil {
					return err
				}
				done++
				inFile += size
			}
			return nil
		}))
	}
	b.StopTimer()
	b.ReportMetric(float64(pages+written(db))/float64(b.N)/float64(size), "written/B")
}

func written(db *holdfast.DB) int64 {
	s := db.Stats()
	return s.TxStats.GetPageAlloc()
}

// BenchmarkHash is the hash alone, of the same values.
func BenchmarkHash(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			data := random(1, size)
			fresh := fresher(data)
			b.SetBytes(int64(size))
			for range b.N {
				fresh()
				sha256.Sum256(data)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	const size = 256 << 20
	db := newStore(b, Options{})
	var ref Ref
	must(b, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		w := s.Writer()
		for i := range size >> 20 {
			if _, err := w.Write(random(uint64(i), 1<<20)); err != nil {
				return err
			}
		}
		var err error
		ref, err = w.Commit()
		if err != nil {
			return err
		}
		return nil
	}))
	b.Run("sequential", func(b *testing.B) {
		b.SetBytes(size)
		for range b.N {
			view(b, db, func(s *Store) {
				r, err := s.Reader(ref)
				must(b, err)
				_, err = r.WriteTo(io.Discard)
				must(b, err)
			})
		}
	})
	b.Run("random4k", func(b *testing.B) {
		b.SetBytes(4096)
		b.ReportAllocs()
		view(b, db, func(s *Store) {
			r, err := s.Reader(ref)
			must(b, err)
			_, err = r.WriteTo(io.Discard)
			must(b, err)
			p := make([]byte, 4096)
			b.ResetTimer()
			for range b.N {
				if _, err := r.ReadAt(p, rand.Int64N(size-4096)); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
