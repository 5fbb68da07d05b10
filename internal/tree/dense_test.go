package tree

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/page"
)

// Leaves into which sorted keys were merged again and again grew together, and were split together: an index of blobs had pages that
// were 57% full at a million entries, and the file 1.156 of the content. With DenseFill they are full at any number of entries.
func TestDenseFill(t *testing.T) {
	least := func(fill float64) float64 {
		s := newStore(4096)
		edit := NewEdit(s)
		tr := OpenInline(s, edit, page.Page{})
		rng := rand.New(rand.NewPCG(1, 3))
		m := model{}
		used, least := 0, 1.0
		for len(m) < 60_000 {
			edit.Reset(s)
			var keys [][]byte
			for range 500 + len(m)/8 { // such a share of what there is as comes to a large bucket at a time
				keys = append(keys, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()), rng.Uint64()))
			}
			slices.SortFunc(keys, slices.Compare)
			for _, k := range keys {
				v := k[:8]
				used += page.LeafSize(k, v)
				m[string(k)] = string(v)
				if err := tr.Put(k, v, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := tr.Merge(); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Write(fill); err != nil {
				t.Fatal(err)
			}
			s.end(t, &tr)
			if full := float64(used) / float64(len(s.runs)*4096); len(m) > 5000 {
				least = min(least, full)
			}
		}
		compare(t, &tr, m)
		return least
	}
	plain, dense := least(DefaultFill), least(DenseFill)
	t.Logf("pages were at least %.0f%% full, and with DenseFill %.0f%%", 100*plain, 100*dense)
	if dense < 0.8 || plain > 0.65 {
		t.Errorf("pages were at least %.0f%% full, and with DenseFill %.0f%%", 100*plain, 100*dense)
	}
}
