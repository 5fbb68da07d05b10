package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast"
)

// words gives n bytes of text that depend on the seed only, and compress to a third or so.
func words(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 5))
	p := make([]byte, 0, n+16)
	for len(p) < n {
		p = fmt.Appendf(p, "%x key=%d; ", rng.Uint32N(1<<16), rng.Uint32N(100))
	}
	return p[:n]
}

// compressedOf tells of the leaves of a store how many are compressed, by their lengths.
func compressedOf(t testing.TB, s *Store) (compressed, plain map[int]int) {
	compressed, plain = map[int]int{}, map[int]int{}
	for key, v := range s.indexAll() {
		k := parseKey2(key)
		e, err := parseEntry(v)
		must(t, err)
		switch {
		case k.level > 0 && e.stored > 0:
			t.Errorf("node %v is compressed", k)
		case e.stored > 0:
			compressed[e.length]++
			if e.stored > e.length-e.length/8 || !e.packed || e.id%2 != 1 {
				t.Errorf("chunk of %d bytes: %+v", e.length, e)
			}
		case k.level == 0:
			plain[e.length]++
		}
	}
	return compressed, plain
}

// The same content has the same reference in a store with compression, in whatever pieces it comes; what is read of it
// is what was written; and of text the store has less.
func TestCompressionKeepsReferences(t *testing.T) {
	for i, o := range []Options{
		{}, {Algorithm: BLAKE3}, {Chunking: FastCDC}, {LeafSize: 1 << 20}, {LeafSize: MinLeafSize, Chunking: FastCDC},
	} {
		packed := o
		packed.Compression = [...]Compression{Zstd, ZstdBetter}[i%2]
		plain, db := newStore(t, o), newStore(t, packed)
		for i, size := range []int{0, 1, minCompressed - 1, minCompressed, 4000, 4096, 5000, 65487, 65488, 65489, 300_000, 1 << 20, 5_000_000} {
			for kind, content := range map[string][]byte{"text": words(uint64(i), size), "noise": noise(uint64(i), size),
				"both": append(noise(uint64(i), size/2), words(uint64(i), size-size/2)...)} {
				var want, ref Ref
				update2(t, plain, func(s *Store) { want = must2(s.Put(content)) })
				for way, put := range putWays {
					update2(t, db, func(s *Store) { ref = must2(put(s, content)) })
					if ref != want {
						t.Errorf("%v, %s of %d bytes by %s: %v, not %v", o, kind, size, way, ref, want)
					}
				}
				view(t, db, func(s *Store) { must(t, reads(s, ref, content)) })
			}
		}
		view(t, db, func(s *Store) {
			checkStore(t, s)
			u := must2(s.Usage())
			must(t, checkClean(s, CheckOptions{Data: true}))
			if u.Compressed == 0 || u.LeafBytes > u.LeafContent*4/5 || u.LiveContent != u.LeafContent {
				t.Errorf("%v: %+v", o, u)
			}
			compressed, uncompressed := compressedOf(t, s)
			least := [3]int{compressed[minCompressed-1], compressed[minCompressed], uncompressed[minCompressed-1]}
			if want := [3]int{0, 1, 3}; least != want && o.LeafSize != MinLeafSize {
				t.Errorf("%v: of the shortest leaves, %v, not %v", o, least, want)
			}
		})
		view(t, plain, func(s *Store) {
			if compressed, _ := compressedOf(t, s); len(compressed) > 0 || s.Options().Compression != NoCompression {
				t.Errorf("%v: without compression %v is compressed", o, compressed)
			}
		})
	}
}

// A store without compression is one of version 2, which older programs read, and one with it of version 3, which they refuse.
func TestCompressionIsRecorded(t *testing.T) {
	for _, o := range []Options{{}, {Compression: Zstd}, {Compression: ZstdBetter}} {
		view(t, newStore(t, o), func(s *Store) {
			config := s.bucket.Get(configName)
			if want := []byte{'H', 'F', 'B', 'S', 2 + min(byte(o.Compression), 1), 1, 1, byte(o.Compression)}; !bytes.Equal(config[:8], want) {
				t.Errorf("%v: %x", o, config)
			}
			if s.Options().Compression != o.Compression {
				t.Errorf("%v: %v", o, s.Options())
			}
		})
	}
	o := Options{Compression: Zstd}
	o.setDefaults(4096)
	for name, spoil := range map[string]func(b []byte){
		"version 2":        func(b []byte) { b[4] = 2 },
		"version 1":        func(b []byte) { b[4] = 1 },
		"version 5":        func(b []byte) { b[4] = 5 },
		"no compression":   func(b []byte) { b[7] = 0 },
		"another one":      func(b []byte) { b[7] = 3 },
		"another checksum": func(b []byte) { b[12]++ },
	} {
		b := appendConfig(nil, o)
		spoil(b)
		if name != "another checksum" {
			binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b[:12], castagnoli))
		}
		if _, err := parseConfig(b, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		} else if name == "version 5" && !strings.Contains(err.Error(), "version 5 of the format is unknown") {
			t.Error(err)
		} else if newer := name == "version 5" || name == "another one"; newer != strings.HasSuffix(err.Error(), "; a newer program may have written it") {
			t.Errorf("%s: %v", name, err) // it was called damaged only, though it has its checksum
		}
	}
}

// Better compression makes other frames, which are shorter, sealed or not; a store of either level reads frames of the other.
func TestBetterCompression(t *testing.T) {
	content := bytes.Repeat(words(1, 30_000), 3)
	for i := range content { // what repeats is broken up
		if i%97 == 0 {
			content[i] = byte(i / 97)
		}
	}
	for _, key := range []*Key{nil, testKey} {
		var stored [3]int64
		for _, c := range []Compression{Zstd, ZstdBetter} {
			view(t, filled(t, Options{Compression: c, Key: key, LeafSize: 1 << 20}, content), func(s *Store) {
				u := must2(s.Usage())
				if stored[c] = u.LeafBytes; u.Compressed != 1 || s.Options().Compression != c {
					t.Errorf("%v: %+v", s.Options(), u)
				}
				must(t, checkClean(s, CheckOptions{Data: true}))
			})
		}
		if stored[ZstdBetter] >= stored[Zstd] {
			t.Errorf("it is no shorter: %d", stored)
		}
	}
	for from, to := range map[Compression]Compression{Zstd: ZstdBetter, ZstdBetter: Zstd} {
		s := &Store{options: Options{Compression: to, LeafSize: 1 << 20}}
		if p, err := s.decompress(nil, from.compress(nil, content), len(content)); err != nil || !bytes.Equal(p, content) {
			t.Errorf("%v in a store of %v: %v", from, to, err)
		}
	}
}

// filled is a store with a blob.
func filled(t *testing.T, o Options, content []byte) *holdfast.DB {
	db := newStore(t, o)
	update2(t, db, func(s *Store) { must2(s.Put(content)) })
	return db
}

// What is built for compression and encryption leaves the file of a store that has neither as it was, byte for byte. The sums change
// when pages are laid out otherwise.
func TestFileWithoutCompression(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the file grows otherwise")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // where chunks lie depends on whether one is hashed while another is copied
	for chunking, want := range map[Chunking]string{FixedSize: goldenFixed, FastCDC: goldenFastCDC} {
		db := goldenStore(t, chunking)
		var size int64
		must(t, db.View(func(tx *holdfast.Tx) error { size = tx.Size(); return nil }))
		path := db.Path()
		must(t, db.Close())
		file := must2(os.ReadFile(path))[2*4096 : size] // what the metas say beside depends on the clock
		if got := SHA256.sum(file).String(); got != want {
			t.Errorf("%v: the file is %s, not %s", chunking, got, want)
		}
	}
}

const (
	goldenFixed   = "380c88d721d3bc68d7ff033e1712ad20b75badf24f335c59b00dfe7dd0de4c1d"
	goldenFastCDC = "5f7229ccc31cc82164ea7a1a762b419bf5094fe0a46b4701e53127a63b1a22c8"
)

// goldenStore has leaves of all kinds, some of which have been removed, and nodes.
func goldenStore(t testing.TB, c Chunking) *holdfast.DB {
	db := newStore(t, Options{Chunking: c})
	for i, size := range []int{10, 600, 5000, 20_000, 70_000, 400_000, 9_000_000} {
		must(t, commits(db, func(s *Store) error {
			ref, err := s.Put(words(uint64(i), size))
			if err == nil && i%3 == 0 {
				err = s.Delete(ref)
			}
			if err == nil && i == 5 {
				_, _, err = s.Collect(2)
			}
			return err
		}))
	}
	return db
}

// Where a leaf is read in pieces it is decompressed once, by ReadAt too; several goroutines read what they ask for.
func TestReadingCompressed(t *testing.T) {
	for _, o := range []Options{{Compression: Zstd}, {Compression: Zstd, Chunking: FastCDC}, {Compression: Zstd, LeafSize: 1 << 20}} {
		db := newStore(t, o)
		content := append(append(words(1, 700_000), noise(2, 200_000)...), words(3, 300_000)...)
		var ref Ref
		update(t, db, func(s *Store) { ref = must2(s.Put(content)) })
		at := func(r *Reader, rng *rand.Rand) {
			begin := rng.IntN(len(content))
			p := make([]byte, rng.IntN(min(200_000, len(content)-begin)))
			if n, err := r.ReadAt(p, int64(begin)); err != nil || !bytes.Equal(p, content[begin:begin+n]) || n < len(p) {
				t.Errorf("%v: %d bytes at %d: %d, %v", o, len(p), begin, n, err)
			}
		}
		view(t, db, func(s *Store) {
			r := must2(s.Reader(ref))
			var wg sync.WaitGroup
			for g := range uint64(4) {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(g, 1))
					for range 100 {
						at(r, rng)
					}
				})
			}
			wg.Wait()
		})
		for _, writing := range []bool{false, true} {
			must(t, inTransactionOf(db, writing, func(s *Store) error {
				r := must2(s.Reader(ref))
				rng := rand.New(rand.NewPCG(1, 2))
				for range 50 {
					begin := rng.IntN(len(content))
					must2(r.Seek(int64(begin), io.SeekStart))
					p := make([]byte, rng.IntN(min(150_000, len(content)-begin)))
					if _, err := io.ReadFull(r, p); err != nil || !bytes.Equal(p, content[begin:begin+len(p)]) {
						t.Errorf("%v: %d bytes at %d: %v", o, len(p), begin, err)
					}
					at(r, rng)
				}
				var rest bytes.Buffer
				must2(r.Seek(100, io.SeekStart))
				must2(r.WriteTo(&rest))
				if !bytes.Equal(rest.Bytes(), content[100:]) {
					t.Errorf("%v: WriteTo gives other bytes", o)
				}
				return nil
			}))
		}
	}
}

// commits runs fn in a transaction that commits.
func commits(db *holdfast.DB, fn func(s *Store) error) error {
	return db.Update(func(tx *holdfast.Tx) error { return fn(openIn(tx)) })
}

// inTransactionOf runs fn in a transaction.
func inTransactionOf(db *holdfast.DB, writing bool, fn func(s *Store) error) error {
	if writing {
		return commits(db, fn)
	}
	return db.View(func(tx *holdfast.Tx) error { return fn(openIn(tx)) })
}

// A chunk that has been removed in the transaction is missing, though the reader has its content.
func TestCompressedAndRemoved(t *testing.T) {
	db := newStore(t, Options{Compression: Zstd})
	must(t, commits(db, func(s *Store) error {
		ref := must2(s.Put(words(1, 50_000)))
		r := must2(s.Reader(ref))
		p := make([]byte, 100)
		must2(r.Read(p))
		must2(r.ReadAt(p, 7))
		must(t, s.Delete(ref))
		must(t, collectAll(s))
		if n, err := r.Read(p); !errors.Is(err, ErrMissing) {
			t.Errorf("Read: %d, %v", n, err)
		}
		if n, err := r.ReadAt(p, 7); !errors.Is(err, ErrMissing) {
			t.Errorf("ReadAt: %d, %v", n, err)
		}
		return nil
	}))
}

func collectAll(s *Store) error {
	for more := true; more; {
		var err error
		if _, more, err = s.Collect(1000); err != nil {
			return err
		}
	}
	return nil
}

// After a leaf that is damaged, the reader gives the one before as it is.
func TestReadAfterDamagedCompressed(t *testing.T) {
	db := newStore(t, Options{Compression: Zstd})
	content := words(1, 200_000)
	var ref Ref
	must(t, commits(db, func(s *Store) error {
		ref = must2(s.Put(content))
		must(t, s.flush())
		d := &damaged{Store: s, t: t, tree: ref}
		other := must2(s.Put(words(2, s.options.LeafSize))).key()
		e := d.entry(other)
		d.change(d.child(1), func(was *entry) { was.id, was.stored = e.id, e.stored }) // another leaf, which can be decompressed
		return nil
	}))
	view(t, db, func(s *Store) {
		r := must2(s.Reader(ref))
		p := make([]byte, 1000)
		size := int64(s.options.LeafSize)
		for range 3 {
			must2(r.Seek(size-500, io.SeekStart))
			if n, err := io.ReadFull(r, p); !errors.Is(err, ErrCorrupt) || !bytes.Equal(p[:n], content[size-500:size]) || n != 500 {
				t.Fatalf("%d bytes, %v", n, err)
			}
			var damage *CorruptError
			if n, err := r.ReadAt(p, size-500); !errors.As(err, &damage) || damage.Offset != size || !bytes.Equal(p[:n], content[size-500:size]) || n != 500 {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
	})
}

// Content that is in the store already is not compressed again, and content that cannot be compressed is stored as it is.
func TestNotCompressed(t *testing.T) {
	for _, c := range []struct {
		name    string
		content []byte
	}{{"noise", noise(1, 1<<20)}, {"frames", compressedWords(1 << 20)}} {
		for _, concurrent := range []bool{false, true} {
			db := newStore(t, Options{Compression: Zstd})
			update(t, db, func(s *Store) {
				w := s.Writer()
				w.Concurrent(concurrent)
				must2(w.Write(c.content))
				must2(w.Commit())
			})
			view(t, db, func(s *Store) {
				if compressed, _ := compressedOf(t, s); len(compressed) > 0 {
					t.Errorf("%s is compressed: %v", c.name, compressed)
				}
				leaves := 0
				for range s.leaves.All() {
					leaves++
				}
				if want := len(c.content) / s.options.LeafSize; leaves != want {
					t.Errorf("%d of %d leaves have pages of their own", leaves, want)
				}
			})
		}
	}
}

func compressedWords(n int) (p []byte) {
	for seed := uint64(0); len(p) < n; seed++ {
		p = Zstd.compress(p, words(seed, 60_000))
	}
	return p[:n]
}

// What Stat, Usage, Reclaimable and Collect tell of bytes is what is stored of them.
func TestCompressedBytesAreCounted(t *testing.T) {
	db := newStore(t, Options{Compression: Zstd})
	content := words(1, 500_000)
	var ref Ref
	update(t, db, func(s *Store) { ref = must2(s.Put(content)) })
	var st Stat
	view(t, db, func(s *Store) {
		st = must2(s.Stat(ref))
		u := must2(s.Usage())
		if st.Content != int64(len(content))+16+8*32 || st.Stored > st.Content/2 || u.LeafBytes+u.NodeBytes != st.Stored ||
			u.LeafContent != int64(len(content)) || u.Compressed != 8 || u.DeadBytes != 0 {
			t.Errorf("%+v of %+v", st, u)
		}
	})
	must(t, commits(db, func(s *Store) error {
		if _, bytes, err := s.Reclaimable([]Ref{ref}); err != nil || bytes != st.Stored {
			t.Errorf("%d bytes could be reclaimed, not %d: %v", bytes, st.Stored, err)
		}
		return s.Delete(ref)
	}))
	view(t, db, func(s *Store) { // leaves are known to be dead when the root has gone
		if u := must2(s.Usage()); u.Dead != 1 || u.DeadBytes != u.NodeBytes || u.LiveContent != u.LeafContent {
			t.Errorf("%+v", u)
		}
	})
	stats, err := Collect(context.Background(), db, func(tx *holdfast.Tx) (*Store, error) { return openIn(tx), nil }, CollectOptions{Hold: time.Hour})
	if err != nil || stats.Bytes != st.Stored {
		t.Errorf("%+v, %v; stored were %d bytes", stats, err, st.Stored)
	}
}
