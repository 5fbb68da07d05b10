package exchange

import (
	"bytes"
	"errors"
	"strings"
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

// A blob whose one leaf a repair had discarded, or whose root was damaged, was there for an exchange: nothing came, and the lease held
// what could not be read. It comes again.
func TestLostAtReceiver(t *testing.T) {
	for _, o := range kinds {
		for level, size := range []int{200, 20_000} {
			from, into := newStore(t, o), newStore(t, o)
			content := random(1, size)
			refs := put(t, from, content)
			put(t, into, content)
			spoil(t, into, refs[0].Root(), uint8(level), false)
			repair := func(want blob.ProblemKind) {
				update(t, into, func(s *blob.Store) error {
					_, err := s.Check(t.Context(), blob.CheckOptions{Data: true, Repair: true, Discard: true}, func(p blob.Problem) error {
						if p.Kind != want {
							t.Error(p)
						}
						return nil
					})
					return err
				})
			}
			if level == 0 {
				repair(blob.WrongContent)
			}
			if out := good(t, push, from, into, refs, lease("L")); out.stats.Chunks == 0 || out.stats.Whole > 0 {
				t.Errorf("%s, %d bytes: %+v", name(o), size, out.stats)
			}
			if level > 0 {
				repair(blob.LeakedBytes) // those that were damaged
			}
			sound(t, into, refs...) // the user of put
			holds(t, into, refs[0], content, 2)
		}
	}
}

// The bytes of a node were missing where the receiver's index said that they are, which is no damage that a repair had met. The node came, the
// index was believed, and its bytes were given up: of a root that ended the exchange, and other blobs did not come; of a node below, and of a
// last leaf, the blob was said to be held that could not be read.
func TestMissingAtReceiver(t *testing.T) {
	for _, o := range kinds {
		for _, what := range []struct {
			name  string
			size  int
			level uint8
		}{{"root", 20_000, 1}, {"node", 200 << 10, 1}, {"last leaf", 50_100, 0}} {
			if what.name == "last leaf" && o.Chunking == blob.FastCDC {
				continue // this one is as long as others, and so not read
			}
			for _, to := range []direction{push, pull} {
				t.Run(name(o)+" "+what.name, func(t *testing.T) {
					from, into := newStore(t, o), newStore(t, o)
					contents := [][]byte{random(1, what.size), random(2, 30_000)}
					refs := put(t, from, contents...)
					put(t, into, contents[0])
					users := uint64(2)
					if what.name != "root" {
						update(t, into, func(s *blob.Store) error { return s.Delete(refs[0]) }) // what waits for Collect
						users = 1
					}
					alter(t, into, refs[0].Root(), what.level, what.name == "node", func(b *holdfast.Bucket, k, _ []byte) error { return b.Delete(k) })
					good(t, to, from, into, refs, lease("L"))
					sound(t, into, refs[:users-1]...)
					holds(t, into, refs[0], contents[0], users)
					holds(t, into, refs[1], contents[1], 1)
				})
			}
		}
	}
}

// A blob that a repair had discarded was given twice, and the peer did not have it. The second time it was said to be held; a tree ended the
// exchange, and other blobs did not come.
func TestLostTwice(t *testing.T) {
	for level, size := range []int{200, 20_000} {
		for _, to := range []direction{push, pull} {
			from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
			other := random(2, 30_000)
			lost, more := put(t, into, random(1, size))[0], put(t, from, other)[0]
			spoil(t, into, lost.Root(), uint8(level), false)
			update(t, into, func(s *blob.Store) error {
				_, err := s.Check(t.Context(), blob.CheckOptions{Data: true, Repair: true, Discard: true}, nil)
				return err
			})
			out := exchange(t, to, from, into, []blob.Ref{lost, lost, more}, lease("L"), -1)
			if out.err == nil || out.serveErr != nil || out.stats.Blobs != 1 || out.stats.Failed != 2 || leased(t, into, "L")[lost] {
				t.Errorf("%v, %v, %+v", out.err, out.serveErr, out.stats)
			}
			holds(t, into, more, other, 1)
		}
	}
}

// TestVerify: with Verify leaves and nodes deep in a blob that is there come again if they are damaged, or lost, and nothing else does.
func TestVerify(t *testing.T) {
	for _, o := range kinds {
		for _, what := range []string{"nothing", "leaf", "lost leaf", "node"} {
			t.Run(name(o)+" "+what, func(t *testing.T) {
				from, into := newStore(t, o), newStore(t, o)
				contents := [][]byte{random(1, 200<<10), random(2, 100)}
				refs := put(t, from, contents...)
				put(t, into, contents...)
				repair := func(discard bool) {
					update(t, into, func(s *blob.Store) error {
						_, err := s.Check(t.Context(), blob.CheckOptions{Data: true, Repair: true, Discard: discard}, func(p blob.Problem) error { return nil })
						return err
					})
				}
				want := int64(1)
				switch what {
				case "nothing":
					want = 0
				case "node":
					spoil(t, into, refs[0].Root(), 1, true)
				default:
					spoil(t, into, refs[0].Root(), 0, true)
				}
				if what == "lost leaf" {
					repair(true)
				}
				options := lease("L")
				options.Verify = true
				out := exchange(t, pull, from, into, refs, options, -1)
				if out.err != nil || out.serveErr != nil || out.stats.Blobs != 2 || out.stats.Chunks != want || out.stats.Transactions != 1 {
					t.Errorf("%v, %v, %+v", out.err, out.serveErr, out.stats)
				}
				repair(false) // takes off the damaged bytes
				sound(t, into, refs...)
				for i, ref := range refs {
					holds(t, into, ref, contents[i], 2)
				}
			})
		}
	}
}

// An exchange that had believed the index was cut, and one with Verify went on from there: what the first had found in the store was not read, and
// the blob was said to be held that could not be read. With Verify it is gone through from its beginning, and what has arrived does not come again.
func TestVerifyAfterCut(t *testing.T) {
	smallBounds(t, 16<<10, 32<<10, 4<<10)
	for _, o := range kinds {
		for _, to := range []direction{push, pull} {
			from, into := newStore(t, o), newStore(t, o)
			content := random(1, 200<<10)
			refs := put(t, from, content)
			begin := put(t, into, content[:64<<10])
			spoil(t, into, begin[0].Root(), 0, true)
			options := lease("L")
			const limit = 100_000
			if out := exchange(t, to, from, into, refs, options, limit); out.err == nil {
				t.Fatal("it was not cut")
			}
			options.Verify = true
			if out := good(t, to, from, into, refs, options); out.received > int64(len(content)-64<<10-limit)+60_000 {
				t.Errorf("%s: %d bytes came again", name(o), out.received)
			}
			holds(t, into, refs[0], content, 1)
			update(t, into, func(s *blob.Store) error { // the damaged bytes are left
				_, err := s.Check(t.Context(), blob.CheckOptions{Data: true, Repair: true}, nil)
				return err
			})
			sound(t, into, begin...)
		}
	}
}

// An ingest of another program under the name of one of the exchange, or one whose state is damaged, ended the exchange, and no
// other blob came. It is the error of its blob.
func TestForeignIngest(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		for _, to := range []direction{push, pull} {
			from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
			contents := [][]byte{random(1, 50_000), random(2, 60_000), random(3, 70_000)}
			refs := put(t, from, contents...)
			text, _ := refs[1].AppendText(nil)
			other := ingestName("L", string(text))
			update(t, into, func(s *blob.Store) error {
				in, err := s.Ingest(other, blob.IngestOptions{WholeDigest: true})
				if err == nil {
					_, err = in.Write(contents[2][:10_000])
				}
				return errors.Join(err, in.Save())
			})
			if damaged {
				must(t, into.Update(func(tx *holdfast.Tx) error {
					return tx.Bucket(storeName).Bucket([]byte("ingests")).Bucket([]byte(other)).Put([]byte("state"), []byte{9, 9})
				}))
			}
			out := exchange(t, to, from, into, refs, lease("L"), -1)
			if out.err == nil || !strings.Contains(out.err.Error(), "with Abort") || out.serveErr != nil || out.stats.Blobs != 2 || out.stats.Failed != 1 {
				t.Errorf("damaged %v: %v, %v, %+v", damaged, out.err, out.serveErr, out.stats)
			}
			holds(t, into, refs[0], contents[0], 1)
			holds(t, into, refs[2], contents[2], 1)
			if !damaged {
				sound(t, into)
			}
		}
	}
}

// spoil changes a byte of the last chunk of that level of a tree, or of the first one below the root.
func spoil(t *testing.T, db *holdfast.DB, root blob.Chunk, level uint8, first bool) {
	t.Helper()
	alter(t, db, root, level, first, func(b *holdfast.Bucket, k, v []byte) error {
		v = bytes.Clone(v)
		v[len(v)/2] ^= 1
		return b.Put(k, v)
	})
}

// alter calls fn with the bytes of such a chunk.
func alter(t *testing.T, db *holdfast.DB, root blob.Chunk, level uint8, first bool, fn func(b *holdfast.Bucket, k, v []byte) error) {
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
					return fn(b, k, v)
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
