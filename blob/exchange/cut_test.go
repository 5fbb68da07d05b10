package exchange

import (
	"bytes"
	"fmt"
	"testing"

	"holdfast"
	"holdfast/blob"
)

// TestCut breaks the connection after so many bytes, for many numbers. Each state that this leaves is sound, and
// resumed: all in all little more is sent than once.
func TestCut(t *testing.T) {
	smallBounds(t, 6000, 12_000, 2500)
	for _, kind := range kinds {
		for _, to := range []direction{push, pull} {
			t.Run(fmt.Sprintf("%s-%d", name(kind), to), func(t *testing.T) {
				from := newStore(t, kind)
				all := [][]byte{random(1, 160<<10), random(2, 3000), []byte("short"), nil, random(3, 20_000)}
				refs := put(t, from, all...)
				whole := good(t, to, from, newStore(t, kind), refs, lease("L")).received
				step := max(whole/40, 1)
				if testing.Short() {
					step = whole / 8
				}
				for at := int64(0); at < whole; at += step {
					cutAt(t, kind, to, from, refs, all, at, whole)
				}
			})
		}
	}
}

func cutAt(t *testing.T, kind blob.Options, to direction, from *holdfast.DB, refs []blob.Ref, all [][]byte, at, whole int64) {
	t.Helper()
	into := newStore(t, kind)
	out := exchange(t, to, from, into, refs, lease("L"), at)
	if out.err == nil || to == push && out.serveErr == nil {
		t.Fatalf("cut after %d of %d bytes: no error: %v, %v", at, whole, out.err, out.serveErr)
	}
	sound(t, into)
	again := good(t, to, from, into, refs, lease("L"))
	for i, ref := range refs {
		holds(t, into, ref, all[i], 1)
	}
	sound(t, into)
	noIngests(t, into)
	// Of what had arrived a leaf is sent again that was cut through, the path to it, and greetings and references.
	const besides = 14 << 10
	if again.received > whole-at+besides {
		t.Errorf("cut after %d of %d bytes: %d are sent again", at, whole, again.received-(whole-at))
	}
	if again.stats.Blobs != int64(len(refs)) {
		t.Errorf("%+v", again.stats)
	}
}

// TestCutAgainAndAgain: progress is made however short the connections are, as long as a piece fits.
func TestCutAgainAndAgain(t *testing.T) {
	smallBounds(t, 6000, 12_000, 2500)
	for _, kind := range kinds {
		from, into := newStore(t, kind), newStore(t, kind)
		content := random(1, 400<<10)
		refs := put(t, from, content)
		for i := 0; ; i++ {
			out := exchange(t, push, from, into, refs, lease("L"), 40_000)
			if out.err == nil {
				break
			}
			if sound(t, into); i == 40 {
				t.Fatalf("%s: not received after %d connections", name(kind), i)
			}
		}
		holds(t, into, refs[0], content, 1)
		sound(t, into)
	}
}

// TestAbandoned: what an exchange has left that is never resumed is collected when it has expired, and not before.
func TestAbandoned(t *testing.T) {
	smallBounds(t, 6000, 12_000, 2500)
	kind := kinds[0]
	from, into := newStore(t, kind), newStore(t, kind)
	refs := put(t, from, random(1, 100<<10))
	exchange(t, push, from, into, refs, lease("L"), 50_000)
	if n := chunks(t, into); n < 40 {
		t.Fatalf("%d chunks are stored of half a blob", n)
	}
	collect(t, into)
	if n := chunks(t, into); n < 40 {
		t.Errorf("%d chunks are left after a collection", n)
	}
	update(t, into, func(s *blob.Store) error {
		for in, err := range s.Ingests() {
			if err != nil {
				return err
			}
			if life := in.Expires.Sub(in.Saved); life != DefaultKeep {
				t.Errorf("it is kept for %v", life)
			}
			g, err := s.Ingest(in.Name, blob.IngestOptions{})
			if err != nil {
				return err
			}
			return g.Abort()
		}
		return nil
	})
	collect(t, into)
	if n := chunks(t, into); n != 0 {
		t.Errorf("%d chunks are left of what was abandoned", n)
	}
	sound(t, into)
}

func chunks(t *testing.T, db *holdfast.DB) (n int64) {
	t.Helper()
	view(t, db, func(s *blob.Store) error {
		u, err := s.Usage()
		n = u.Leaves + u.Nodes
		return err
	})
	return n
}

func collect(t *testing.T, db *holdfast.DB) {
	t.Helper()
	_, err := blob.Collect(t.Context(), db, open, blob.CollectOptions{})
	must(t, err)
}

// TestHistory has two stores put, change, delete, collect, and exchange both ways, with cuts in between. Both are sound
// after each.
func TestHistory(t *testing.T) {
	smallBounds(t, 8000, 16_000, 3000)
	for seed := range uint64(6) {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s-%d", name(kind), seed), func(t *testing.T) { history(t, kind, seed) })
		}
	}
}

func history(t *testing.T, kind blob.Options, seed uint64) {
	dice := random(100+seed, 400)
	roll := func(n int) int {
		d := int(dice[0])<<8 | int(dice[1])
		dice = dice[2:]
		return d % n
	}
	dbs := [2]*holdfast.DB{newStore(t, kind), newStore(t, kind)}
	var live [2][]blob.Ref // each as often as it was put
	contents := map[blob.Ref][]byte{}
	var last []byte
	for range 25 {
		at := roll(2)
		db, other := dbs[at], dbs[1-at]
		switch roll(5) {
		case 0: // a new one
			last = random(seed<<8|uint64(len(contents)), roll(60_000))
		case 1: // the last one changed
			last = bytes.Clone(last)
			if i := roll(len(last) + 1); roll(2) == 0 {
				last = append(last[:i:i], append([]byte("inserted"), last[i:]...)...)
			} else if i < len(last) {
				last[i]++
			}
		case 2:
			if n := len(live[at]); n > 0 {
				i := roll(n)
				update(t, db, func(s *blob.Store) error { return s.Delete(live[at][i]) })
				live[at] = append(live[at][:i], live[at][i+1:]...)
			}
			if roll(2) == 0 {
				collect(t, db)
			}
			continue
		default:
			to := direction(1 + roll(2))
			if roll(3) == 0 {
				exchange(t, to, db, other, live[at], lease("L"), int64(roll(60_000)))
			} else {
				good(t, to, db, other, live[at], lease("L"))
				for _, ref := range live[at] {
					if !leased(t, other, "L")[ref] {
						t.Fatalf("blob %v is not held", ref)
					}
				}
			}
			sound(t, dbs[0], live[0]...)
			sound(t, dbs[1], live[1]...)
			continue
		}
		ref := put(t, db, last)[0]
		live[at] = append(live[at], ref)
		contents[ref] = last
	}
	released(t, dbs, live, contents)
}

// released releases the lease in both stores; what is left is what was put.
func released(t *testing.T, dbs [2]*holdfast.DB, live [2][]blob.Ref, contents map[blob.Ref][]byte) {
	t.Helper()
	for i, db := range dbs {
		for ref := range leased(t, db, "L") {
			n := uint64(1)
			for _, l := range live[i] {
				if l == ref {
					n++
				}
			}
			holds(t, db, ref, contents[ref], n)
		}
		update(t, db, func(s *blob.Store) error {
			l, err := s.Lease("L", lease("").Expires)
			if err != nil {
				return err
			}
			return l.Release()
		})
		collect(t, db)
		sound(t, db, live[i]...)
	}
}
