package engine

import (
	"bytes"
	"fmt"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// Compact put values that lie in the source's mapping and committed the last of
// them after its view of the source had ended. A source that was written
// meanwhile used those pages again, and the copy held values of several of its
// states. Here the source is rewritten whenever the copy is written, at which
// time the view must be open.
func TestCompactOfLiveSource(t *testing.T) {
	source := vfs.NewMem("source")
	src, err := bridge.Open(source.Open(), &holdfast.Options{PageSize: 1024, NoSync: true})
	must(t, err)
	defer src.Close()
	const count = 50
	rewrite := func(generation byte) {
		update(t, src, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			for i := range count {
				must(t, b.Put(fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte{generation}, 3000)))
			}
		})
	}
	rewrite(1)
	for _, limit := range []int64{0, 20_000} {
		first := byte(0)
		view(t, src, func(tx *holdfast.Tx) { first = tx.Bucket([]byte("b")).Get([]byte("0000"))[0] })
		armed, next := false, first
		target := vfs.NewMem("target")
		file := vfs.NewInject(target.Open(), func(op vfs.Op) error {
			if !armed || op.Kind != vfs.KindWrite {
				return nil
			}
			if src.Stats().OpenTxN != 1 {
				t.Errorf("limit %d: write %d, while the view of the source has ended", limit, op.N)
			}
			if next < first+20 {
				for range 4 {
					next++
					rewrite(next)
				}
			}
			return nil
		})
		dst, err := bridge.Open(file, &holdfast.Options{PageSize: 1024, NoSync: true})
		must(t, err)
		armed = true
		must(t, holdfast.Compact(dst, src, limit))
		armed = false
		if next == first {
			t.Fatal("the source was not written meanwhile")
		}
		checkDB(t, dst)
		n := 0
		view(t, dst, func(tx *holdfast.Tx) {
			for k, v := range tx.Bucket([]byte("b")).All() {
				if n++; len(v) != 3000 || bytes.Count(v, []byte{first}) != 3000 {
					t.Fatalf("limit %d: key %s is not as it was when Compact began", limit, k)
				}
			}
		})
		if n != count {
			t.Errorf("limit %d: %d keys, want %d", limit, n, count)
		}
		must(t, dst.Close())
		if s := src.Stats(); s.OpenTxN != 0 {
			t.Errorf("limit %d: %d transactions of the source are left open", limit, s.OpenTxN)
		}
	}
}
