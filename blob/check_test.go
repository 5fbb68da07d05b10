package blob

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast"
)

// damaged is a store with some of everything, to be damaged.
type damaged struct {
	*Store
	t     testing.TB
	refs  []Ref // with a user each
	short Ref   // a leaf in a pack
	tree  Ref   // of two levels
	dead  Ref   // deleted and not collected
}

// whereabouts is in which of the buckets of the index the chunks of a store are.
type whereabouts string

const (
	inIndex   whereabouts = "index"
	inTheNew  whereabouts = "recent"
	inEither  whereabouts = "both"
	farChunks             = 16383 // so many in the large bucket that nothing is moved to it by the few of a test
)

var placings = []whereabouts{inIndex, inTheNew, inEither}

// someStore fills a store: the same in each test.
func someStore(t testing.TB, s *Store, where whereabouts) *damaged {
	d := &damaged{Store: s, t: t}
	if where == inTheNew {
		must(t, s.came(farChunks))
	}
	put := func(p []byte) Ref {
		ref := value(t, must2(s.Put(p)), nil)
		d.refs = append(d.refs, ref)
		return ref
	}
	d.short = put(random(1, 100))
	d.tree = put(random(2, 130*MinLeafSize+17))
	put(random(3, MinLeafSize))
	put(random(3, MinLeafSize)) // twice
	if where == inEither {
		must(t, s.flush())
		must(t, s.came(farChunks))
	}
	put(random(2, 200*MinLeafSize))
	put(random(2, 9*MinLeafSize)[3*MinLeafSize:])
	d.dead = value(t, must2(s.Put(random(4, 3*MinLeafSize))), nil)
	must(t, s.Delete(d.dead))
	l := value(t, must2(s.Lease("lease", time.Time{})), nil)
	must(t, l.Add(d.short))
	in := value(t, must2(s.Ingest("ingest", IngestOptions{WholeDigest: true})), nil)
	if _, err := in.Write(random(5, 5*MinLeafSize+5)); err != nil {
		t.Fatal(err)
	}
	must(t, in.Save())
	w := s.Writer()
	w.Digest(true)
	if _, err := w.Write(random(6, 4*MinLeafSize)); err != nil {
		t.Fatal(err)
	}
	d.refs = append(d.refs, value(t, must2(w.Commit()), nil))
	must(t, s.finish()) // the ingest as a later transaction finds it
	return d
}

func (d *damaged) roots() iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for _, ref := range d.refs {
			if !yield(ref, nil) {
				return
			}
		}
	}
}

func (d *damaged) entry(k chunkKey) entry {
	e, ok, err := d.lookup(&k)
	must(d.t, err)
	if !ok {
		d.t.Fatalf("chunk %v is not there", k)
	}
	return e
}

// change changes the entry of a chunk, as no call of the package would.
func (d *damaged) change(k chunkKey, change func(e *entry)) {
	e := d.entry(k)
	change(&e)
	must(d.t, d.putEntry(&k, &e))
}

// child is a child of the tree.
func (d *damaged) child(i int) chunkKey {
	k := d.tree.key()
	n := value(d.t, must2(d.loadNode(&k)), nil)
	low, _ := n.child(0)
	if low.level > 0 {
		n = value(d.t, must2(d.loadNode(&low)), nil)
	}
	k, _ = n.child(i)
	return k
}

func (d *damaged) bytesOf(k chunkKey) (*holdfast.Bucket, []byte) {
	e := d.entry(k)
	return d.bytesBucket(e.packed), binary.BigEndian.AppendUint64(nil, e.id)
}

func (d *damaged) overwrite(k chunkKey, change func(p []byte) []byte) {
	b, id := d.bytesOf(k)
	must(d.t, b.Put(id, change(slices.Clone(b.Get(id)))))
}

func (d *damaged) unlink(k chunkKey) {
	key := k.encode()
	must(d.t, d.at(key[:]).Delete(key[:]))
}

func flip(p []byte) []byte { p[len(p)/2] ^= 1; return p }

// storeDamages are kinds of damage, what Check finds, and what it still finds behind a repair.
var storeDamages = []struct {
	name  string
	do    func(d *damaged)
	found []ProblemKind
	left  []ProblemKind
}{
	{"sound", func(*damaged) {}, nil, nil},
	{"in both buckets of the index", func(d *damaged) {
		k := d.child(3)
		e := d.entry(k)
		key := k.encode()
		recent := value(d.t, must2(d.makeFresh()), nil)
		must(d.t, d.index.Put(key[:], e.append(nil)))
		e.users = 7
		must(d.t, recent.Put(key[:], e.append(nil)))
	}, kinds(Malformed), nil},
	{"malformed in recent", func(d *damaged) {
		recent := value(d.t, must2(d.makeFresh()), nil)
		must(d.t, recent.Put([]byte("key"), []byte{0}))
	}, kinds(Malformed), nil},
	{"parents too low", func(d *damaged) { d.change(d.child(3), func(e *entry) { e.parents = 1 }) }, kinds(WrongParents), nil},
	{"parents too high", func(d *damaged) { d.change(d.child(3), func(e *entry) { e.parents = 9 }) }, kinds(WrongParents), nil},
	{"parents zero", func(d *damaged) { d.change(d.child(3), func(e *entry) { e.parents = 0 }) }, kinds(WrongParents, WrongMark), nil},
	{"users too low", func(d *damaged) { d.change(d.tree.key(), func(e *entry) { e.users = 0 }) }, kinds(WrongUsers, WrongMark), nil},
	{"users too high", func(d *damaged) { d.change(d.tree.key(), func(e *entry) { e.users = 2 }) }, kinds(WrongUsers), nil},
	{"leases too low", func(d *damaged) { d.change(d.short.key(), func(e *entry) { e.leased = 0 }) }, kinds(WrongUsers), nil},
	{"leases too high", func(d *damaged) { d.change(d.tree.key(), func(e *entry) { e.leased = 1 }) }, kinds(WrongUsers), nil},
	{"leases without users", func(d *damaged) { d.change(d.dead.key(), func(e *entry) { e.leased = 1 }) }, kinds(WrongUsers), nil},
	{"mark missing", func(d *damaged) { must(d.t, setMark(d, d.dead.key(), false)) }, kinds(WrongMark), nil},
	{"mark of the living", func(d *damaged) { must(d.t, setMark(d, d.tree.key(), true)) }, kinds(WrongMark), nil},
	{"mark of nothing", func(d *damaged) { must(d.t, setMark(d, chunkKey{addr: Address{9}}, true)) }, kinds(WrongMark), nil},
	{"mark of no key", func(d *damaged) { must(d.t, d.Store.dead.Put([]byte("x"), []byte{})) }, kinds(Malformed), nil},
	{"bytes leaked", func(d *damaged) {
		must(d.t, d.leaves.Put(nextID(d.leaves), random(77, MinLeafSize)))
		must(d.t, d.packs.Put(nextID(d.packs), random(78, 50)))
	}, kinds(LeakedBytes, LeakedBytes), nil},
	{"copy of bytes leaked", func(d *damaged) {
		b, id := d.bytesOf(d.short.key())
		must(d.t, b.Put(nextID(b), b.Get(id)))
	}, kinds(LeakedBytes), nil},
	{"entry of a leaf lost", func(d *damaged) { d.unlink(d.child(0)) }, kinds(LeakedBytes, MissingChunk), nil},
	{"entry of a node lost", func(d *damaged) { d.unlink(d.tree.key()) },
		kinds(LeakedBytes, MissingChunk, WrongParents, WrongParents), nil},
	{"bytes of a leaf lost", func(d *damaged) {
		b, id := d.bytesOf(d.child(0))
		must(d.t, b.Delete(id))
	}, kinds(MissingBytes), kinds(MissingBytes)},
	{"bytes of a leaf moved", func(d *damaged) {
		b, id := d.bytesOf(d.child(0))
		p := slices.Clone(b.Get(id))
		must(d.t, b.Delete(id))
		must(d.t, b.Put(nextID(b), p))
	}, kinds(MissingBytes, LeakedBytes), nil},
	{"bytes of a node lost", func(d *damaged) {
		b, id := d.bytesOf(d.tree.key())
		must(d.t, b.Delete(id))
	}, kinds(MissingBytes), kinds(MissingBytes)},
	{"bytes of a dead leaf lost", func(d *damaged) {
		ref := putDead(d.t, d.Store, random(80, 10))
		b, id := d.bytesOf(ref.key())
		must(d.t, b.Delete(id))
	}, kinds(MissingBytes), nil},
	{"content of a leaf", func(d *damaged) { d.overwrite(d.child(1), flip) }, kinds(WrongContent), kinds(WrongContent)},
	{"content of a node", func(d *damaged) { d.overwrite(d.tree.key(), flip) }, kinds(WrongContent), kinds(WrongContent)},
	{"content of a dead node", func(d *damaged) { d.overwrite(d.dead.key(), flip) },
		kinds(WrongContent, WrongParents, WrongParents, WrongParents), nil},
	{"bytes cut off", func(d *damaged) { d.overwrite(d.short.key(), func(p []byte) []byte { return p[:50] }) },
		kinds(WrongLength, WrongContent), kinds(WrongLength, WrongContent)},
	{"length in the index", func(d *damaged) { d.change(d.short.key(), func(e *entry) { e.length = 3 }) }, kinds(WrongLength), nil},
	{"length of a leaf in the index", func(d *damaged) { d.change(d.child(1), func(e *entry) { e.length = 3 }) },
		kinds(WrongLength, WrongLength), nil},
	{"two chunks with the same bytes", func(d *damaged) {
		first := d.entry(d.child(0))
		d.change(d.child(1), func(e *entry) { e.id = first.id })
	}, kinds(SharedBytes, LeakedBytes), nil},
	{"leaf and node with the same bytes", func(d *damaged) {
		k := d.tree.key()
		e := d.entry(k)
		e.parents, e.users = 0, 1
		must(d.t, d.putEntry(&chunkKey{addr: k.addr}, &e))
		d.refs = append(d.refs, d.Store.ref(chunkKey{addr: k.addr}, int64(e.length)))
	}, kinds(SharedBytes), nil},
	{"malformed entry", func(d *damaged) {
		k := d.child(2)
		key := k.encode()
		must(d.t, d.at(key[:]).Put(key[:], []byte("malformed")))
	}, kinds(Malformed, LeakedBytes, MissingChunk), nil},
	{"malformed key of the index", func(d *damaged) { must(d.t, d.index.Put([]byte("key"), []byte{0})) }, kinds(Malformed), nil},
	{"malformed id", func(d *damaged) { must(d.t, d.packs.Put([]byte("key"), []byte{0})) }, kinds(Malformed), kinds(Malformed)},
	{"counter of ids", func(d *damaged) { must(d.t, d.leaves.SetSequence(1)) }, kinds(Malformed), nil},
	{"foreign key", func(d *damaged) { must(d.t, d.bucket.Put([]byte("key"), []byte{0})) }, kinds(Malformed), kinds(Malformed)},
	{"lease of a missing blob", func(d *damaged) { must(d.t, lease(d).b.Put(make([]byte, keySize), []byte{1})) }, kinds(MissingChunk), nil},
	{"lease with a malformed key", func(d *damaged) { must(d.t, lease(d).b.Put([]byte("key"), []byte{1})) }, kinds(Malformed), nil},
	{"lease without end", func(d *damaged) { must(d.t, lease(d).b.Put(expiresName, []byte{1})) }, kinds(Malformed), nil},
	{"lease that is not a bucket", func(d *damaged) { must(d.t, d.bucket.Bucket(leasesName).Put([]byte("x"), nil)) }, kinds(Malformed), nil},
	{"lease lost", func(d *damaged) { must(d.t, d.bucket.Bucket(leasesName).DeleteBucket([]byte("lease"))) }, kinds(WrongUsers), nil},
	{"ingest malformed", func(d *damaged) { must(d.t, ingest(d).Put(stateName, []byte{1})) },
		append(kinds(Malformed), slices.Repeat(kinds(WrongParents), 5)...), nil},
	{"ingest without its rest", func(d *damaged) { must(d.t, ingest(d).Delete(tailName)) },
		append(kinds(Malformed), slices.Repeat(kinds(WrongParents), 5)...), nil},
	{"ingest of a missing chunk", func(d *damaged) {
		k := chunkKey{addr: d.options.sum(random(5, 5*MinLeafSize+5)[:MinLeafSize])}
		b, id := d.bytesOf(k)
		must(d.t, b.Delete(id))
		d.unlink(k)
	}, kinds(MissingChunk), nil},
	{"digest of nothing", func(d *damaged) {
		p := value(d.t, must2(d.Store.ref(chunkKey{Address{1}, 2}, 1<<20).MarshalBinary()), nil)
		must(d.t, d.bucket.Bucket(digestsName).Put(make([]byte, 32), p))
	}, kinds(WrongDigest), nil},
	{"digest of another blob", func(d *damaged) {
		p := value(d.t, must2(d.tree.MarshalBinary()), nil)
		must(d.t, d.bucket.Bucket(digestsName).Put(make([]byte, 32), p))
	}, kinds(WrongDigest), nil},
	{"malformed digest", func(d *damaged) { must(d.t, d.bucket.Bucket(digestsName).Put([]byte("x"), nil)) }, kinds(WrongDigest), nil},
}

func kinds(k ...ProblemKind) []ProblemKind { return k }

func setMark(d *damaged, k chunkKey, dead bool) error { return d.Store.setMark(&k, dead) }

func nextID(b *holdfast.Bucket) []byte {
	id, err := b.NextSequence()
	if err != nil {
		panic(err)
	}
	return binary.BigEndian.AppendUint64(nil, id)
}

func lease(d *damaged) *Lease {
	return &Lease{d.Store, "lease", d.bucket.Bucket(leasesName).Bucket([]byte("lease"))}
}

func ingest(d *damaged) *holdfast.Bucket {
	return d.bucket.Bucket(ingestsName).Bucket([]byte("ingest"))
}

// problems are those of a check, by kind.
func problems(t testing.TB, s *Store, o CheckOptions) (found []ProblemKind, text string) {
	t.Helper()
	stats, err := s.Check(context.Background(), o, func(p Problem) error {
		found = append(found, p.Kind)
		text += p.String() + "\n"
		return nil
	})
	must(t, err)
	if stats.Problems != int64(len(found)) {
		t.Errorf("%d problems, told of %d", stats.Problems, len(found))
	}
	return found, text
}

// Each damage is found, for what it is, whatever the memory; and a repair mends it as far
// as it can be mended, so that all content that was sound still is.
func TestCheckDamage(t *testing.T) {
	for i := range len(placings) * len(storeDamages) {
		where, damage := placings[i%len(placings)], storeDamages[i/len(placings)]
		t.Run(damage.name+"/"+string(where), func(t *testing.T) {
			db := newStore(t, Options{LeafSize: MinLeafSize})
			must(t, db.Update(func(tx *holdfast.Tx) error {
				s := openIn(tx)
				d := someStore(t, s, where)
				before := readable(d)
				damage.do(d)
				sound := readable(d)
				if len(before) != len(d.refs) && damage.name == "sound" {
					t.Errorf("%d blobs of %d can be read", len(before), len(d.refs))
				}
				slices.Sort(damage.found)
				for _, memory := range []int{0, 200, 3000} {
					found, text := problems(t, reopened(t, tx), CheckOptions{Data: true, Roots: d.roots(), Memory: memory})
					if slices.Sort(found); !slices.Equal(found, damage.found) {
						t.Errorf("memory %d: found %v, want %v:\n%s", memory, found, damage.found, text)
					}
				}
				_, mended := problems(t, reopened(t, tx), CheckOptions{Data: true, Roots: d.roots(), Repair: true, Memory: 3000})
				found, text := problems(t, reopened(t, tx), CheckOptions{Data: true, Roots: d.roots()})
				slices.Sort(damage.left)
				if slices.Sort(found); !slices.Equal(found, damage.left) {
					t.Errorf("behind the repair: found %v, want %v:\n%s\nthe repair:\n%s", found, damage.left, text, mended)
				}
				d.Store = reopened(t, tx)
				after := readable(d)
				for _, ref := range sound {
					if !slices.Contains(after, ref) {
						t.Errorf("blob %s is lost", ref)
					}
				}
				if damage.left == nil && len(after) != len(d.refs) {
					t.Errorf("%d of %d blobs can be read", len(after), len(d.refs))
				}
				return nil
			}))
		})
	}
}

// reopened is another Store: it does not remember what was verified.
func reopened(t testing.TB, tx *holdfast.Tx) *Store {
	t.Helper()
	return inChunks(value(t, must2(openAny(tx.Bucket(storeName))), nil))
}

// readable are the blobs that can be read whole.
func readable(d *damaged) (refs []string) {
	s := reopened(d.t, d.tx)
	for i, ref := range d.refs {
		r, err := s.Reader(ref)
		if err != nil {
			continue
		}
		if _, err := r.WriteTo(discard{}); err == nil {
			refs = append(refs, fmt.Sprint(i, ref))
		}
	}
	return refs
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// What a repair could not mend heals when the same content is put again, whatever was lost
// or wrong: leaves, nodes, the root, short blobs; and the counts are right.
func TestRepairHeals(t *testing.T) {
	whole := [][]byte{random(1, 100), random(2, 130*MinLeafSize+17), random(3, MinLeafSize)}
	damage := map[string]func(d *damaged, k chunkKey){
		"lost": func(d *damaged, k chunkKey) {
			b, id := d.bytesOf(k)
			must(d.t, b.Delete(id))
		},
		"wrong": func(d *damaged, k chunkKey) { d.overwrite(k, flip) },
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			db := newStore(t, Options{LeafSize: MinLeafSize})
			var d *damaged
			must(t, db.Update(func(tx *holdfast.Tx) error {
				d = someStore(t, openIn(tx), inEither)
				root := value(t, must2(d.loadNode(&chunkKey{d.tree.addr, d.tree.level})), nil)
				low, _ := root.child(0)
				keys := []chunkKey{d.child(0), d.child(5), low, d.tree.key(), d.short.key(), d.refs[2].key()}
				for _, k := range keys {
					do(d, k)
				}
				found, text := problems(t, reopened(t, tx), CheckOptions{Data: true, Roots: d.roots(), Repair: true, Discard: true})
				if len(found) != len(keys) {
					t.Errorf("found %v", found)
				}
				if n := strings.Count(text, " (deleted)"); name == "wrong" != (n == len(keys)) || name == "lost" != (n == 0) {
					t.Errorf("%d of %d are said to be deleted: %s", n, len(keys), text)
				}
				found, _ = problems(t, reopened(t, tx), CheckOptions{Data: true, Roots: d.roots()})
				if !slices.Equal(found, slices.Repeat(kinds(MissingBytes), len(keys))) {
					t.Errorf("behind the repair: %v", found)
				}
				return nil
			}))
			update(t, db, func(s *Store) {
				for i, p := range whole {
					ref := must2(s.Put(p))
					d.refs = append(d.refs, ref)
					if i%2 == 0 {
						must(t, s.flush())
					}
				}
			})
			must(t, db.View(func(tx *holdfast.Tx) error {
				d.Store = openIn(tx)
				must(t, checkClean(d.Store, CheckOptions{Data: true, Roots: d.roots()}))
				if n := len(readable(d)); n != len(d.refs) {
					t.Errorf("%d of %d blobs can be read", n, len(d.refs))
				}
				return nil
			}))
		})
	}
}

// A blob whose leaf was lost was deleted and put again in one transaction, as who replaces a row does: its
// bytes were not stored, since the batch had met the chunk in the Delete. They are, of short and long
// leaves and of nodes.
func TestDeletedAndPutHeals(t *testing.T) {
	for _, n := range []int{100, MinLeafSize, 3 * MinLeafSize} {
		content := random(1, n)
		db := newStore(t, Options{LeafSize: MinLeafSize})
		var ref Ref
		update(t, db, func(s *Store) { ref = must2(s.Put(content)) })
		must(t, db.Update(func(tx *holdfast.Tx) error {
			d := &damaged{t: t, Store: openIn(tx)}
			b, id := d.bytesOf(ref.key())
			must(t, b.Delete(id))
			problems(t, reopened(t, tx), CheckOptions{Repair: true})
			return nil
		}))
		update(t, db, func(s *Store) {
			must(t, s.Delete(ref))
			must2(s.Put(content))
		})
		view(t, db, func(s *Store) {
			if _, err := must2(s.Reader(ref)).WriteTo(discard{}); err != nil {
				t.Errorf("%d bytes: %v", n, err)
			}
			must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(ref)}))
		})
	}
}

// Without roots, counts of users are not lowered, and what nobody is known to use stays.
func TestCheckWithoutRoots(t *testing.T) {
	update(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		d := someStore(t, s, inEither)
		must(t, checkClean(s, CheckOptions{Data: true}))
		d.change(d.short.key(), func(e *entry) { e.users = 7 })
		must(t, checkClean(s, CheckOptions{}))
		d.change(d.short.key(), func(e *entry) { e.users = 0 })
		found, _ := problems(t, s, CheckOptions{Repair: true})
		if want := kinds(WrongUsers); !slices.Equal(found, want) {
			t.Errorf("found %v, want %v", found, want)
		}
		if e := d.entry(d.short.key()); e.users != 1 { // the lease
			t.Errorf("%d users", e.users)
		}
		d.change(d.short.key(), func(e *entry) { e.users = 2 })
	})
}

// A root that is not there, or of another hash function, is found.
func TestCheckRoots(t *testing.T) {
	update(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		d := someStore(t, s, inEither)
		d.refs = append(d.refs, s.ref(chunkKey{Address{7}, 1}, 5000), inlineRef(SHA256, []byte("inline")))
		found, text := problems(t, s, CheckOptions{Roots: d.roots()})
		if !slices.Equal(found, kinds(MissingChunk)) {
			t.Errorf("found %v:\n%s", found, text)
		}
		d.refs = append(d.refs, Ref{algorithm: BLAKE3, size: 1})
		if _, err := s.Check(context.Background(), CheckOptions{Roots: d.roots()}, nil); !errors.Is(err, ErrAlgorithm) {
			t.Errorf("a root of another hash function: %v", err)
		}
	})
}

// A check ends with its context, with an error of its function, and needs a writing transaction to repair.
func TestCheckEnds(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	update(t, db, func(s *Store) {
		d := someStore(t, s, inEither)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := s.Check(ctx, CheckOptions{}, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		must(t, setMark(d, d.tree.key(), true))
		enough := errors.New("enough")
		if _, err := s.Check(context.Background(), CheckOptions{}, func(Problem) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("%v", err)
		}
		must(t, setMark(d, d.tree.key(), false))
	})
	view(t, db, func(s *Store) {
		if _, err := s.Check(context.Background(), CheckOptions{Repair: true}, nil); !errors.Is(err, holdfast.ErrTxNotWritable) {
			t.Errorf("%v", err)
		}
		stats, err := s.Check(context.Background(), CheckOptions{Data: true, Memory: 500}, nil)
		must(t, err)
		u := value(t, must2(s.Usage()), nil)
		if stats.Leaves != u.Leaves || stats.Nodes != u.Nodes || stats.Bytes != u.LeafBytes+u.NodeBytes || stats.Verified != stats.Bytes ||
			stats.Dead != u.Dead || stats.Passes < 10 {
			t.Errorf("%+v and %+v", stats, u)
		}
	})
}

// With Digests, the digest of a whole blob is that of its content: it is computed again, and a wrong one is deleted.
func TestCheckDigests(t *testing.T) {
	update(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		d := someStore(t, s, inEither)
		stats, err := s.Check(context.Background(), CheckOptions{Digests: true, Roots: d.roots()}, nil)
		if err != nil || stats.Digests != 1 || stats.Problems != 0 {
			t.Errorf("%+v, %v", stats, err)
		}
		// The digest of one blob is said to be that of another, both ways.
		wrong := sha256.Sum256([]byte("another"))
		must(t, s.setDigest(wrong, d.tree))
		must(t, checkClean(s, CheckOptions{Data: true, Roots: d.roots()}))
		for _, repair := range []bool{false, true} {
			found, text := problems(t, s, CheckOptions{Digests: true, Roots: d.roots(), Repair: repair})
			if !slices.Equal(found, kinds(WrongDigest)) {
				t.Errorf("found %v:\n%s", found, text)
			}
		}
		must(t, checkClean(s, CheckOptions{Digests: true, Roots: d.roots()}))
		if _, err := s.ByDigest(wrong); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
		if _, err := s.ByDigest(sha256.Sum256(random(6, 4*MinLeafSize))); err != nil {
			t.Errorf("the right one: %v", err)
		}
		// Of damaged content the digest is not judged.
		k := d.refs[len(d.refs)-1].key()
		n := must2(s.loadNode(&k))
		k, _ = n.child(2)
		d.overwrite(k, flip)
		d.Store = reopened(t, s.tx)
		found, text := problems(t, d.Store, CheckOptions{Digests: true, Roots: d.roots(), Repair: true})
		if !slices.Equal(found, kinds(WrongDigest)) || strings.Contains(text, "repaired") {
			t.Errorf("found %v:\n%s", found, text)
		}
		d.overwrite(k, flip)
		must(t, checkClean(reopened(t, s.tx), CheckOptions{Digests: true, Roots: d.roots()}))
	})
}

// Who puts something while a check runs, as one who mends what it finds, does not take recent away under
// it; what another Store of the transaction does to it is an error at most.
func TestPutDuringCheck(t *testing.T) {
	const many = 2000
	for _, other := range []bool{false, true} {
		db := newStore(t, Options{})
		var refs []Ref
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			must(t, s.came(farChunks))
			for i := range many {
				refs = append(refs, must2(s.Put(nthBlob(i))))
			}
			must(t, s.flush())
			for i := range many / 2 {
				k := refs[2*i].key()
				e, _, err := s.lookup(&k)
				must(t, err)
				must(t, s.deleteBytes(e.packed, e.id))
			}
			return s.fresh().SetSequence(1 << 47)
		}))
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			into := s
			if other {
				into = openIn(tx)
			}
			missing := 0
			_, err := s.Check(context.Background(), CheckOptions{}, func(p Problem) error {
				if p.Kind == MissingBytes {
					missing++
				}
				if missing != 5 {
					return nil
				}
				_, err := into.Put(nthBlob(100_000))
				if err == nil {
					err = into.flush()
				}
				return err
			})
			if other != errors.Is(err, errChanged) || !other && err != nil || !other && missing < many/2 {
				t.Errorf("%d chunks are without bytes, %v", missing, err)
			}
			return nil
		}))
		var left uint64
		must(t, db.Update(func(tx *holdfast.Tx) error { // goes on moving
			s := openIn(tx)
			must(t, s.move(must2(s.begin()), 0, 2*many))
			left = entriesOf(s.fresh())
			return onlyOnce(s)
		}))
		if left > 0 {
			t.Errorf("%d chunks were not moved", left)
		}
	}
}
