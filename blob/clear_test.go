package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"testing"
	"time"

	"holdfast"
)

// needles are bytes that no file may have: any 16 in a row of them, from any 8 on.
type needles struct {
	all    map[uint64]needle
	filter []uint64 // bits of hashes of the keys
}

type needle struct {
	rest uint64
	what string
}

func newNeedles() *needles { return &needles{map[uint64]needle{}, make([]uint64, 1<<18)} }

// bit is where in the filter a key is.
func (n *needles) bit(key uint64) (word *uint64, bit uint64) {
	h := key * 0x9e3779b97f4a7c15 >> 40
	return &n.filter[h/64], 1 << (h % 64)
}

func (n *needles) add(what string, p []byte) {
	for i := 0; i+16 <= len(p); i += 8 {
		key := binary.LittleEndian.Uint64(p[i:])
		n.all[key] = needle{binary.LittleEndian.Uint64(p[i+8:]), what}
		word, bit := n.bit(key)
		*word |= bit
	}
}

// in tells which of them are in a file, and where.
func (n *needles) in(file []byte) (found map[string]int) {
	found = map[string]int{}
	for i := 0; i+16 <= len(file); i++ {
		key := binary.LittleEndian.Uint64(file[i:])
		if word, bit := n.bit(key); *word&bit == 0 {
			continue
		}
		if is, ok := n.all[key]; ok && is.rest == binary.LittleEndian.Uint64(file[i+8:]) {
			if _, ok := found[is.what]; !ok {
				found[is.what] = i
			}
		}
	}
	return found
}

// content has all of it be needles, and whatever can be computed of it without a key.
func (n *needles) content(name string, p []byte) []byte {
	n.add(name, p)
	whole := sha256.Sum256(p)
	for what, sum := range map[string][32]byte{"SHA-256": whole, "BLAKE3": BLAKE3.sum(p)} {
		n.add(what+" of "+name, sum[:])
		n.add(what+" of "+name+" in hexadecimal", []byte(hex.EncodeToString(sum[:])))
	}
	n.add("compressed "+name, Zstd.compress(nil, p))
	return p
}

// saved are needles of what an ingest has after the first part of a content.
func (n *needles) saved(name string, p []byte) {
	sum := sha256.New()
	sum.Write(p)
	state := must2(saveHash(sum, int64(len(p))))
	n.add("state of the SHA-256 of "+name, state.value[:])
	n.add("block of the SHA-256 of "+name, state.block)
}

// writings are all that writes to a store. Each is given names of contents, which it makes needles.
var writings = map[string]func(t *testing.T, n *needles, s *Store){
	"small values": func(t *testing.T, n *needles, s *Store) {
		for i := range 300 {
			must2(s.Put(n.content(fmt.Sprint("small value ", i), words(uint64(1000+i), 16+i))))
		}
	},
	"blobs of all sizes": func(t *testing.T, n *needles, s *Store) {
		for i, size := range []int{511, 512, 4000, 5000, 65_000, 65_447, 65_448, 200_000, 600_000} {
			must2(s.Put(n.content(fmt.Sprint("text of ", size), words(uint64(i), size))))
			must2(s.Put(n.content(fmt.Sprint("noise of ", size), noise(uint64(i), size))))
		}
	},
	"a Writer": func(t *testing.T, n *needles, s *Store) {
		for _, concurrent := range []bool{false, true} {
			w := s.Writer()
			w.Concurrent(concurrent)
			w.Digest(true)
			p := n.content(fmt.Sprint("what a Writer writes ", concurrent), append(words(50, 300_000), noise(51, 300_001)...))
			if concurrent {
				p[0] ^= 1 // another root, with the digest in use twice
			}
			for len(p) > 0 {
				k := min(len(p), 7777)
				must2(w.Write(p[:k]))
				p = p[k:]
			}
			must2(w.Commit())
			must2(w.ReadFrom(bytes.NewReader(n.content(fmt.Sprint("what a Writer reads ", concurrent), words(52, 100_000)))))
			must2(w.Commit())
		}
	},
	"an unfinished Writer": func(t *testing.T, n *needles, s *Store) {
		must2(s.Writer().Write(n.content("what is not finished", words(60, 500_000))))
	},
	"what is deleted": func(t *testing.T, n *needles, s *Store) {
		must(t, s.Delete(must2(s.Put(n.content("what is deleted", words(61, 500_000))))))
		must(t, collectAll(s))
	},
	"a saved ingest": func(t *testing.T, n *needles, s *Store) {
		p := n.content("what an ingest has", append(words(62, 150_000), noise(63, 40_013)...))
		in := must2(s.Ingest("saved", IngestOptions{Digest: sha256.Sum256(p), Size: int64(len(p))}))
		for _, part := range [][]byte{p[:100], p[100:70_017], p[70_017:190_000]} {
			must2(in.Write(part))
			must(t, in.Save())
		}
		for _, end := range []int{100, 70_017, 190_000} {
			n.saved("what an ingest has", p[:end])
		}
	},
	"a committed ingest": func(t *testing.T, n *needles, s *Store) {
		p := n.content("what an ingest had", words(64, 222_222))
		in := must2(s.Ingest("committed", IngestOptions{WholeDigest: true}))
		must2(in.Write(p[:99_999]))
		must(t, in.Save())
		n.saved("what an ingest had", p[:99_999])
		must2(in.Write(p[99_999:]))
		ref := must2(in.Commit())
		if got := must2(s.ByDigest(sha256.Sum256(p))); got != ref {
			t.Errorf("%v, not %v", got, ref)
		}
	},
	"a lease": func(t *testing.T, n *needles, s *Store) {
		l := must2(s.Lease("lease", time.Now().Add(time.Hour)))
		must(t, l.Add(must2(s.Put(n.content("what a lease holds", words(65, 30_000))))))
	},
	"early writes": func(t *testing.T, n *needles, s *Store) {
		for i := range 40 {
			must2(s.Put(n.content(fmt.Sprint("early ", i), words(uint64(70+i), 100_000))))
			must2(s.Put(n.content(fmt.Sprint("early and small ", i), noise(uint64(70+i), 1000))))
		}
		_ = must2(s.tx.Spill(0))
	},
}

// fileOf is the file of a database, which it closes.
func fileOf(t *testing.T, db *holdfast.DB) []byte {
	t.Helper()
	path := db.Path()
	must(t, db.Close())
	return must2(os.ReadFile(path))
}

// Nothing of what is written to an encrypted store is in the file in clear, nor what can be computed of it without the key, whatever
// writes it; and in a store without encryption, the same search finds it.
func TestNothingInClear(t *testing.T) {
	for _, o := range []Options{{}, {Compression: Zstd}, {Chunking: FastCDC}, {LeafSize: 2048, Chunking: FastCDC, Compression: Zstd}} {
		plain, encrypted := o, o
		plain.Algorithm, encrypted.Key = BLAKE3, testKey
		for name, found := range inClear(t, plain) {
			if len(found) == 0 && shown[name] && o.Compression == NoCompression {
				t.Errorf("%v, %s: the search finds nothing where all is in clear", plain, name)
			}
		}
		for name, found := range inClear(t, encrypted) {
			if len(found) > 0 {
				t.Errorf("%v, %s: in clear, and where: %v", encrypted, name, found)
			}
		}
	}
}

// shown are the writings of which something is in the file of a store without encryption in any case.
var shown = map[string]bool{"small values": true, "blobs of all sizes": true, "a Writer": true, "a saved ingest": true, "a committed ingest": true,
	"a lease": true, "early writes": true}

// inClear is what is found of all writings, each in a transaction of its own, in the file of a store.
func inClear(t *testing.T, o Options) map[string]map[string]int {
	db := newStore(t, o)
	all := map[string]*needles{}
	for name, write := range writings {
		n := newNeedles()
		all[name] = n
		must(t, commits(db, func(s *Store) error { write(t, n, s); return nil }))
	}
	must(t, commits(db, func(s *Store) error { // what a repair copies, too
		must2(s.Check(context.Background(), CheckOptions{Data: true, Digests: true, Repair: true}, nil))
		return nil
	}))
	file := fileOf(t, db)
	found := map[string]map[string]int{}
	for name, n := range all {
		found[name] = n.in(file)
	}
	return found
}

// The search for what is in clear finds what is leaked on purpose: a value, a digest, a state.
func TestLeaksAreFound(t *testing.T) {
	n := newNeedles()
	p := n.content("content", words(1, 5040))
	n.saved("content", p)
	sum := sha256.Sum256(p)
	h := sha256.New()
	h.Write(p)
	state := must2(saveHash(h, int64(len(p))))
	for what, leak := range map[string][]byte{"a part of it": p[1001:1040], "its digest": sum[:], "its address": must2(Options{Algorithm: BLAKE3}.address(p)),
		"its state": state.value[:], "a block": state.block[:16], "it, compressed": Zstd.compress(nil, p)[11:100], "its digest, as text": []byte(hex.EncodeToString(sum[:]))} {
		db := newStore(t, Options{Key: testKey})
		must(t, commits(db, func(s *Store) error {
			must2(s.Put(p))
			return s.bucket.Bucket(packsName).Put([]byte("a leak"), append(append([]byte("xxx"), leak...), "yyyyyyyy"...))
		}))
		if found := n.in(fileOf(t, db)); len(found) == 0 {
			t.Errorf("%s is not found", what)
		}
	}
}

func (o Options) address(p []byte) ([]byte, error) {
	sum := o.sum(p)
	return sum[:], nil
}
