package blob

import (
	"math/rand/v2"
	"testing"

	"holdfast"
)

// BenchmarkReadWarm reads 4 KiB at random of a blob in memory that was read before: by one Reader, by a new
// Reader of one Store, and in a transaction for each.
func BenchmarkReadWarm(b *testing.B) {
	const size = 128 << 20
	for _, o := range []Options{{}, {Algorithm: BLAKE3}} {
		db := newStore(b, o)
		var ref Ref
		must(b, db.Update(func(tx *holdfast.Tx) error {
			ref = must2(openIn(tx).Put(random(1, size)))
			return nil
		}))
		p := make([]byte, 4096)
		readAt := func(r *Reader, err error) {
			if err == nil {
				_, err = r.ReadAt(p, rand.Int64N(size-4096))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		ways := map[string]func(b *testing.B){
			"reader": func(b *testing.B) {
				view(b, db, func(s *Store) {
					r := must2(s.Reader(ref))
					for range b.N {
						readAt(r, nil)
					}
				})
			},
			"readers": func(b *testing.B) {
				view(b, db, func(s *Store) {
					for range b.N {
						readAt(s.Reader(ref))
					}
				})
			},
			"transactions": func(b *testing.B) {
				for range b.N {
					must(b, db.View(func(tx *holdfast.Tx) error {
						readAt(openIn(tx).Reader(ref))
						return nil
					}))
				}
			},
		}
		for _, name := range []string{"reader", "readers", "transactions"} {
			b.Run(o.Algorithm.String()+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.ResetTimer()
				ways[name](b)
			})
		}
	}
}
