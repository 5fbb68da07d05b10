package blob

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"holdfast"
)

// testKey is that of the encrypted stores of tests, otherKey another one.
var testKey, otherKey = must2(NewKey(secretOf(1))), must2(NewKey(secretOf(2)))

func secretOf(seed uint64) [32]byte { return [32]byte(noise(seed, 32)) }

// openAny opens a store, with testKey if it is encrypted.
func openAny(b *holdfast.Bucket) (*Store, error) {
	if IsEncrypted(b) {
		return OpenEncrypted(b, testKey)
	}
	return Open(b)
}

// A store opens with its key only: each other attempt says so, and a store without encryption does not open with a key.
func TestWrongKey(t *testing.T) {
	db := newStore(t, Options{Key: testKey})
	plain := newStore(t, Options{Algorithm: BLAKE3})
	again := must2(NewKey(secretOf(1)))
	view(t, db, func(s *Store) {
		for _, c := range []struct {
			key  *Key
			want error
			text string
		}{{testKey, nil, ""}, {again, nil, ""}, {nil, ErrKey, "no key is given"}, {otherKey, ErrKey, "another key"}} {
			got, err := OpenEncrypted(s.bucket, c.key)
			if !errors.Is(err, c.want) || (err == nil) != (got != nil) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
		if _, err := Open(s.bucket); !errors.Is(err, ErrKey) {
			t.Error(err)
		}
		if !IsStore(s.bucket) || !IsEncrypted(s.bucket) || s.Options().Key != testKey || s.Options().Algorithm != KeyedBLAKE3 {
			t.Error(s.Options())
		}
	})
	view(t, plain, func(s *Store) {
		if _, err := OpenEncrypted(s.bucket, testKey); !errors.Is(err, ErrKey) || IsEncrypted(s.bucket) {
			t.Error(err)
		}
	})
	if IsEncrypted(nil) || !sameKey(testKey, again) || sameKey(testKey, otherKey) || sameKey(testKey, nil) || !sameKey(nil, nil) {
		t.Error("keys are not told apart")
	}
}

// Options that no encrypted store can have, and no other, are refused.
func TestKeyOptions(t *testing.T) {
	must(t, openDB(t).Update(func(tx *holdfast.Tx) error {
		b := must2(tx.CreateBucket(storeName))
		for _, o := range []Options{{Key: testKey, Algorithm: SHA256}, {Key: testKey, Algorithm: BLAKE3}, {Algorithm: KeyedBLAKE3}} {
			if _, err := Create(b, o); !errors.Is(err, ErrOptions) {
				t.Errorf("%v: %v", o, err)
			}
		}
		s := must2(Create(b, Options{Key: testKey, Algorithm: KeyedBLAKE3}))
		if size := s.Options().LeafSize; size != 65_488-41 { // so that the frame fills 16 pages
			t.Errorf("leaves have %d bytes", size)
		}
		return nil
	}))
	for overhead, want := range map[int]error{-1: ErrOptions, 0: nil, 255: nil, 256: ErrOptions} {
		if _, err := KeyOf(stretched{testKey.cipher, overhead}); !errors.Is(err, want) {
			t.Errorf("an overhead of %d bytes: %v", overhead, err)
		}
	}
}

type stretched struct {
	Cipher
	overhead int
}

func (s stretched) Overhead() int { return s.overhead }

// A record that was changed, without the key, does not open: neither with other options, nor as one of a
// store without encryption.
func TestForgedRecordOfKey(t *testing.T) {
	o := Options{Key: testKey, Chunking: FastCDC, Compression: Zstd}
	o.setDefaults(4096)
	good := appendConfig(nil, o)
	if got := must2(parseConfig(good, testKey)); got != o {
		t.Errorf("%v, not %v", got, o)
	}
	sum := func(b []byte) []byte {
		if len(b) >= 4 {
			binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		return b
	}
	for i := range len(good) - 4 {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			_, err := parseConfig(b, testKey) // without its checksum
			_, forged := parseConfig(sum(b), testKey)
			for _, err := range []error{err, forged} {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrKey) && !errors.Is(err, ErrNotStore) {
					t.Errorf("bit %d of byte %d: %v", bit, i, err)
				}
			}
		}
	}
	for n := range len(good) {
		if _, err := parseConfig(sum(bytes.Clone(good[:n])), testKey); err == nil {
			t.Errorf("%d bytes of it are a record", n)
		}
	}
	plain := o
	plain.Key, plain.Algorithm = nil, BLAKE3
	if _, err := parseConfig(appendConfig(nil, plain), testKey); !errors.Is(err, ErrKey) {
		t.Errorf("as a store without encryption: %v", err)
	}
}

// A store without encryption has the record that it had.
func TestKeyIsRecorded(t *testing.T) {
	for _, c := range []struct {
		o       Options
		version byte
		size    int
	}{{Options{}, 2, 16}, {Options{Compression: Zstd}, 3, 16}, {Options{Compression: ZstdBetter}, 3, 16}, {Options{Key: testKey}, 4, 48}, {Options{Key: testKey, Compression: Zstd}, 4, 48}} {
		view(t, newStore(t, c.o), func(s *Store) {
			if b := s.bucket.Get(configName); len(b) != c.size || b[4] != c.version || b[7] != byte(c.o.Compression) {
				t.Errorf("%v: %x", c.o, b)
			}
		})
	}
}

// Nothing of a key is printed, whatever the verb.
func TestKeyIsNotPrinted(t *testing.T) {
	secret := secretOf(1)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		for _, v := range []any{testKey, Options{Key: testKey}, &Options{Key: testKey}} {
			text := fmt.Sprintf(format, v)
			for _, part := range []string{hex.EncodeToString(secret[:4]), fmt.Sprintf("%d", secret[:2])[1:6], fmt.Sprintf("0x%x, 0x%x", secret[0], secret[1])} {
				if strings.Contains(text, part) {
					t.Errorf("%s: %.100s", format, text)
				}
			}
			if k, ok := v.(*Key); ok && text != "blob.Key" {
				t.Errorf("%s of %v: %.100s", format, k, text)
			}
		}
	}
}

// The same content has the same reference in stores with the same key, however it is written, and another one in others; what is
// read is what was written; and frames are all that there is of leaves.
func TestEncryption(t *testing.T) {
	for _, o := range []Options{{}, {Compression: Zstd}, {Chunking: FastCDC}, {LeafSize: 1 << 20}, {LeafSize: MinLeafSize, Chunking: FastCDC, Compression: Zstd}} {
		plain := o
		plain.Algorithm = BLAKE3
		o.Key = testKey
		other := o
		other.Key = otherKey
		a, b := newStore(t, o), newStore(t, o)
		for i, size := range []int{0, 1, 31, 255, minCompressed, 4000, 4096, 5000, 65446, 65447, 65448, 300_000, 3_000_000} {
			for kind, content := range map[string][]byte{"text": words(uint64(i), size), "noise": noise(uint64(i), size)} {
				var want, ref Ref
				update2(t, b, func(s *Store) { want = must2(s.Put(content)) })
				for way, put := range putWays {
					update2(t, a, func(s *Store) { ref = must2(put(s, content)) })
					if _, inline := ref.Inline(); ref != want || inline || ref.Algorithm() != KeyedBLAKE3 {
						t.Errorf("%v, %s of %d bytes by %s: %v, not %v", o, kind, size, way, ref, want)
					}
				}
				view(t, a, func(s *Store) { must(t, reads(s, ref, content)) })
				if sum := BLAKE3.sum(content); ref.Address() == sum || other.sum(content) == ref.Address() {
					t.Errorf("%s of %d bytes has the address %v, as without the key, or with another", kind, size, sum)
				}
			}
		}
		view(t, a, func(s *Store) {
			checkStore(t, s)
			must(t, checkClean(s, CheckOptions{Data: true}))
			if key, _ := s.leaves.Cursor().First(); key != nil {
				t.Errorf("%v: a leaf is stored as it is", o)
			}
			for key, v := range s.indexAll() {
				k, e := parseKey2(key), must2(parseEntry(v))
				if frame := e.stored > 0 && e.packed && e.id%2 == 1; frame != (k.level == 0) {
					t.Errorf("%v: chunk %v is %+v", o, k, e)
				}
			}
			if u := must2(s.Usage()); (u.Compressed > 0) != (o.Compression == Zstd) || o.Compression == NoCompression && u.LeafBytes != u.LeafContent+41*u.Leaves {
				t.Errorf("%v: %+v", o, u)
			}
		})
	}
}

// A Put keeps no value in its reference, whatever InlineUpTo says, and no reference of the form is taken for one of the store.
func TestEncryptedIsNotInline(t *testing.T) {
	db := newStore(t, Options{Key: testKey})
	update(t, db, func(s *Store) {
		for _, n := range []int{-1, 0, 255, MaxInline} {
			s.InlineUpTo(n)
			if ref := must2(s.Put([]byte("secret"))); ref.Size() != 6 || ref.inlined {
				t.Errorf("InlineUpTo(%d): %v", n, ref)
			}
		}
	})
	var ref Ref
	if err := ref.UnmarshalBinary([]byte("\x43secret")); !errors.Is(err, ErrInvalidRef) {
		t.Errorf("%v, %v", ref, err)
	}
	if _, err := ParseRef("blake3-keyed-inline:00"); !errors.Is(err, ErrInvalidRef) {
		t.Error(err)
	}
	view(t, newStore(t, Options{Algorithm: BLAKE3}), func(s *Store) {
		k := Ref{algorithm: KeyedBLAKE3, size: 6}
		if _, err := s.Reader(k); !errors.Is(err, ErrAlgorithm) {
			t.Error(err)
		}
	})
}

// Where FastCDC cuts depends on the key: the lengths of leaves do not tell whose content they have.
func TestKeyedChunking(t *testing.T) {
	content := noise(1, 4<<20)
	lengths := func(key *Key) (list []int) {
		o := Options{Chunking: FastCDC, Key: key, LeafSize: 8 << 10}
		o.setDefaults(4096)
		c := newCutter(&o)
		for p := content; len(p) > 0; {
			n, _ := c.cut(p)
			list = append(list, n)
			p = p[n:]
		}
		return list
	}
	all, ends := map[int]bool{}, 0
	for name, key := range map[string]*Key{"none": nil, "one": testKey, "other": otherKey} {
		list := lengths(key)
		if n := len(list); n < 350 || n > 650 {
			t.Errorf("%s: %d leaves", name, n)
		}
		end := 0
		for _, n := range list[:len(list)-1] { // where they end
			end += n
			all[end] = true
			ends++
		}
		if again := lengths(key); fmt.Sprint(again) != fmt.Sprint(list) {
			t.Errorf("%s: other lengths again", name)
		}
	}
	if len(all) < ends-5 {
		t.Errorf("%d different ends of %d leaves: keys have cut at the same places", len(all), ends)
	}
}

// A chunk that was verified for a store of one key is not appended to one of another.
func TestVerifiedWithAnotherKey(t *testing.T) {
	o := Options{Key: testKey, LeafSize: MinLeafSize}
	other := o
	other.Key = otherKey
	other.setDefaults(4096)
	p := noise(1, MinLeafSize)
	v := must2(other.VerifyChunk(Chunk{Address: other.sum(p), Size: MinLeafSize}, p))
	update(t, newStore(t, o), func(s *Store) {
		in := must2(s.Ingest("name", IngestOptions{}))
		if err := in.AppendVerified(v); !errors.Is(err, ErrAlgorithm) {
			t.Error(err)
		}
	})
}

// A message opens with the same key and about the same only.
func TestMessages(t *testing.T) {
	sealed := testKey.SealMessage([]byte("before"), []byte("message"), []byte("about"))
	if n := len("before") + len("message") + testKey.Overhead(); len(sealed) != n || string(sealed[:6]) != "before" {
		t.Errorf("%d bytes, not %d", len(sealed), n)
	}
	sealed = sealed[6:]
	if p, err := testKey.OpenMessage(sealed, []byte("about")); err != nil || string(p) != "message" {
		t.Errorf("%q, %v", p, err)
	}
	_, err := testKey.OpenMessage(sealed, []byte("other"))
	_, otherErr := otherKey.OpenMessage(sealed, []byte("about"))
	_, short := testKey.OpenMessage(sealed[:10], []byte("about"))
	for i, err := range []error{err, otherErr, short} {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
