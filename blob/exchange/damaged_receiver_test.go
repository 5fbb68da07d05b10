package exchange

import (
	"bytes"
	"errors"
	"testing"

	"holdfast"
	"holdfast/blob"
)

// A receiver met a chunk of its own that was damaged, asked for it again, and then believed its index: the bytes that came were given
// up, and the blob was said to be held that could not be read. What is met is stored again now.
func TestDamagedAtReceiver(t *testing.T) {
	for _, o := range kinds {
		for _, what := range []struct {
			name  string
			size  int
			level uint8
		}{{"leaf", 200, 0}, {"node", 200 << 10, 1}, {"root", 20_000, 1}, {"last leaf", 50_100, 0}} {
			if what.name == "last leaf" && o.Chunking == blob.FastCDC {
				continue // this one is as long as others, and so not read
			}
			for _, to := range []direction{push, pull} {
				t.Run(name(o)+" "+what.name, func(t *testing.T) {
					from, into := newStore(t, o), newStore(t, o)
					content := random(1, what.size)
					refs := put(t, from, content)
					put(t, into, content)
					update(t, into, func(s *blob.Store) error { return s.Delete(refs[0]) }) // what waits for Collect
					spoil(t, into, refs[0].Root(), what.level, what.name == "node")
					good(t, to, from, into, refs, lease("L"))
					holds(t, into, refs[0], content, 1)
					update(t, into, func(s *blob.Store) error { // the damaged bytes are left
						_, err := s.Check(t.Context(), blob.CheckOptions{Data: true, Repair: true}, func(p blob.Problem) error {
							if p.Kind != blob.LeakedBytes {
								t.Error(p)
							}
							return nil
						})
						return err
					})
					sound(t, into)
					holds(t, into, refs[0], content, 1)
				})
			}
		}
	}
}

// spoil changes a byte of the last chunk of that level of a tree, or of the first one below the root.
func spoil(t *testing.T, db *holdfast.DB, root blob.Chunk, level uint8, first bool) {
	t.Helper()
	var stored []byte
	sealed := 0 // the length of its frame in an encrypted store, where no other chunk has that
	view(t, db, func(s *blob.Store) error {
		for c := root; ; {
			p, err := s.Chunk(c.Address, c.Level)
			if err != nil {
				return err
			}
			if stored = bytes.Clone(p); c.Level == level && (!first || c != root) {
				if key := s.Options().Key; key != nil && level == 0 {
					sealed = 1 + len(p) + key.Overhead()
				}
				return nil
			}
			v, err := s.Options().VerifyChunk(c, p)
			if err != nil {
				return err
			}
			children := v.Children()
			if c = children[len(children)-1]; first {
				c = children[0]
			}
		}
	})
	must(t, db.Update(func(tx *holdfast.Tx) error {
		for _, name := range []string{"packs", "leaves"} {
			b := tx.Bucket(storeName).Bucket([]byte(name))
			for k, v := range b.All() {
				if bytes.Equal(v, stored) || len(v) == sealed {
					v = bytes.Clone(v)
					v[len(v)/2] ^= 1
					return b.Put(k, v)
				}
			}
		}
		return errors.New("there is no such chunk")
	}))
}

// A store that was served had one blob whose root was damaged. A Pull of all its blobs got none of them: the listing failed. It gets the
// others now, and the error.
func TestPullAllOfDamaged(t *testing.T) {
	from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
	contents := [][]byte{random(1, 100), random(2, 200<<10), random(4, 5000), random(5, 50<<10)}
	refs := put(t, from, contents...)
	spoil(t, from, refs[2].Root(), 1, false)
	o := lease("L")
	o.All = true
	out := exchange(t, pull, from, into, nil, o, -1)
	if !errors.Is(out.err, ErrPeer) || !errors.Is(out.serveErr, blob.ErrCorrupt) || out.stats.Blobs != 3 {
		t.Errorf("%v, %v, %+v", out.err, out.serveErr, out.stats)
	}
	for i, ref := range refs {
		if i != 2 {
			holds(t, into, ref, contents[i], 1)
		}
	}
	sound(t, into)
}
