package engine

import (
	"encoding/binary"
	"fmt"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// The last leaf of a bucket may be empty in a file that another program has written. It is taken off the
// tree before anything is appended, since it stands under a key that may come after what is appended.
func TestAppendAfterAnEmptyLeaf(t *testing.T) {
	const size = 1024
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{PageSize: size, NoSeals: true}
	db, err := bridge.Open(mem.Open(), options)
	must(t, err)
	fill(t, db, 200, 100)
	var root page.ID
	view(t, db, func(tx *holdfast.Tx) { root = tx.Bucket([]byte("b")).Root() })
	must(t, db.Close())
	data := mem.Bytes()
	branch, err := page.Parse(data[int(root)*size:][:size], root)
	must(t, err)
	_, last, err := branch.Branch(branch.Count() - 1)
	must(t, err)
	leaf, err := page.Parse(data[int(last)*size:][:size], last)
	must(t, err)
	removed := leaf.Count()
	binary.NativeEndian.PutUint16(data[int(last)*size+10:], 0)
	_, err = mem.Open().WriteAt(data, 0)
	must(t, err)
	db, err = bridge.Open(mem.Open(), options)
	must(t, err)
	left := 200 - removed
	update(t, db, func(tx *holdfast.Tx) { // before the key of the empty leaf
		b := tx.Bucket([]byte("b"))
		key := fmt.Appendf(nil, "%08d.5", left-1)
		for i := range 40 { // some leaves
			must(t, b.Append(fmt.Appendf(key, "%04d", i), make([]byte, 100)))
			if len(b.Get(fmt.Appendf(key, "%04d", i))) != 100 {
				t.Errorf("value %d is not there", i)
			}
		}
	})
	view(t, db, func(tx *holdfast.Tx) {
		if n := tx.Bucket([]byte("b")).Stats().KeyN; n != left+40 {
			t.Errorf("%d keys, want %d", n, left+40)
		}
	})
	checkDB(t, db)
	must(t, db.Close())
}
