//go:build !race

package append

import (
	"fmt"
	"testing"

	"holdfast"
)

// Appending takes no memory for a value, but for the page numbers in the branches.
func TestAppendAllocs(t *testing.T) {
	for _, size := range []int{65488, 4096, 1000, 50} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			db := appendDB(t, &holdfast.Options{NoSync: true})
			soundUpdate(t, db, func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucket([]byte("b"))
				if err != nil {
					return err
				}
				key, value, n := make([]byte, 8), make([]byte, size), 0
				add := func() {
					n++
					copy(key, appendKey(n))
					if err := b.Append(key, value); err != nil {
						t.Fatal(err)
					}
				}
				for range 4 << 20 / size { // until pages were written, and memory is used again
					add()
				}
				const batch = 256
				if allocs := testing.AllocsPerRun(16, func() {
					for range batch {
						add()
					}
				}); allocs > batch/16 {
					t.Errorf("%.0f allocations for %d values", allocs, batch)
				}
				return nil
			})
		})
	}
}
