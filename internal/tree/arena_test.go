package tree

import (
	"math/rand/v2"
	"testing"
)

// Pieces that are handed out at the same time are apart from each other and zero, also in the
// next transactions, whichever were given back.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	var b blocks[int]
	extended := 0
	defer func() {
		if extended < 100 {
			t.Errorf("%d pieces were extended", extended)
		}
	}()
	for round := range 30 {
		var pieces [][]int
		for i := range rng.IntN(300) {
			n := 1 + rng.IntN(40)
			if rng.IntN(20) == 0 {
				n = 1 + rng.IntN(maxBlock/2)
			}
			p := b.take(n)
			if len(p) != 0 || cap(p) < n {
				t.Fatalf("%d of %d, not %d", len(p), cap(p), n)
			}
			p = p[:cap(p)]
			for j := range p {
				if p[j] != 0 {
					t.Fatalf("round %d: a piece is not zero", round)
				}
				p[j] = i + 1
			}
			if rng.IntN(4) == 0 {
				more, ok := b.extend(p, len(p)+1+rng.IntN(40))
				if ok && (n > maxBlock/4 || len(more) != len(p) || cap(more) <= len(p)) {
					t.Fatalf("%d of %d, from %d", len(more), cap(more), len(p))
				}
				if ok {
					extended++
					for j, v := range more[len(p):cap(more)] {
						if v != 0 {
							t.Fatalf("round %d: %d is not zero behind what was extended", round, j)
						}
					}
					p = more[:cap(more)]
					for j := range p {
						p[j] = i + 1
					}
					n = 0 // it was taken from a block
				}
			}
			if last := len(pieces) - 1; last >= 0 && n <= maxBlock/4 {
				if _, ok := b.extend(pieces[last], len(pieces[last])+1); ok {
					t.Fatal("a piece was extended that is not the last one")
				}
			}
			switch last := len(pieces) - 1; {
			case rng.IntN(4) == 0:
				if b.giveBack(p) != (n <= maxBlock/4) {
					t.Fatalf("of %d", n)
				}
				continue
			case last >= 0 && len(p) <= maxBlock/4 && b.giveBack(pieces[last]):
				t.Fatal("a piece was taken back that is not the last one")
			}
			pieces = append(pieces, p)
		}
		for _, p := range pieces {
			for _, v := range p {
				if v != p[0] {
					t.Fatalf("round %d: two pieces have memory in common", round)
				}
			}
		}
		b.reset(2000)
		kept := 0
		for _, block := range b.list {
			kept += len(block)
		}
		if kept > 2000+maxBlock {
			t.Errorf("%d are kept", kept)
		}
	}
}
