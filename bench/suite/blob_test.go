package suite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/blob"
)

// tinyBlobs is as small as the groups about blobs can be.
func tinyBlobs(t *testing.T) Config {
	return Config{Dir: t.TempDir(), Rounds: 1, Log: io.Discard, Blobs: BlobConfig{
		Written: 1 << 20, Amplified: 2 << 20, Large: 3<<20 + 5, Rows: 2000, Sized: 200, Reads: 20, Small: 2000,
	}}
}

// TestBlobGroups runs every group once and sees a table, with targets.
func TestBlobGroups(t *testing.T) {
	for _, group := range BlobGroups {
		t.Run(group.Name, func(t *testing.T) {
			c := tinyBlobs(t)
			c.Blobs.Dolt = fakeDolt(t)
			table, err := group.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range table.Rows {
				measured := 0
				for name, cell := range row.Cells {
					if !slices.Contains(table.Columns, name) {
						t.Errorf("%s: %q was measured and has no column", row.Workload, name)
					}
					if cell.Median > 0 || cell.Text != "" {
						measured++
					}
				}
				may := strings.Contains(row.Workload, "allocations") || strings.Contains(row.Workload, "collector")
				if measured == 0 && !may {
					t.Errorf("%s: nothing was measured", row.Workload)
				}
			}
			if len(table.Rows) == 0 || len(table.Targets) == 0 {
				t.Errorf("the table has %d rows, there are %d targets", len(table.Rows), len(table.Targets))
			}
			if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// fakeDolt is a program that answers as that of bench/dolt, with what it was asked.
func fakeDolt(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "dolt")
	text := "#!/bin/sh\nwhile read what store a b dir; do\n\t[ -d \"$dir\" ] || exit 1\n\techo $a.5 $b\ndone\n"
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDolt sees what is asked and answered, and that a program which ends is an error.
func TestDolt(t *testing.T) {
	c := tinyBlobs(t)
	d, err := startDolt(fakeDolt(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{7, 8} {
		if s, err := d.ask(&c, "blobs", "memory", n, 2*n); err != nil || s.value != float64(n)+0.5 || s.allocs != float64(2*n) {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	if d, err = startDolt("/bin/true"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ask(&c, "blobs", "memory", 1, 1); err == nil {
		t.Error("no answer is not an error")
	}
	_ = d.stop()
}

// TestBlobSource sees that no part of any blob comes twice, however the blobs are cut.
func TestBlobSource(t *testing.T) {
	for _, size := range []int{1000, 10_000, 64 << 10, 100_000} {
		for _, chunk := range []int{stampedChunk, 64<<10 - 48} {
			source := newBlobSource(size, 400_000)
			seen := map[string]bool{}
			for range 2 {
				for i := range source.perTx {
					for piece := range slices.Chunk(source.blob(i), chunk) {
						if seen[string(piece)] {
							t.Fatalf("blobs of %d bytes: a chunk of %d comes twice", size, len(piece))
						}
						seen[string(piece)] = true
					}
				}
			}
			if want := 2 * source.perTx * ((size + chunk - 1) / chunk); len(seen) != want {
				t.Errorf("blobs of %d bytes: %d chunks, want %d", size, len(seen), want)
			}
		}
	}
	source := newBlobSource(1000, 100_000)
	if a, b := source.blob(0), source.blob(1); source.perTx != 100 || bytes.Equal(a, b) || source.transactions(1e6) != 10 || source.transactions(1) != 1 {
		t.Errorf("%d blobs in a transaction, %d transactions", source.perTx, source.transactions(1e6))
	}
}

// stampedChunk is the smallest of the chunks that are to be new each.
const stampedChunk = renewStride + 96

// recorder is a sink that keeps what it is given.
type recorder struct {
	blobs  [][]byte
	events strings.Builder
	each   int // allocations of one blob
	junk   []*int64
}

func (r *recorder) begin() error  { r.events.WriteByte('b'); return nil }
func (r *recorder) commit() error { r.events.WriteByte('c'); return nil }
func (r *recorder) close() error  { return nil }
func (r *recorder) put(p []byte) error {
	if r.each > 0 {
		for range r.each {
			r.junk[0] = new(int64)
		}
		return nil
	}
	r.blobs = append(r.blobs, p)
	r.events.WriteByte('p')
	return nil
}

func TestSourceWrite(t *testing.T) {
	var r recorder
	n, err := newBlobSource(1000, 3000).write(&r, 2)
	if err != nil || n != 6 || r.events.String() != "bpppcbpppc" {
		t.Errorf("%d blobs, %v: %s", n, err, r.events.String())
	}
}

// TestOneMore sees that what each blob allocates is counted, and what a transaction does is not.
func TestOneMore(t *testing.T) {
	for _, each := range []int{1, 3} {
		r := &recorder{each: each, junk: make([]*int64, 1)}
		got, err := oneMore(r, newBlobSource(100, 1), 1000)
		if err != nil || math.Abs(got-float64(each)) > 0.1 {
			t.Errorf("%v allocations, want %d; %v", got, each, err)
		}
	}
	if got, err := oneMore(new(hashSink), newBlobSource(100, 1), 1000); err != nil || got > 0.05 {
		t.Errorf("a hash takes %v allocations, %v", got, err)
	}
}

func TestCollectorShare(t *testing.T) {
	quiet := collectorSince()
	if share := quiet.share(); share != 0 {
		t.Errorf("nothing was allocated, and the collector took %v", share)
	}
	busy := collectorSince()
	var keep [][]*int64
	for range 200 {
		all := make([]*int64, 20_000)
		for i := range all {
			all[i] = new(int64)
		}
		if keep = append(keep, all); len(keep) > 50 {
			keep = keep[1:]
		}
	}
	runtime.GC() // one that has begun need not have ended by now
	if share := busy.share(); share <= 0 || share >= 1 {
		t.Errorf("the collector took %v of the time", share)
	}
	_ = keep
}

func TestSumsOfSamples(t *testing.T) {
	a, b := []sample{{value: 1}, {value: 2}}, []sample{{value: 10}, {value: 20}}
	if s := sums(a, b, b); s[0].value != 21 || s[1].value != 42 || a[0].value != 1 {
		t.Errorf("%v of %v", s, a)
	}
	if d := differences(a, b); d[0].value != -9 || d[1].value != -18 {
		t.Errorf("%v", d)
	}
	for n, want := range map[int64]string{1e3: "1 kB", 1e6: "1 MB", 1e9: "1 GB", 64 << 10: "64 KiB", 256 << 20: "256 MiB", 7: "7 B", 65_488: "65488 B"} {
		if got := wholeBytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := signedDuration(-5e6); got != "-5 ms" {
		t.Error(got)
	}
}

// TestPwriteSink sees that whole pages are written, as many as hold the bytes.
func TestPwriteSink(t *testing.T) {
	path := t.TempDir() + "/file"
	s, err := openPwrite(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := written()
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for _, n := range []int{100, 8192, 40 << 20} {
		if err := errors.Join(s.put(make([]byte, n/2)), s.put(make([]byte, n-n/2)), s.commit()); err != nil {
			t.Fatal(err)
		}
		want += int64(n+pageSize-1) / pageSize * pageSize
	}
	after, err := written()
	if err := errors.Join(err, s.close()); err != nil {
		t.Fatal(err)
	}
	if size, err := sizeOf(path); err != nil || size != want || after-before < want {
		t.Errorf("%d bytes in the file, %d were written, want %d; %v", size, after-before, want, err)
	}
}

func TestSizedValues(t *testing.T) {
	const n = 100_000
	least, most, sum := math.MaxInt, 0, 0
	for i := range n {
		v := sizedValue(nil, i, i%2)
		least, most, sum = min(least, len(v)), max(most, len(v)), sum+len(v)
		if i < 100 && !bytes.Equal(v, sizedValue(nil, i, i%2)) {
			t.Fatal("a value is not the same again")
		}
	}
	if least != sizedLeast || most < sizedMost/2 || most > sizedMost || sum/n < 1500 || sum/n > 3000 {
		t.Errorf("%d to %d bytes, %d on average", least, most, sum/n)
	}
	for _, i := range []int{0, 199_999} {
		if v := rowKinds[0].value(nil, i, 0); len(v) < 6 || len(v) > 11 || !bytes.Equal(v, rowKinds[0].value(nil, i, 1)) {
			t.Errorf("%q, %q", v, rowKinds[0].value(nil, i, 1))
		}
		if a, b := rowKinds[1].value(nil, i, 0), rowKinds[1].value(nil, i, 1); bytes.Equal(a, b) || len(a) != len(b) {
			t.Errorf("%q, %q", a, b)
		}
	}
}

// TestSlab sees that what was taken stays as it is.
func TestSlab(t *testing.T) {
	var s slab
	for range 2 {
		var all [][]byte
		for i := range 3000 {
			b := s.take(1000)
			if len(b) != 0 || cap(b) < 1000 {
				t.Fatalf("%d bytes with room for %d", len(b), cap(b))
			}
			all = append(all, binary.BigEndian.AppendUint64(b, uint64(i)))
		}
		all = append(all, append(s.take(2*slabBlock), make([]byte, 2*slabBlock)...))
		for i, b := range all[:3000] {
			if got := binary.BigEndian.Uint64(b); got != uint64(i) {
				t.Fatalf("slice %d holds %d", i, got)
			}
		}
		s.reset()
	}
	if len(s.blocks) > 5 {
		t.Errorf("%d blocks: memory is not used again", len(s.blocks))
	}
}

// TestImportRows sees that each row is there and names its blobs.
func TestImportRows(t *testing.T) {
	const n = 500
	for _, inline := range []bool{false, true} {
		for _, k := range rowKinds {
			path := t.TempDir() + "/db"
			to, err := openBlobRows(path, inline)
			if err != nil {
				t.Fatal(err)
			}
			bytes, err := importRows(to, &k, n, 2, 120)
			if err := errors.Join(err, to.close()); err != nil {
				t.Fatal(err)
			}
			if sum := lookAtRows(t, path, &k, n); sum != bytes {
				t.Errorf("%s: %d bytes were imported, and %d are there", k.name, bytes, sum)
			}
		}
	}
}

// lookAtRows compares n rows with two blobs each, and gives the bytes of the blobs.
func lookAtRows(t *testing.T, path string, k *rowKind, n int) (sum int64) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *holdfast.Tx) error {
		s, err := openStore(tx)
		if err != nil {
			return err
		}
		i := 0
		err = tx.Bucket(bucketName).ForEach(func(key, row []byte) error {
			if binary.BigEndian.Uint64(key) != uint64(i) {
				t.Fatalf("row %d has the key %x", i, key)
			}
			refs := row[rowColumns:]
			for column := range 2 {
				want := k.value(nil, i, column)
				ref, rest := firstRef(t, refs, int64(len(want)))
				got, err := readBlob(s, ref)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("row %d, column %d: %d bytes, %v", i, column, len(got), err)
				}
				refs, sum = rest, sum+int64(len(got))
			}
			i++
			return nil
		})
		if i != n {
			t.Errorf("%d rows, want %d", i, n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// firstRef finds the reference to a blob of so many bytes at the front of b: the encoding
// says how long it is to nobody but the one who decodes it whole.
func firstRef(t *testing.T, b []byte, size int64) (ref blob.Ref, rest []byte) {
	t.Helper()
	for n := 1; n <= len(b); n++ {
		if err := ref.UnmarshalBinary(b[:n]); err == nil && ref.Size() == size {
			return ref, b[n:]
		}
	}
	t.Fatalf("no reference to %d bytes in %x", size, b)
	return ref, nil
}

func readBlob(s *blob.Store, ref blob.Ref) ([]byte, error) {
	r, err := s.Reader(ref)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// TestLarge sees the same bytes in each kind of file, from one end to the other and in parts.
func TestLarge(t *testing.T) {
	const size = 3<<20 + 12_345
	want, err := io.ReadAll(newLargeReader(size))
	if err != nil || len(want) != size {
		t.Fatalf("%d bytes, %v", len(want), err)
	}
	for _, k := range largeKinds {
		t.Run(strings.ReplaceAll(k.name, " ", "-"), func(t *testing.T) {
			path := t.TempDir() + "/file"
			if err := k.build(path, size); err != nil {
				t.Fatal(err)
			}
			l, err := k.open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			if n, err := l.verified(); err != nil || n != size {
				t.Errorf("%d bytes were verified, %v", n, err)
			}
			if n, err := l.copied(make([]byte, 1<<20)); err != nil || n != size {
				t.Errorf("%d bytes were copied, %v", n, err)
			}
			p := make([]byte, randomRead)
			for _, at := range append(offsets(100, size, randomRead), 0, size-randomRead) {
				if err := l.readAt(p, at); err != nil || !bytes.Equal(p, want[at:at+randomRead]) {
					t.Fatalf("other bytes at %d, %v", at, err)
				}
			}
		})
	}
}

// TestNothingLeft sees that a blob which is still there is noticed.
func TestNothingLeft(t *testing.T) {
	path := t.TempDir() + "/db"
	if err := buildLargeBlob(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	db, err := holdfast.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := nothingLeft(db); err == nil {
		t.Error("a blob is there, and was not seen")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := removeBlob(path, true)
	if err != nil || len(r.transactions) < 2 || len(r.held) == 0 || r.took <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestIngested sees that a blob is the same in one transaction and in an ingest.
func TestIngested(t *testing.T) {
	var refs []blob.Ref
	for _, build := range []func(string, int64) error{buildLargeBlob, buildIngested} {
		path := filepath.Join(t.TempDir(), "db")
		if err := build(path, 3*blobTx+5); err != nil {
			t.Fatal(err)
		}
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *holdfast.Tx) error {
			ref, err := largeRef(tx)
			refs = append(refs, ref)
			return err
		})
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if refs[0].String() != refs[1].String() || refs[0].Size() != 3*blobTx+5 {
		t.Errorf("%v in one transaction, %v in an ingest", refs[0], refs[1])
	}
}

// TestMemoryOf sees the memory of a child, and its errors.
func TestMemoryOf(t *testing.T) {
	c := tinyBlobs(t)
	if n, err := c.memoryOf(rowKinds[0].name, 1000); err != nil || n < 1<<20 || n > 1<<30 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := c.memoryOf("none", 1000); err == nil {
		t.Error("rows that are not there are no error")
	}
}
