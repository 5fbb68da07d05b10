package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// hostileSealed are what may stand where the frame of a leaf of 20,000 bytes should, and the entry of the leaf. other is a sound frame of
// the same store and length, of other content.
var hostileSealed = []struct {
	name  string
	frame func(good, other []byte) []byte
	entry func(e *entry)
}{
	{"a bit", func(p, _ []byte) []byte { return flip(p) }, nil},
	{"the kind", func(p, _ []byte) []byte { p[0] ^= 1; return p }, nil},
	{"an unknown kind", func(p, _ []byte) []byte { p[0] = 2; return p }, nil},
	{"a bit of the nonce", func(p, _ []byte) []byte { p[1] ^= 1; return p }, nil},
	{"the last bit", func(p, _ []byte) []byte { p[len(p)-1] ^= 128; return p }, nil},
	{"nothing", func(p, _ []byte) []byte { return p[:0] }, func(e *entry) { e.stored = 0 }},
	{"the kind only", func(p, _ []byte) []byte { return p[:1] }, nil},
	{"a byte too few for any", func(p, _ []byte) []byte { return p[:40] }, nil},
	{"half of it", func(p, _ []byte) []byte { return p[:len(p)/2] }, nil},
	{"a byte less", func(p, _ []byte) []byte { return p[:len(p)-1] }, nil},
	{"a byte more", func(p, _ []byte) []byte { return append(p, 0) }, nil},
	{"noise", func(p, _ []byte) []byte { return noise(1, len(p)) }, nil},
	{"another leaf's frame", func(_, other []byte) []byte { return other }, nil},
	{"a frame of another key", func(p, _ []byte) []byte { return otherKey.sealLeaf(nil, sealedPlain, sealedContent) }, nil},
	{"a message", func(p, _ []byte) []byte { return testKey.SealMessage([]byte{sealedPlain}, sealedContent, nil) }, nil},
	{"the content itself", func(_, _ []byte) []byte { return sealedContent }, nil},
	{"the content itself, as the entry says", func(_, _ []byte) []byte { return sealedContent[:20_000] }, func(e *entry) { e.stored = 0 }},
	{"compressed and not sealed", func(_, _ []byte) []byte { return Zstd.compress(nil, sealedContent) }, nil},
	{"what is sealed is not compressed", func(_, _ []byte) []byte { return testKey.sealLeaf(nil, sealedZstd, noise(3, 9000)) }, nil},
	{"a bomb", func(_, _ []byte) []byte { return testKey.sealLeaf(nil, sealedZstd, bomb(1<<30, 1<<13)) }, nil},
	{"a bomb that does not say so", func(_, _ []byte) []byte { return testKey.sealLeaf(nil, sealedZstd, bomb(20_000, 1<<13)) }, nil},
	{"shorter content", func(_, _ []byte) []byte { return testKey.sealLeaf(nil, sealedPlain, sealedContent[1:]) }, nil},
	{"longer than any leaf", func(_, _ []byte) []byte { return testKey.sealLeaf(nil, sealedPlain, noise(1, 300_000)) }, nil},
	{"an entry of a chunk that is no frame", nil, func(e *entry) { e.length, e.stored = e.stored, 0 }},
	{"an entry with another stored length", nil, func(e *entry) { e.stored++ }},
	{"an entry with another length", nil, func(e *entry) { e.length-- }},
	{"an entry that is not packed", nil, func(e *entry) { e.packed = false }},
	{"an entry of an even number", nil, func(e *entry) { e.id++ }},
}

var sealedContent = words(7, 20_000)

// Nothing that stands where the frame of an encrypted leaf should is handed out as its content; Check names it, a repair makes the rest
// sound, and what is put again is there.
func TestHostileSealed(t *testing.T) {
	content, beside := sealedContent, words(9, 300_000)
	for _, c := range hostileSealed {
		for _, o := range []Options{{Key: testKey}, {Key: testKey, Compression: Zstd}, {Key: testKey, Compression: Zstd, Chunking: FastCDC}} {
			t.Run(fmt.Sprintf("%s/%v-%v", c.name, o.Chunking, o.Compression), func(t *testing.T) {
				db := newStore(t, o)
				var ref, sound, second Ref
				must(t, commits(db, func(s *Store) error {
					ref, sound, second = must2(s.Put(content)), must2(s.Put(beside)), must2(s.Put(words(8, 20_000)))
					must(t, s.flush())
					d := &damaged{Store: s, t: t}
					b, id := d.bytesOf(ref.key())
					_, otherID := d.bytesOf(second.key())
					d.change(ref.key(), func(e *entry) {
						if c.frame != nil {
							p := c.frame(bytes.Clone(b.Get(id)), bytes.Clone(b.Get(otherID)))
							must(t, b.Put(id, p))
							e.stored = len(p)
						}
						if c.entry != nil {
							c.entry(e)
						}
					})
					return nil
				}))
				view(t, db, func(s *Store) {
					before := allocated()
					err := reads(s, ref, content)
					if took := allocated() - before; took > 8<<20 {
						t.Errorf("reading took %d bytes of memory", took)
					}
					var damage *CorruptError
					if !errors.Is(err, ErrInvalidRef) && !(errors.As(err, &damage) && errors.Is(err, ErrCorrupt)) {
						t.Errorf("it reads: %v", err)
					}
					must(t, reads(s, sound, beside))
					if found, text := problems(t, s, CheckOptions{Data: true}); len(found) == 0 {
						t.Errorf("Check finds nothing %s", text)
					}
				})
				must(t, commits(db, func(s *Store) error {
					problems(t, s, CheckOptions{Data: true, Repair: true, Discard: true, Roots: rootsOf(ref, sound, second)})
					return nil
				}))
				must(t, commits(db, func(s *Store) error {
					_, err := s.Put(content)
					return firstError(err, collectAll(s))
				}))
				view(t, db, func(s *Store) {
					must(t, reads(s, ref, content))
					must(t, reads(s, second, words(8, 20_000)))
					must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(ref, ref, sound, second)}))
				})
			})
		}
	}
}

// Entries that have exchanged their frames are damage: the content of neither is given out for the other, whether one of them was
// verified before or not.
func TestSwappedFrames(t *testing.T) {
	for _, verified := range []bool{false, true} {
		db := newStore(t, Options{Key: testKey})
		a, b := noise(1, 30_000), noise(2, 30_000)
		var refs [2]Ref
		must(t, commits(db, func(s *Store) error {
			refs = [2]Ref{must2(s.Put(a)), must2(s.Put(b))}
			return nil
		}))
		if verified {
			view(t, db, func(s *Store) { must(t, firstError(reads(s, refs[0], a), reads(s, refs[1], b))) })
		}
		must(t, commits(db, func(s *Store) error {
			d := &damaged{Store: s, t: t}
			first, second := d.entry(refs[0].key()), d.entry(refs[1].key())
			d.change(refs[0].key(), func(e *entry) { e.id = second.id })
			d.change(refs[1].key(), func(e *entry) { e.id = first.id })
			return nil
		}))
		view(t, db, func(s *Store) {
			for i, ref := range refs {
				if err := reads(s, ref, [][]byte{a, b}[i]); !errors.Is(err, ErrCorrupt) {
					t.Errorf("blob %d reads, verified %v: %v", i, verified, err)
				}
			}
		})
		must(t, commits(db, func(s *Store) error { // each says itself whose it is
			problems(t, s, CheckOptions{Data: true, Repair: true, Roots: rootsOf(refs[:]...)})
			return nil
		}))
		view(t, db, func(s *Store) {
			must(t, firstError(reads(s, refs[0], a), reads(s, refs[1], b)))
			must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs[:]...)}))
		})
	}
}

// A repair gives frames that no entry names to the leaf that they are of, for they can be opened without knowing whose they are.
func TestRepairOfSealed(t *testing.T) {
	db := newStore(t, Options{Key: testKey, Compression: Zstd})
	contents := [][]byte{words(1, 30_000), noise(2, 30_000), nil, words(4, 400_000)}
	var refs []Ref
	must(t, commits(db, func(s *Store) error {
		for _, p := range contents {
			refs = append(refs, must2(s.Put(p)))
		}
		must(t, s.flush())
		for _, ref := range refs[:3] {
			(&damaged{Store: s, t: t}).unlink(ref.key())
		}
		return nil
	}))
	must(t, commits(db, func(s *Store) error {
		if found, _ := problems(t, s, CheckOptions{Repair: true, Roots: rootsOf(refs...)}); len(found) == 0 {
			t.Error("nothing was found")
		}
		s = reopened(t, s.tx)
		for i, p := range contents {
			must(t, reads(s, refs[i], p))
		}
		return checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)})
	}))
}

// What was saved of an ingest goes on under its own name, with its own rest.
func TestSwappedIngests(t *testing.T) {
	for name, swap := range map[string]func(a, b map[string][]byte){
		"state": func(a, b map[string][]byte) { a["state"], b["state"] = b["state"], a["state"] },
		"rest":  func(a, b map[string][]byte) { a["tail"], b["tail"] = b["tail"], a["tail"] },
		"both": func(a, b map[string][]byte) {
			a["state"], b["state"], a["tail"], b["tail"] = b["state"], a["state"], b["tail"], a["tail"]
		},
		"a bit of state": func(a, b map[string][]byte) { a["state"], b["state"] = flip(a["state"]), flip(b["state"]) },
		"a bit of rest":  func(a, b map[string][]byte) { a["tail"], b["tail"] = flip(a["tail"]), flip(b["tail"]) },
		"no rest":        func(a, b map[string][]byte) { a["tail"], b["tail"] = nil, nil },
		"no state":       func(a, b map[string][]byte) { a["state"], b["state"] = nil, nil },
		"in clear": func(a, b map[string][]byte) {
			st := ingestState{}
			a["state"], a["tail"], b["state"], b["tail"] = st.append(nil), []byte{}, st.append(nil), []byte{}
		},
	} {
		db := newStore(t, Options{Key: testKey})
		must(t, commits(db, func(s *Store) error {
			for i := range uint64(2) {
				in := must2(s.Ingest(fmt.Sprint(i), IngestOptions{WholeDigest: true}))
				must2(in.Write(noise(i, 70_000)))
				must(t, in.Save())
			}
			return nil
		}))
		must(t, commits(db, func(s *Store) error {
			all := s.bucket.Bucket(ingestsName)
			values := func(name string) map[string][]byte {
				b := all.Bucket([]byte(name))
				return map[string][]byte{"state": bytes.Clone(b.Get(stateName)), "tail": bytes.Clone(b.Get(tailName))}
			}
			a, b := values("0"), values("1")
			swap(a, b)
			for name, v := range map[string]map[string][]byte{"0": a, "1": b} {
				for key, p := range v {
					if p == nil {
						must(t, all.Bucket([]byte(name)).Delete([]byte(key)))
						continue
					}
					must(t, all.Bucket([]byte(name)).Put([]byte(key), p))
				}
			}
			return nil
		}))
		must(t, commits(db, func(s *Store) error {
			for i := range 2 {
				if _, err := s.Ingest(fmt.Sprint(i), IngestOptions{}); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: it goes on: %v", name, err)
				}
			}
			if found, text := problems(t, s, CheckOptions{}); len(found) < 2 || found[0] != Malformed {
				t.Errorf("%s: %v, %s", name, found, text)
			}
			problems(t, s, CheckOptions{Repair: true})
			return checkClean(reopened(t, s.tx), CheckOptions{Data: true})
		}))
	}
}

// Blobs of an encrypted store are found by their SHA-256, by its first digits too; and what was changed of that is found.
func TestSealedDigests(t *testing.T) {
	db := newStore(t, Options{Key: testKey})
	var refs []Ref
	var sums [][32]byte
	update(t, db, func(s *Store) {
		w := s.Writer()
		w.Digest(true)
		for i, size := range []int{0, 100, 65_447, 300_000} {
			p := noise(uint64(i), size)
			must2(w.Write(p))
			refs, sums = append(refs, must2(w.Commit())), append(sums, sha256.Sum256(p))
		}
	})
	view(t, db, func(s *Store) {
		for i, ref := range refs {
			if got := must2(s.ByDigest(sums[i])); got != ref {
				t.Errorf("%v, not %v", got, ref)
			}
			if sum, ok, err := s.DigestOf(ref); err != nil || !ok || sum != sums[i] {
				t.Errorf("%x, %v, %v", sum, ok, err)
			}
			for _, digits := range []int{7, 8, 63, 64} {
				if found := must2(s.Find(hex.EncodeToString(sums[i][:])[:digits])); !slices.Equal(found, []Ref{ref}) {
					t.Errorf("%d digits: %v", digits, found)
				}
			}
		}
		if _, err := s.ByDigest([32]byte{1}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if u := must2(s.Usage()); u.Digests != 4 {
			t.Errorf("%d digests", u.Digests)
		}
		must(t, checkClean(s, CheckOptions{Data: true, Digests: true}))
	})
	must(t, commits(db, func(s *Store) error { // those of two blobs are exchanged, and a bit of a third changed
		b := s.bucket.Bucket(digestsName)
		var keys [3][keySize]byte
		var values [3][]byte
		for i := range keys {
			k := refs[i].key()
			keys[i] = k.encode()
			values[i] = bytes.Clone(b.Get(keys[i][:]))
		}
		return firstError(b.Put(keys[0][:], values[1]), b.Put(keys[1][:], values[0]), b.Put(keys[2][:], flip(values[2])))
	}))
	must(t, commits(db, func(s *Store) error {
		for _, ref := range refs[:3] {
			if _, ok, err := s.DigestOf(ref); !errors.Is(err, ErrCorrupt) || ok {
				t.Errorf("%v, %v", ok, err)
			}
		}
		if found, text := problems(t, s, CheckOptions{}); len(found) != 6 || found[0] != WrongDigest {
			t.Errorf("%v: %s", found, text)
		}
		problems(t, s, CheckOptions{Repair: true})
		return checkClean(reopened(t, s.tx), CheckOptions{Data: true, Digests: true})
	}))
	must(t, commits(db, func(s *Store) error { // a digest goes with its blob
		return firstError(s.Delete(refs[3]), collectAll(s), checkClean(s, CheckOptions{Data: true}))
	}))
	view(t, db, func(s *Store) {
		if u := must2(s.Usage()); u.Digests != 0 {
			t.Errorf("%d digests are left", u.Digests)
		}
	})
}

// A frame is never the same twice.
func TestNoncesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		frame := testKey.sealLeaf(nil, sealedPlain, []byte("content"))
		nonce := string(frame[1:25])
		if seen[nonce] {
			t.Fatal("a nonce came twice")
		}
		seen[nonce] = true
	}
}

// FuzzSealed: whatever stands in the place of a frame of an encrypted store, sealed with its key even, reading gives an error or the
// content, and takes no more memory than that.
func FuzzSealed(f *testing.F) {
	for _, c := range hostileSealed {
		if c.frame != nil {
			good := testKey.sealLeaf(nil, sealedZstd, Zstd.compress(nil, sealedContent))
			p := c.frame(bytes.Clone(good), testKey.sealLeaf(nil, sealedPlain, sealedContent))
			if len(p) < 1<<16 {
				f.Add(p, 20_000, false)
				f.Add(p, 20_000, true)
			}
		}
	}
	s := &Store{options: Options{Key: testKey, Compression: Zstd, LeafSize: 65_447}}
	f.Fuzz(func(t *testing.T, frame []byte, n int, seals bool) {
		if n < 0 || n > 65_447 {
			return
		}
		if seals && len(frame) > 0 {
			frame = testKey.sealLeaf(nil, frame[0]%2, frame[1:])
		}
		buffer := make([]byte, 0, n)
		p, err := s.unframe(buffer, frame, n)
		if err == nil && (len(p) != n || n > 0 && &p[0] != &buffer[:1][0]) {
			t.Fatalf("%d bytes, not %d, or in other memory", len(p), n)
		}
		if q, ok := s.contentAt(spot{packed: true, id: 1}, frame, nil); ok && len(q) > 65_447 || err == nil && (!ok || !bytes.Equal(p, q)) {
			t.Fatalf("a repair sees %d bytes, %v", len(q), ok)
		}
	})
}
