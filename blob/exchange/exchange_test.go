package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"holdfast"
	"holdfast/blob"
)

// contents are blobs of all forms: none, short, of one leaf, and of several levels with fixed leaves of 1 KiB.
func contents() [][]byte {
	big := random(1, 300<<10)
	changed := bytes.Clone(big)
	copy(changed[100<<10:], "changed")
	zeros := make([]byte, 500<<10)
	return [][]byte{nil, []byte("short"), random(2, 1024), random(3, 1025), random(4, 5000), big, changed, append(bytes.Clone(big), "more"...), zeros, random(5, 129<<10)}
}

// TestExchange: what is pushed or pulled is there, is held by the lease only, and is not sent again.
func TestExchange(t *testing.T) {
	for _, kind := range kinds {
		for _, to := range []direction{push, pull} {
			for _, small := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s-%d-%v", name(kind), to, small), func(t *testing.T) {
					if small {
						smallBounds(t, 10_000, 20_000, 3000)
					}
					other := kind
					other.Compression = blob.Zstd // changes no address
					from, into := newStore(t, kind), newStore(t, other)
					if to == pull {
						from, into = into, from
					}
					all := contents()
					refs := put(t, from, all...)
					out := good(t, to, from, into, refs, lease("L"))
					if out.stats.Blobs != int64(len(refs)) || out.stats.Failed != 0 {
						t.Errorf("%+v", out.stats)
					}
					sound(t, into)
					for i, ref := range refs {
						holds(t, into, ref, all[i], 1)
					}
					if got := leased(t, into, "L"); len(got) != len(refs) {
						t.Errorf("the lease holds %d blobs, not %d", len(got), len(refs))
					}
					noIngests(t, into)
					again := good(t, to, from, into, refs, lease("L"))
					if again.stats.ChunkBytes != 0 || again.received > 4000 {
						t.Errorf("again: %+v, %d bytes read", again.stats, again.received)
					}
					if to == pull && again.stats.Whole != int64(len(refs)) {
						t.Errorf("%d blobs were found to be whole", again.stats.Whole)
					}
					for i, ref := range refs {
						holds(t, into, ref, all[i], 1)
					}
				})
			}
		}
	}
}

func noIngests(t testing.TB, into *holdfast.DB) {
	t.Helper()
	must(t, into.View(func(tx *holdfast.Tx) error {
		s, err := open(tx)
		if err != nil {
			return err
		}
		for in := range s.Ingests() {
			t.Errorf("ingest %q is left", in.Name)
		}
		return nil
	}))
}

// TestOnlyMissing counts what is sent of a blob of which the receiver has most.
func TestOnlyMissing(t *testing.T) {
	for _, kind := range kinds {
		for _, to := range []direction{push, pull} {
			t.Run(fmt.Sprintf("%s-%d", name(kind), to), func(t *testing.T) {
				from, into := newStore(t, kind), newStore(t, kind)
				big := random(1, 2<<20)
				good(t, to, from, into, put(t, from, big), lease("L"))
				changed := bytes.Clone(big)
				copy(changed[1<<20:], "changed")
				ref := put(t, from, changed)
				out := good(t, to, from, into, ref, lease("L"))
				holds(t, into, ref[0], changed, 1)
				sound(t, into)
				// The root, of which all nodes but a few are there, and one leaf or two.
				if out.received > 40<<10 {
					t.Errorf("%d bytes were read for a changed leaf", out.received)
				}
			})
		}
	}
}

// TestDifferentStores: equal content has other addresses there.
func TestDifferentStores(t *testing.T) {
	for i, kind := range kinds[:3] {
		from, into := newStore(t, kind), newStore(t, kinds[(i+1)%3])
		refs := put(t, from, []byte("x"))
		for _, to := range []direction{push, pull} {
			out := exchange(t, to, from, into, refs, lease("L"), -1)
			if !errors.Is(out.err, ErrDifferentStores) && !errors.Is(out.err, ErrPeer) || !errors.Is(out.serveErr, ErrDifferentStores) {
				t.Errorf("%v and %v", out.err, out.serveErr)
			}
		}
	}
}
