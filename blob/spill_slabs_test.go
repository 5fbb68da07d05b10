package blob

import (
	"bytes"
	"fmt"
	"testing"

	"holdfast"
)

// What a transaction has read of the index stays as it is until the transaction ends, however often its pages are written early in
// between: the memory of values that were given to the index before is not used again, but for the rest of it that was not.
func TestSpilledValuesStay(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		type read struct{ value, copy []byte }
		var reads []read
		put := 0
		for range 6 {
			for range 400 {
				must2(s.Put(random(uint64(1000+put), MinLeafSize)))
				put++
			}
			must(t, s.flush())
			for _, b := range []*holdfast.Bucket{s.index, s.fresh()} {
				if b == nil {
					continue
				}
				must(t, b.ForEach(func(_, v []byte) error {
					reads = append(reads, read{v, bytes.Clone(v)})
					return nil
				}))
			}
			must2(tx.Spill(0))
			s.batch.leaveSlabs()
			for i, r := range reads {
				if !bytes.Equal(r.value, r.copy) {
					return fmt.Errorf("after %d blobs, value %d of %d has changed", put, i, len(reads))
				}
			}
		}
		return nil
	}))
}
