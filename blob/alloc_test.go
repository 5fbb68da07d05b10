//go:build !race

package blob

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"holdfast"
)

// Storing allocates nothing for a blob or a chunk, whatever its size, once a transaction
// has its buffers. What is left is one for each step by which the file grows, what the
// database's own structures take, which grow by doubling, and some tens for each time that
// the transaction writes its index early. (With 30 blobs of 10 MB some dozens more, as of pools and queues on a machine with other
// work, were beyond the bound now and then.)
func TestPutAllocations(t *testing.T) {
	for _, c := range []struct {
		size, count int
		concurrent  bool
		compression Compression
		key         *Key
	}{{1e3, 20_000, false, 0, nil}, {1e4, 15_000, false, 0, nil}, {1e5, 3000, false, 0, nil}, {1e6, 300, false, 0, nil}, {1e7, 60, false, 0, nil},
		{1e6, 300, true, 0, nil}, {1e7, 60, true, 0, nil},
		{1e3, 20_000, false, Zstd, nil}, {1e4, 5_000, false, Zstd, nil}, {1e6, 300, false, Zstd, nil}, {1e7, 60, true, Zstd, nil},
		{1e3, 20_000, false, 0, testKey}, {1e4, 5_000, false, Zstd, testKey}, {1e6, 300, false, 0, testKey}, {1e7, 60, true, Zstd, testKey}} {
		t.Run(fmt.Sprintf("%d-%v-%v-%v", c.size, c.concurrent, c.compression, c.key != nil), func(t *testing.T) {
			if strconv.IntSize == 32 && c.size*c.count > 1<<28 {
				t.Skip("the mappings of a transaction of half a GiB have no room in the addresses of a 32-bit program")
			}
			db := newStore(t, Options{Compression: c.compression, Key: c.key})
			data := random(1, c.size)
			fresh := fresher(data)
			fill := func(s *Store, w *Writer, count int) {
				for range count {
					fresh()
					_, err := w.Write(data)
					must(t, err)
					_, err = w.Commit()
					must(t, err)
				}
			}
			update(t, db, func(s *Store) { fill(s, s.Writer(), 1) })
			must(t, db.Update(func(tx *holdfast.Tx) error {
				s := openIn(tx)
				w := s.Writer()
				w.Concurrent(c.concurrent)
				fill(s, w, c.count)
				must(t, s.flush())
				var before, after runtime.MemStats
				if c.compression != NoCompression { // encoders are in a pool, which the collector empties when it runs
					defer debug.SetGCPercent(debug.SetGCPercent(-1))
				}
				runtime.ReadMemStats(&before)
				fill(s, w, c.count)
				must(t, s.flush())
				runtime.ReadMemStats(&after)
				chunks := c.count * (c.size/s.options.LeafSize + 1)
				limit := 0.03
				if runtime.GOOS == "windows" { // each growth of the file takes a new mapping
					limit = 0.06
				}
				if got := float64(after.Mallocs-before.Mallocs) / float64(chunks); got >= limit {
					t.Errorf("%.3f allocations for each chunk of %d blobs of %d bytes", got, c.count, c.size)
				} else {
					t.Logf("%.3f allocations for each chunk, %.3f for each blob", got, float64(after.Mallocs-before.Mallocs)/float64(c.count))
				}
				return nil
			}))
		})
	}
}

// A transaction with one small blob took 43 allocations, most of them to open the buckets of the store, and to
// have memory given back in the order of the commits.
func TestOnePutAllocations(t *testing.T) {
	db := newStore(t, Options{})
	data := random(1, 1000)
	fresh := fresher(data)
	put := func(count int) {
		must(t, db.Update(func(tx *holdfast.Tx) error {
			s := openIn(tx)
			for range count {
				fresh()
				must2(s.Put(data))
			}
			return nil
		}))
	}
	put(20_000)
	const most = 20
	if got := testing.AllocsPerRun(500, func() { put(1) }); got > most {
		t.Errorf("%v allocations, at most %d are meant", got, most)
	} else {
		t.Logf("%v allocations", got)
	}
}

func TestReadAllocations(t *testing.T) {
	for _, o := range []Options{{}, {Compression: Zstd}, {Key: testKey}, {Compression: Zstd, Key: testKey}} {
		t.Run(o.String(), func(t *testing.T) { readAllocations(t, o) })
	}
}

func readAllocations(t *testing.T, o Options) {
	db := newStore(t, o)
	data := random(1, 20_000_000)
	var ref Ref
	update(t, db, func(s *Store) {
		var err error
		ref, err = s.Put(data)
		must(t, err)
	})
	view(t, db, func(s *Store) {
		r, err := s.Reader(ref)
		must(t, err)
		_, err = r.WriteTo(io.Discard)
		must(t, err)
		if got := testing.AllocsPerRun(10, func() {
			must2(r.Seek(0, io.SeekStart))
			must2(r.WriteTo(io.Discard))
		}); got > 4 {
			t.Errorf("WriteTo allocates %v times", got)
		}
		p := make([]byte, 4096)
		if got := testing.AllocsPerRun(1000, func() {
			at := rand.IntN(len(data) - len(p))
			if _, err := r.ReadAt(p, int64(at)); err != nil || !bytes.Equal(p, data[at:at+len(p)]) {
				t.Fatal(err)
			}
		}); got > 0 {
			t.Errorf("ReadAt allocates %v times", got)
		}
	})
}

// A row with a short inline blob was written with one allocation for each, since a Ref that is
// comparable cannot keep the caller's slice: 200,000 rows took a tenth more time.
func TestInlineAllocations(t *testing.T) {
	db := newStore(t, Options{})
	update(t, db, func(s *Store) {
		s.InlineUpTo(len(Address{}))
		p, row := random(1, len(Address{})), make([]byte, 0, 64)
		if got := testing.AllocsPerRun(1000, func() {
			ref, err := s.Put(p)
			must(t, err)
			row, err = ref.AppendBinary(row[:0])
			must(t, err)
			if err := ref.UnmarshalBinary(row); err != nil || !bytes.Equal(row[1:], p) {
				t.Fatal(err)
			}
		}); got > 0 {
			t.Errorf("Put allocates %v times", got)
		}
	})
}

// Inline values of the same beginning are different blobs, and a Ref does not follow a slice.
func TestInlineRefsDiffer(t *testing.T) {
	seen, p := make(map[Ref]int), make([]byte, MaxInline)
	for n := range MaxInline + 1 {
		ref := inlineRef(SHA256, p[:n])
		if at, ok := seen[ref]; ok {
			t.Fatalf("%d zeros are equal to %d", n, at)
		}
		seen[ref] = n
		if v, ok := ref.Inline(); !ok || string(v) != string(p[:n]) || ref.Size() != int64(n) || ref.Address() != SHA256.sum(p[:n]) {
			t.Fatalf("%d zeros: %q, %v", n, v, ok)
		}
	}
	p[0] = 1
	for ref, n := range seen {
		if v, _ := ref.Inline(); len(v) != n || strings.Trim(string(v), "\x00") != "" {
			t.Fatalf("%d zeros became %q", n, v)
		}
	}
}
