package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"holdfast"
)

// hostileFrames are what may stand where the compressed form of a leaf of 20,000 bytes should, and the entry of the leaf.
var hostileFrames = []struct {
	name  string
	frame func(good []byte) []byte
	entry func(e *entry)
}{
	{"a bit", flip, nil},
	{"the first bit", func(p []byte) []byte { p[0] ^= 1; return p }, nil},
	{"the last bit", func(p []byte) []byte { p[len(p)-1] ^= 128; return p }, nil},
	{"nothing", func(p []byte) []byte { return p[:0] }, func(e *entry) { e.stored = 0 }},
	{"half of it", func(p []byte) []byte { return p[:len(p)/2] }, nil},
	{"a byte more", func(p []byte) []byte { return append(p, 0) }, nil},
	{"noise", func(p []byte) []byte { return noise(1, len(p)) }, nil},
	{"other content of the length", func([]byte) []byte { return Zstd.compress(nil, words(99, 20_000)) }, nil},
	{"shorter content", func([]byte) []byte { return Zstd.compress(nil, words(7, 19_999)) }, nil},
	{"longer content", func([]byte) []byte { return Zstd.compress(nil, words(7, 20_001)) }, nil},
	{"longer content, as the entry says", func([]byte) []byte { return Zstd.compress(nil, words(7, 20_001)) }, func(e *entry) { e.length++ }},
	{"a frame after it", func(p []byte) []byte { return append(p, Zstd.compress(nil, words(8, 5000))...) }, nil},
	{"two halves", func([]byte) []byte {
		return append(Zstd.compress(nil, words(7, 20_000)[:10_000]), Zstd.compress(nil, words(7, 20_000)[10_000:])...)
	}, nil},
	{"a bomb", func([]byte) []byte { return bomb(1<<30, 1<<13) }, nil},
	{"a bomb, as the entry says", func([]byte) []byte { return bomb(maxChunk, maxChunk>>17) }, func(e *entry) { e.length = maxChunk }},
	{"a bomb that does not say so", func([]byte) []byte { return bomb(20_000, 1<<13) }, nil},
	{"a bomb that says nothing", func([]byte) []byte { return bomb(-1, 1<<13) }, nil},
	{"a skippable frame", func([]byte) []byte { return append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0}, 1, 2, 3, 4) }, nil},
	{"the content itself", func([]byte) []byte { return words(7, 20_000) }, nil},
	{"the content itself, as the entry says", func([]byte) []byte { return words(7, 20_000) }, func(e *entry) { e.stored = 0 }},
	{"an entry of a chunk that is not compressed", nil, func(e *entry) { e.length, e.stored = e.stored, 0 }},
	{"an entry with another stored length", nil, func(e *entry) { e.stored++ }},
	{"an entry with another length", nil, func(e *entry) { e.length-- }},
	{"an entry that is not packed", nil, func(e *entry) { e.packed = false }},
	{"an entry of an even number", nil, func(e *entry) { e.id++ }},
}

// bomb is a frame of blocks of 128 KiB of zeros, which says that its content has that length, or does not say it.
func bomb(says, blocks int) []byte {
	p := []byte{0x28, 0xb5, 0x2f, 0xfd}
	if says < 0 {
		p = append(p, 0, 0x58) // a window of 2 MiB
	} else {
		p = append(p, 0xa0)
		p = binary.LittleEndian.AppendUint32(p, uint32(says))
	}
	for i := range blocks {
		head := uint32(128<<10)<<3 | 1<<1 // RLE
		if i == blocks-1 {
			head |= 1
		}
		p = append(p, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return p
}

// Nothing that stands where a compressed leaf should is handed out as its content, nor takes more memory than a leaf has; Check names it,
// a repair makes the rest sound, and what is put again is there.
func TestHostileFrames(t *testing.T) {
	content, beside := words(7, 20_000), words(9, 300_000)
	for _, c := range hostileFrames {
		for _, o := range []Options{{Compression: Zstd}, {Compression: Zstd, Chunking: FastCDC}} {
			t.Run(fmt.Sprintf("%s/%v", c.name, o.Chunking), func(t *testing.T) {
				db := newStore(t, o)
				var ref, sound Ref
				must(t, commits(db, func(s *Store) error {
					ref, sound = must2(s.Put(content)), must2(s.Put(beside))
					must(t, s.flush())
					d := &damaged{Store: s, t: t}
					b, id := d.bytesOf(ref.key())
					d.change(ref.key(), func(e *entry) {
						if e.stored == 0 {
							t.Fatal("it is not compressed")
						}
						if c.frame != nil {
							p := c.frame(bytes.Clone(b.Get(id)))
							must(t, b.Put(id, p))
							if e.stored = len(p); c.entry == nil || len(p) == 0 {
								return
							}
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
					before = allocated()
					if found, text := problems(t, s, CheckOptions{Data: true}); len(found) == 0 {
						t.Errorf("Check finds nothing %s", text)
					}
					if took := allocated() - before; took > 24<<20 {
						t.Errorf("the check took %d bytes of memory", took)
					}
				})
				must(t, commits(db, func(s *Store) error {
					problems(t, s, CheckOptions{Data: true, Repair: true, Discard: true, Roots: rootsOf(ref, sound)})
					return nil
				}))
				must(t, commits(db, func(s *Store) error {
					_, err := s.Put(content)
					return firstError(err, collectAll(s))
				}))
				view(t, db, func(s *Store) {
					must(t, reads(s, ref, content))
					must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(ref, ref, sound)}))
				})
				checkLeft(t, db, 1+5+1) // the leaf, those of the other blob and its node
			})
		}
	}
}

// checkLeft sees that a store has at most so many chunks.
func checkLeft(t *testing.T, db *holdfast.DB, most int) {
	t.Helper()
	view(t, db, func(s *Store) {
		if s.options.Chunking == FixedSize {
			if n := checkStore(t, s); n > most {
				t.Errorf("%d chunks are left", n)
			}
		}
	})
}

// An entry that says of bytes which are not compressed that they are is damage, which a repair mends: the bytes are sound.
func TestEntrySaysCompressed(t *testing.T) {
	for _, stored := range []int{1, 19_999, 20_000, 20_001} {
		db := newStore(t, Options{Compression: Zstd})
		content := noise(1, 20_000)
		var ref Ref
		must(t, commits(db, func(s *Store) error {
			ref = must2(s.Put(content))
			must(t, s.flush())
			(&damaged{Store: s, t: t}).change(ref.key(), func(e *entry) { e.stored = stored })
			return nil
		}))
		view(t, db, func(s *Store) {
			if err := reads(s, ref, content); !errors.Is(err, ErrCorrupt) {
				t.Errorf("stored as %d bytes it reads: %v", stored, err)
			}
			if found, text := problems(t, s, CheckOptions{}); !slices.Equal(found, []ProblemKind{WrongLength}) {
				t.Errorf("stored as %d bytes: %v, %s", stored, found, text)
			}
		})
		must(t, commits(db, func(s *Store) error {
			problems(t, s, CheckOptions{Repair: true, Roots: rootsOf(ref)})
			return firstError(reads(reopened(t, s.tx), ref, content), checkClean(reopened(t, s.tx), CheckOptions{Data: true, Roots: rootsOf(ref)}))
		}))
	}
}

// A node that is compressed is damage, which a repair and a put mend: what walks over a tree need not think of memory.
func TestCompressedNode(t *testing.T) {
	db := newStore(t, Options{Compression: Zstd})
	content := words(1, 500_000)
	var ref Ref
	must(t, commits(db, func(s *Store) error {
		ref = must2(s.Put(content))
		must(t, s.flush())
		d := &damaged{Store: s, t: t}
		b, id := d.bytesOf(ref.key())
		e := encoders[Zstd].Get().(*zstd.Encoder)
		frame := e.EncodeAll(b.Get(id), nil)
		odd, err := s.takeID(true, true)
		must(t, err)
		must(t, b.Delete(id))
		d.change(ref.key(), func(e *entry) { e.id, e.stored = odd, len(frame) })
		return b.Put(binary.BigEndian.AppendUint64(nil, odd), frame)
	}))
	view(t, db, func(s *Store) {
		if err := reads(s, ref, content); !errors.Is(err, ErrCorrupt) {
			t.Errorf("it reads: %v", err)
		}
		if found, text := problems(t, s, CheckOptions{}); len(found) == 0 {
			t.Errorf("Check finds nothing %s", text)
		}
	})
	must(t, commits(db, func(s *Store) error {
		problems(t, s, CheckOptions{Data: true, Repair: true, Discard: true, Roots: rootsOf(ref)})
		return nil
	}))
	must(t, commits(db, func(s *Store) error {
		_, err := s.Put(content)
		return firstError(err, collectAll(s))
	}))
	view(t, db, func(s *Store) {
		must(t, reads(s, ref, content))
		must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(ref, ref)}))
	})
}

func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// VerifyStored finds a compressed leaf that is damaged, and a put stores it again; it decompresses to see that.
func TestVerifyStoredCompressed(t *testing.T) {
	for _, size := range []int{1000, 20_000, 65_488, 400_000} {
		db := newStore(t, Options{Compression: Zstd})
		content := words(1, size)
		var ref Ref
		must(t, commits(db, func(s *Store) error {
			ref = must2(s.Put(content))
			must(t, s.flush())
			d := &damaged{Store: s, t: t, tree: ref}
			k := ref.key()
			if k.level > 0 {
				k = d.child(0)
			}
			b, id := d.bytesOf(k)
			return b.Put(id, flip(bytes.Clone(b.Get(id))))
		}))
		must(t, commits(db, func(s *Store) error {
			s.VerifyStored(true)
			_, err := s.Put(content)
			return err
		}))
		view(t, db, func(s *Store) { must(t, reads(s, ref, content)) })
	}
}

// A repair gives compressed bytes that no entry names to the leaf that they are of, and takes none that stand there as they
// are for compressed: also if they are a frame.
func TestRepairOfCompressed(t *testing.T) {
	db := newStore(t, Options{Compression: Zstd})
	content := words(1, 30_000)
	frame := Zstd.compress(nil, content) // is content, too
	var refs []Ref
	must(t, commits(db, func(s *Store) error {
		refs = []Ref{must2(s.Put(content)), must2(s.Put(frame)), must2(s.Put(words(2, 400_000)))}
		must(t, s.flush())
		d := &damaged{Store: s, t: t}
		for _, ref := range refs[:2] {
			d.unlink(ref.key())
		}
		return nil
	}))
	must(t, commits(db, func(s *Store) error {
		found, text := problems(t, s, CheckOptions{Repair: true, Roots: rootsOf(refs...)})
		if len(found) == 0 {
			t.Error("nothing was found")
		}
		s = reopened(t, s.tx)
		if err := firstError(reads(s, refs[0], content), reads(s, refs[1], frame)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		return checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)})
	}))
}

// FuzzFrame: whatever stands in the place of a compressed leaf, reading gives an error or the content, and takes no more memory
// than that.
func FuzzFrame(f *testing.F) {
	content := words(7, 20_000)
	good := Zstd.compress(nil, content)
	for _, c := range hostileFrames {
		if c.frame != nil {
			if p := c.frame(bytes.Clone(good)); len(p) < 1<<16 {
				f.Add(p, 20_000)
			}
		}
	}
	f.Add(good, 20_000)
	s := &Store{options: Options{Compression: Zstd, LeafSize: 65_488}}
	f.Fuzz(func(t *testing.T, frame []byte, n int) {
		if n < 0 || n > 65_488 {
			return
		}
		buffer := make([]byte, 0, n)
		p, err := s.decompress(buffer, frame, n)
		if err == nil && (len(p) != n || n > 0 && &p[0] != &buffer[:1][0]) {
			t.Fatalf("%d bytes, not %d, or in other memory", len(p), n)
		}
		if q, ok := s.contentAt(spot{packed: true, id: 1}, frame, nil); ok && len(q) > 65_488 || err == nil && (!ok || !bytes.Equal(p, q)) {
			t.Fatalf("a repair sees %d bytes, %v", len(q), ok)
		}
	})
}
