package append

import (
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
)

// BenchmarkAppend fills transactions of 256 MiB, beside Put.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{65488, 1000} {
		for _, put := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/put=%t", size, put), func(b *testing.B) {
				db, err := holdfast.Open(filepath.Join(b.TempDir(), "db"), 0o600, &holdfast.Options{NoSync: true})
				if err != nil {
					b.Fatal(err)
				}
				defer db.Close()
				value := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; i < b.N; {
					err := db.Update(func(tx *holdfast.Tx) error {
						to, err := tx.CreateBucketIfNotExists([]byte("b"))
						for end := min(i+256<<20/size, b.N); i < end && err == nil; i++ {
							if put {
								err = to.Put(appendKey(i), value)
							} else {
								err = to.Append(appendKey(i), value)
							}
						}
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
