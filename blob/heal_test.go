package blob

import (
	"bytes"
	"fmt"
	"testing"

	"holdfast"
)

// put puts content in one of the ways that there are.
var putWays = map[string]func(s *Store, content []byte) (Ref, error){
	"Put": (*Store).Put,
	"Writer": func(s *Store, content []byte) (Ref, error) {
		w := s.Writer()
		for p := content; len(p) > 0; p = p[min(777, len(p)):] {
			if _, err := w.Write(p[:min(777, len(p))]); err != nil {
				return Ref{}, err
			}
		}
		return w.Commit()
	},
	"Ingest": func(s *Store, content []byte) (Ref, error) {
		in, err := s.Ingest("name", IngestOptions{})
		if err != nil {
			return Ref{}, err
		}
		if _, err := in.Write(content[:len(content)/2]); err != nil {
			return Ref{}, err
		}
		if err := in.Save(); err != nil {
			return Ref{}, err
		}
		if err := s.flush(); err != nil {
			return Ref{}, err
		}
		if _, err := in.Write(content[len(content)/2:]); err != nil {
			return Ref{}, err
		}
		return in.Commit()
	},
	"Retain first": func(s *Store, content []byte) (Ref, error) { // the root is pending then, without bytes
		ref, err := s.Put(content)
		if err == nil {
			err = s.flush()
		}
		if err == nil {
			err = s.Retain(ref)
		}
		if err == nil {
			ref, err = s.Put(content)
		}
		return ref, err
	},
}

// reads is the error of reading a blob whole.
func reads(s *Store, ref Ref, content []byte) error {
	r, err := s.Reader(ref)
	if err != nil {
		return err
	}
	var got bytes.Buffer
	if _, err = r.WriteTo(&got); err == nil && !bytes.Equal(got.Bytes(), content) {
		err = fmt.Errorf("%d bytes are %d others", len(content), got.Len())
	}
	return err
}

// A leaf, or a node, whose entry in the index was gone stayed so for ever when the same content was put
// again: the node above was there, gave it up, and it was not stored, though Put said nothing. It is
// stored, what else names it keeps it, and a repair sets its count right.
func TestPutHealsMissingEntries(t *testing.T) {
	for way, put := range putWays {
		for _, o := range small {
			content := random(1, 300*MinLeafSize+17)
			beside := append(random(1, 260*MinLeafSize), "another"...) // shares nodes and leaves
			db := newStore(t, o)
			var ref, other Ref
			update2(t, db, func(s *Store) {
				ref, other = must2(s.Put(content)), must2(s.Put(beside))
				must(t, s.flush())
				d := &damaged{Store: s, t: t, tree: ref}
				k := ref.key()
				root := must2(s.loadNode(&k))
				for i := range root.count() {
					child, _ := root.child(i)
					switch {
					case i == 1:
						d.unlink(child) // a node
					case child.level > 0:
						n := must2(s.loadNode(&child))
						for j := 0; j < n.count(); j += 7 {
							leaf, _ := n.child(j)
							if _, found, _ := s.lookup(&leaf); found {
								d.unlink(leaf)
							}
						}
					}
				}
			})
			view(t, db, func(s *Store) {
				if reads(s, ref, content) == nil {
					t.Fatal("nothing is damaged")
				}
			})
			update2(t, db, func(s *Store) { must2(put(s, content)) })
			view(t, db, func(s *Store) {
				if err := reads(s, ref, content); err != nil {
					t.Errorf("%s, %v: %v", way, o, err)
				}
			})
			update2(t, db, func(s *Store) { // what has come in is not removed with one that names it
				for range must2(s.Users(other)) {
					must(t, s.Delete(other))
				}
				for more := true; more; {
					_, again, err := s.Collect(1 << 20)
					must(t, err)
					more = again
				}
				if err := reads(s, ref, content); err != nil {
					t.Errorf("%s, %v: after the other was removed: %v", way, o, err)
				}
				_, _ = problems(t, s, CheckOptions{Data: true, Repair: true})
				must(t, checkClean(s, CheckOptions{Data: true}))
				if err := reads(reopened(t, s.tx), ref, content); err != nil {
					t.Errorf("%s, %v: after a repair: %v", way, o, err)
				}
			})
		}
	}
}

// With VerifyStored a put reads what is stored of the same content, and stores again what is damaged,
// whatever it is: no check is needed before it. Without it the index is believed.
func TestPutVerifies(t *testing.T) {
	damage := map[string]func(d *damaged, k chunkKey){
		"lost":    func(d *damaged, k chunkKey) { b, id := d.bytesOf(k); must(d.t, b.Delete(id)) },
		"wrong":   func(d *damaged, k chunkKey) { d.overwrite(k, flip) },
		"short":   func(d *damaged, k chunkKey) { d.overwrite(k, func(p []byte) []byte { return p[:10] }) },
		"another": func(d *damaged, k chunkKey) { d.change(k, func(e *entry) { e.id, e.packed = 1, true }) },
	}
	for name, do := range damage {
		for way, put := range putWays {
			for _, content := range [][]byte{random(1, 100), random(1, MinLeafSize), random(1, 300*MinLeafSize+17)} {
				db := newStore(t, Options{LeafSize: MinLeafSize})
				var ref, first Ref
				update2(t, db, func(s *Store) {
					first = must2(s.Put([]byte("the first of the packs")))
					ref = must2(s.Put(content))
				})
				update2(t, db, func(s *Store) {
					d := &damaged{Store: s, t: t, tree: ref}
					keys := []chunkKey{ref.key()}
					if ref.level > 0 {
						k := ref.key()
						root := must2(s.loadNode(&k))
						low, _ := root.child(0)
						keys = append(keys, low, d.child(0), d.child(9))
					}
					for _, k := range keys {
						do(d, k)
					}
				})
				update2(t, db, func(s *Store) { must2(s.Put(content)) })
				view(t, db, func(s *Store) {
					if reads(s, ref, content) == nil {
						t.Errorf("%s, %s: healed without being asked to", name, way)
					}
				})
				update2(t, db, func(s *Store) {
					s.VerifyStored(true)
					must2(put(s, content))
				})
				update2(t, db, func(s *Store) {
					if err := reads(s, ref, content); err != nil {
						t.Errorf("%s, %s, %d bytes: %v", name, way, len(content), err)
					}
					if err := reads(s, first, []byte("the first of the packs")); err != nil {
						t.Errorf("%s, %s: a bystander: %v", name, way, err)
					}
					_, _ = problems(t, s, CheckOptions{Data: true, Repair: true})
					must(t, checkClean(s, CheckOptions{Data: true}))
				})
			}
		}
	}
}

// Of a store that is sound, VerifyStored stores nothing again.
func TestVerifyStoredOfSound(t *testing.T) {
	for _, o := range small {
		db := newStore(t, o)
		content := random(1, 300*MinLeafSize+17)
		var was int
		var ref Ref
		update(t, db, func(s *Store) { ref = must2(s.Put(content)) })
		view(t, db, func(s *Store) { was = checkStore(t, s) })
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			s.VerifyStored(true)
			for _, put := range putWays {
				must2(put(s, content))
			}
			return nil
		}))
		view(t, db, func(s *Store) {
			if n := checkStore(t, s); n != was {
				t.Errorf("%d chunks, there were %d", n, was)
			}
			must(t, reads(s, ref, content))
		})
	}
}
