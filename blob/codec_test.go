package blob

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"holdfast"
)

func someRefs() []Ref {
	a := SHA256.sum([]byte("a"))
	return []Ref{
		{algorithm: SHA256, addr: a, size: 0},
		{algorithm: BLAKE3, addr: a, size: 65488},
		{algorithm: SHA256, addr: a, size: 65489, level: 1},
		{algorithm: SHA256, addr: a, size: math.MaxInt64, level: maxLevel},
		inlineRef(SHA256, []byte{}),
		inlineRef(BLAKE3, []byte("hello")),
		inlineRef(SHA256, random(1, len(Address{})-1)),
		inlineRef(SHA256, random(1, len(Address{}))),
		inlineRef(SHA256, random(1, len(Address{})+1)),
		inlineRef(SHA256, random(1, MaxInline)),
	}
}

// References are read as they were written; nothing else is a reference.
func TestRefEncoding(t *testing.T) {
	for _, r := range someRefs() {
		b, err := r.MarshalBinary()
		must(t, err)
		if p, inline := r.Inline(); !inline && len(b) > 48 || inline && len(b) != 1+len(p) {
			t.Errorf("%v takes %d bytes", r, len(b))
		}
		var again Ref
		if err := again.UnmarshalBinary(b); err != nil || again != r {
			t.Errorf("%v came back as %v, %v", r, again, err)
		}
		text, err := r.MarshalText()
		must(t, err)
		if err := again.UnmarshalText(text); err != nil || again != r {
			t.Errorf("%s came back as %v, %v", text, again, err)
		}
		a, addr, tree, err := parseDigest(r.String())
		if err != nil || a != r.Algorithm() || addr != r.Address() || tree != (r.Level() > 0) {
			t.Errorf("%v: %v %v %v %v", r, a, addr, tree, err)
		}
		if _, inline := r.Inline(); inline {
			continue
		}
		for i := range b {
			if err := again.UnmarshalBinary(b[:i]); !errors.Is(err, ErrInvalidRef) {
				t.Errorf("%d of %d bytes: %v", i, len(b), err)
			}
		}
		if err := again.UnmarshalBinary(append(b, 0)); !errors.Is(err, ErrInvalidRef) {
			t.Error("a byte in excess was accepted")
		}
		if err := again.UnmarshalText(append(text, ':')); !errors.Is(err, ErrInvalidRef) {
			t.Error("text in excess was accepted")
		}
	}
	hex := strings.Repeat("ab", 32)
	for _, bad := range []string{"", ":", "sha256", "sha256:" + hex, "md5:" + hex + ":1", "sha256:" + hex + ":-1", "sha256:" + hex + ":01",
		"sha256:" + hex + ":1:1", "sha256-tree:" + hex + ":5", "sha256-tree:" + hex + ":5:0", "sha256-tree:" + hex + ":5:01", "sha256:" + hex + ":1 ",
		"sha256:" + strings.ToUpper(hex) + ":1", "sha256:" + hex + "ab:1", "sha256-tree:" + hex + ":1:1", "sha256-tree:" + hex + ":5:13",
		"sha256:" + hex + ":99999999999999999999", "sha256-inline:0", "sha256-inline:AB", "sha256-inline:" + strings.Repeat("00", MaxInline+1)} {
		if r, err := ParseRef(bad); !errors.Is(err, ErrInvalidRef) {
			t.Errorf("%q is %v, %v", bad, r, err)
		}
	}
	for _, b := range [][]byte{nil, {0}, {3}, {0x40}, {0x43}, {1}, {1, 0}, append([]byte{0x41}, make([]byte, MaxInline+1)...),
		append([]byte{1, 0, 0x80, 0}, make([]byte, 32)...), append([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, make([]byte, 32)...)} {
		if err := new(Ref).UnmarshalBinary(b); !errors.Is(err, ErrInvalidRef) {
			t.Errorf("%x: %v", b, err)
		}
	}
	if _, err := (Ref{}).MarshalBinary(); !errors.Is(err, ErrInvalidRef) {
		t.Error(err)
	}
	if _, err := (Ref{}).MarshalText(); !errors.Is(err, ErrInvalidRef) {
		t.Error(err)
	}
}

// A store is made of an empty bucket only, with options that make sense, and opened
// where one is.
func TestCreateAndOpen(t *testing.T) {
	db := openDB(t)
	must(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("other"))
		must(t, err)
		if _, err := Open(b); !errors.Is(err, ErrNotStore) || IsStore(b) {
			t.Error(err)
		}
		if _, err := Open(nil); !errors.Is(err, ErrNotStore) {
			t.Error(err)
		}
		if _, err := Create(nil, Options{}); !errors.Is(err, holdfast.ErrBucketNotFound) { // it panicked
			t.Error(err)
		}
		for _, o := range []Options{{LeafSize: MinLeafSize - 1}, {LeafSize: MaxLeafSize + 1}, {LeafSize: -1}, {Algorithm: 3}, {Chunking: 3}} {
			if _, err := Create(b, o); !errors.Is(err, ErrOptions) {
				t.Errorf("%v: %v", o, err)
			}
		}
		must(t, b.Put([]byte("k"), nil))
		if _, err := Create(b, Options{}); !errors.Is(err, ErrNotEmpty) {
			t.Error(err)
		}
		nested, err := b.CreateBucket([]byte("nested"))
		must(t, err)
		s, err := Create(nested, Options{})
		must(t, err)
		if want := (Options{Algorithm: SHA256, Chunking: FixedSize, LeafSize: 16*4096 - 48}); s.Options() != want {
			t.Errorf("%+v, want %+v", s.Options(), want)
		}
		if _, err := Create(nested, Options{}); !errors.Is(err, ErrNotEmpty) {
			t.Error(err)
		}
		again, err := Open(nested)
		must(t, err)
		if again.Options() != s.Options() || !IsStore(nested) {
			t.Errorf("%+v", again.Options())
		}
		config := bytes.Clone(nested.Get(configName))
		for i := range config {
			if i >= 8 && i <= 10 {
				continue // another leaf size, which is possible
			}
			changed := bytes.Clone(config)
			changed[i] ^= 0x80
			must(t, nested.Put(configName, changed))
			want := ErrCorrupt
			if i < len(configMagic) {
				want = ErrNotStore
			}
			if _, err := Open(nested); !errors.Is(err, want) {
				t.Errorf("byte %d of the configuration changed: %v", i, err)
			}
		}
		must(t, nested.Put(configName, config))
		must(t, nested.DeleteBucket(deadName))
		if _, err := Open(nested); !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
		return nil
	}))
	must(t, db.View(func(tx *holdfast.Tx) error {
		if _, err := Create(tx.Bucket([]byte("other")), Options{}); !errors.Is(err, ErrNotEmpty) {
			t.Error(err)
		}
		return nil
	}))
}

// A leaf with what stands around it fills whole pages.
func TestDefaultLeafSize(t *testing.T) {
	for pageSize, want := range map[int]int{512: 8144, 4096: 65488, 16384: 262096, 65536: 1048528} {
		if got := defaultLeafSize(pageSize, 0); got != want {
			t.Errorf("pages of %d bytes: %d, want %d", pageSize, got, want)
		}
	}
	db := newStore(t, Options{})
	update(t, db, func(s *Store) {
		_, err := s.Put(random(1, 100*s.options.LeafSize))
		must(t, err)
	})
	view(t, db, func(s *Store) {
		stats := s.leaves.Stats()
		if pages := stats.LeafPageN + stats.LeafOverflowN; pages != 100*16 {
			t.Errorf("100 leaves take %d pages", pages)
		}
	})
}

// Trees of any size: levels and sizes agree, and cannot overflow.
func TestShape(t *testing.T) {
	for _, leaf := range []int64{MinLeafSize, 65488, MaxLeafSize} {
		sh := shape{leafSize: leaf}
		for _, size := range []int64{0, 1, leaf, leaf + 1, 126 * leaf, 126*leaf + 1, 126 * 126 * leaf, 126*126*leaf + 1, math.MaxInt64} {
			level := sh.level(size)
			if sh.full(level) < size || level > 0 && sh.full(level-1) >= size || level > maxLevel {
				t.Errorf("%d bytes have level %d", size, level)
			}
			if sh.checkSize(size, level) != nil || sh.checkSize(size, level+1) == nil {
				t.Errorf("%d bytes with level %d", size, level)
			}
		}
	}
}

// A cut by content depends on the last bytes only, so it comes again behind an insertion.
func TestCutter(t *testing.T) {
	o := Options{LeafSize: 65488, Chunking: FastCDC}
	cuts := func(p []byte, piece int) (list []int) {
		c := newCutter(&o)
		at, last := 0, 0
		for len(p) > 0 {
			n, end := c.cut(p[:min(piece, len(p))])
			if n == 0 {
				t.Fatal("no progress")
			}
			p = p[n:]
			if at += n; end {
				if size := at - last; size < o.LeafSize/maxSpread || size > o.LeafSize*maxSpread {
					t.Fatalf("a leaf of %d bytes", size)
				}
				list, last = append(list, at), at
			}
		}
		return list
	}
	data := random(1, 20<<20)
	list := cuts(data, len(data))
	if mean := len(data) / len(list); mean < o.LeafSize*3/4 || mean > o.LeafSize*3/2 {
		t.Errorf("leaves of %d bytes on the average", mean)
	}
	for _, piece := range []int{1, 1000, 16372, 70_000} {
		if again := cuts(data, piece); len(again) != len(list) || again[len(again)-1] != list[len(list)-1] {
			t.Errorf("in pieces of %d: %d cuts, not %d", piece, len(again), len(list))
		}
	}
	const inserted = 1000
	changed := cuts(append(random(2, inserted), data...), len(data))
	same := map[int]bool{}
	for _, at := range changed {
		same[at-inserted] = true
	}
	missing := 0
	for _, at := range list {
		if !same[at] {
			missing++
		}
	}
	if missing > len(list)/20 {
		t.Errorf("%d of %d cuts are elsewhere behind an insertion", missing, len(list))
	}
	if zeros := cuts(make([]byte, 4*o.LeafSize*maxSpread), 1<<20); len(zeros) < 4 {
		t.Errorf("zeros have %d cuts", len(zeros))
	}
}
