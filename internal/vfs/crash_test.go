package vfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

func disks(c *Crash, seed uint64, n int) [][]byte {
	return slices.Collect(c.Disks(seeded(seed), 4096, n))
}

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func put(t *testing.T, f File, off int64, p []byte) {
	t.Helper()
	if _, err := f.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, f File) {
	t.Helper()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// What was flushed is on every disk, and nothing else is certain.
func TestCrashKeepsWhatWasFlushed(t *testing.T) {
	c := NewCrash("db", fill('0', 8192), nil)
	f := c.Open()
	put(t, f, 0, fill('1', 4096))
	flush(t, f)
	put(t, f, 4096, fill('2', 4096))
	var none, all, torn bool
	for _, d := range disks(c, 1, 300) {
		if len(d) != 8192 || !bytes.Equal(d[:4096], fill('1', 4096)) {
			t.Fatal("a disk lacks what was flushed")
		}
		olds, news := bytes.Count(d[4096:], []byte("0")), bytes.Count(d[4096:], []byte("2"))
		none = none || olds == 4096
		all = all || news == 4096
		torn = torn || olds > 0 && news > 0 && olds%512 == 0
	}
	if !none || !all || !torn {
		t.Errorf("among 300 disks: nothing survived %t, all did %t, torn %t", none, all, torn)
	}
}

// Blocks survive independently of the order in which they were written, and in
// any version.
func TestCrashForgetsTheOrder(t *testing.T) {
	c := NewCrash("db", fill('0', 8192), nil)
	f := c.Open()
	put(t, f, 0, fill('a', 4096))
	put(t, f, 4096, fill('b', 4096))
	put(t, f, 0, fill('c', 4096))
	seen := map[string]bool{}
	for _, d := range disks(c, 2, 2000) {
		seen[string(d[0])+string(d[4096])] = true
	}
	for _, want := range []string{"00", "0b", "a0", "ab", "c0", "cb"} {
		if !seen[want] {
			t.Errorf("no disk with %s among %v", want, seen)
		}
	}
}

// Garbage appears in blocks that were written, and in no others.
func TestCrashGarbage(t *testing.T) {
	c := NewCrash("db", fill('0', 16384), nil)
	f := c.Open()
	put(t, f, 4096, fill('1', 512))
	garbage := false
	for seed := range uint64(20) {
		for _, d := range disks(c, seed, 50) {
			if !bytes.Equal(d[:4096], fill('0', 4096)) || !bytes.Equal(d[8192:], fill('0', 8192)) {
				t.Fatal("a block that nobody wrote has changed")
			}
			garbage = garbage || d[4096] != '0' && d[4096] != '1'
		}
	}
	if !garbage {
		t.Error("no garbage on any disk")
	}
}

// The size that a crash leaves is one that the file had since the flush.
func TestCrashSizes(t *testing.T) {
	c := NewCrash("db", fill('0', 4096), nil)
	f := c.Open()
	if err := f.Grow(8192); err != nil {
		t.Fatal(err)
	}
	put(t, f, 8192, fill('1', 4096))
	if err := f.Truncate(2048); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, d := range disks(c, 3, 500) {
		seen[len(d)] = true
	}
	for _, want := range []int{4096, 8192, 12288, 2048} {
		if !seen[want] {
			t.Errorf("no disk of %d bytes among %v", want, seen)
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("disks of sizes that the file never had: %v", seen)
	}
	flush(t, f)
	if d := disks(c, 3, 10); len(d) != 1 || len(d[0]) != 2048 {
		t.Errorf("%d disks after a flush", len(d))
	}
}

// All combinations of a few dirty blocks are tried.
func TestCrashEnumerates(t *testing.T) {
	c := NewCrash("db", fill('0', 4*4096), nil)
	f := c.Open()
	for i := range int64(4) {
		put(t, f, i*4096, fill('1', 4096))
	}
	seen := map[string]bool{}
	for _, d := range disks(c, 4, 0) {
		seen[string([]byte{d[0], d[4096], d[8192], d[12288]})] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d combinations of 16", len(seen))
	}
}

// The same seed gives the same disks.
func TestCrashIsDeterministic(t *testing.T) {
	c := NewCrash("db", fill('0', 32768), nil)
	f := c.Open()
	r := seeded(9)
	for range 20 {
		put(t, f, int64(r.IntN(60))*512, fill(byte(r.IntN(256)), 512*(1+r.IntN(6))))
	}
	a, b := disks(c, 5, 50), disks(c, 5, 50)
	if !slices.EqualFunc(a, b, bytes.Equal) {
		t.Error("two runs differ")
	}
}

// After a failed flush the cache shows what the disk does not have; a later
// flush succeeds and writes none of it; dropping the cache shows the truth.
func TestCrashFailedFlush(t *testing.T) {
	broken := errors.New("broken")
	c := NewCrash("db", fill('0', 64*512), nil)
	f := c.Open()
	put(t, f, 0, fill('1', 64*512))
	c.FailSync(seeded(6), broken)
	if err := f.Sync(); err != broken {
		t.Fatal(err)
	}
	if !bytes.Equal(c.Bytes(), fill('1', 64*512)) {
		t.Error("the cache does not show what was written")
	}
	flush(t, f)
	d := disks(c, 6, 5)
	if olds := bytes.Count(d[0], []byte("0")); len(d) != 1 || olds == 0 || olds == 64*512 {
		t.Errorf("%d disks; %d bytes were not written", len(d), olds)
	}
	if err := f.DropCache(0, 64*512); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.Bytes(), d[0]) {
		t.Error("the cache still shows what the disk does not have")
	}
}

// DropCache shows the disk in the range that it is given, in whole units, and
// leaves alone what is mapped or was written since.
func TestCrashDropsARange(t *testing.T) {
	const unit, count = 4096, 8
	c := NewCrash("db", fill('0', count*unit), nil)
	f := c.Open()
	put(t, f, 0, fill('1', count*unit))
	c.FailSync(seeded(7), errors.New("broken"))
	if f.Sync() == nil {
		t.Fatal("the flush succeeds")
	}
	disk := disks(c, 7, 0)[0]
	drop := func(off, n int64) {
		t.Helper()
		if err := f.DropCache(off, n); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(what string, from int, dropped bool) {
		t.Helper()
		want := fill('1', unit)
		if dropped {
			want = disk[from*unit:][:unit]
		}
		if !bytes.Equal(c.Bytes()[from*unit:][:unit], want) {
			t.Errorf("%s: unit %d, dropped %t, shows something else", what, from, dropped)
		}
	}
	m, err := f.Map(unit, MapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	drop(0, count*unit)
	for u := range count {
		shows("while something is mapped", u, false)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	drop(unit+100, unit) // touches units 1 and 2
	for u := range count {
		shows("a range", u, u == 1 || u == 2)
	}
	put(t, f, 5*unit, fill('1', 512))
	drop(0, count*unit)
	for u := range count {
		shows("all but what was written since", u, u != 5)
	}
	flush(t, f)
	disk = disks(c, 7, 0)[0]
	drop(0, count*unit)
	shows("all", 5, true)
}

// A failed flush loses bytes, not the size: the next one writes that. Behind
// the disk's end a dropped cache shows zeros. A file that ends within a unit of
// the cache went on showing that unit, since its size counted as a write to it:
// the engine then took for the disk's what only the cache had.
func TestCrashFailedFlushKeepsTheSize(t *testing.T) {
	for _, end := range []int{12288, 11264} {
		lost := false
		for seed := range uint64(20) {
			c := NewCrash("db", fill('0', 4096), nil)
			f := c.Open()
			put(t, f, 4096, fill('1', end-4096))
			c.FailSync(seeded(seed), errors.New("broken"))
			if f.Sync() == nil {
				t.Fatal("the flush succeeds")
			}
			if err := f.DropCache(0, 12288); err != nil {
				t.Fatal(err)
			}
			flush(t, f)
			d := disks(c, seed, 0)[0]
			if len(d) != end || !bytes.Equal(d, c.Bytes()) {
				t.Fatalf("seed %d: a disk of %d bytes, and a cache of %d, or their contents differ", seed, len(d), len(c.Bytes()))
			}
			lost = lost || bytes.Contains(d[8192:], make([]byte, 512))
		}
		if !lost {
			t.Errorf("%d bytes: nothing was lost of the last unit", end)
		}
	}
}

// Mappings show writes, and the hook hears of every change.
func TestCrashFile(t *testing.T) {
	var kinds []Kind
	c := NewCrash("db", fill('0', 512), func(k Kind) { kinds = append(kinds, k) })
	f := c.Open()
	if err := f.Grow(1024); err != nil {
		t.Fatal(err)
	}
	m, err := f.Map(1024, MapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteVec([][]byte{fill('1', 512), fill('2', 512)}, 0); err != nil {
		t.Fatal(err)
	}
	if m.Data()[0] != '1' || m.Data()[512] != '2' {
		t.Error("the mapping does not show what was written")
	}
	flush(t, f)
	if want := []Kind{KindGrow, KindWrite, KindSync}; !slices.Equal(kinds, want) {
		t.Errorf("hook heard of %v, want %v", kinds, want)
	}
}
