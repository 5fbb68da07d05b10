package page

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
)

// sealedRuns are runs of each kind at page 7, with room for a seal.
func sealedRuns(pageSize int) map[string][]byte {
	leaf := make([]byte, pageSize)
	e := NewLeaf(leaf, 7, 2, 0)
	e.Leaf(0, []byte("key"), []byte("value"))
	e.Leaf(BucketFlag, []byte("name"), make([]byte, BucketHeaderSize))
	e.Finish(true)
	long := make([]byte, 3*pageSize)
	e = NewLeaf(long, 7, 1, 2)
	e.Leaf(0, []byte("k"), bytes.Repeat([]byte("v"), 2*pageSize+pageSize/2))
	e.Finish(true)
	branch := make([]byte, pageSize)
	e = NewBranch(branch, 7, 2, 0)
	e.Branch([]byte("a"), 100)
	e.Branch([]byte("b"), 200)
	e.Finish(true)
	empty := make([]byte, pageSize)
	e = NewLeaf(empty, 7, 0, 0)
	e.Finish(true)
	list := make([]byte, pageSize)
	EncodeFreelist(list, 7, 0, 3, slices.Values([]Extent{{Start: 9, N: 2}, {Start: 40, N: 1}}), true)
	return map[string][]byte{"leaf": leaf, "long leaf": long, "branch": branch, "empty leaf": empty, "freelist": list}
}

// The bytes of a seal are those of docs/format.md.
func TestSealLayout(t *testing.T) {
	if crc32.Checksum([]byte("123456789"), castagnoli) != 0xE3069283 {
		t.Fatal("the checksum is not CRC-32C")
	}
	for name, run := range sealedRuns(512) {
		at := len(run) - 8
		id := binary.NativeEndian.AppendUint64(nil, 7)
		sum := crc32.Update(crc32.Checksum(run[:at], castagnoli), castagnoli, id)
		if a, b := binary.NativeEndian.Uint32(run[at:]), binary.NativeEndian.Uint32(run[at+4:]); a != sum || b != sum^0xA5E996D3 {
			t.Errorf("%s: %08x %08x, want %08x and that XOR a5e996d3", name, a, b, sum)
		}
		if seal, ok := SealOf(run, 7); !ok || !bytes.Equal(seal[:], run[at:]) {
			t.Errorf("%s: SealOf gives %x, %t, want %x", name, seal, ok, run[at:])
		}
	}
}

// Whatever byte of a sealed run changes, in the content, behind it or in the seal
// itself: it is noticed.
func TestSealEachByte(t *testing.T) {
	hidden := 0
	for _, pageSize := range []int{512, 4096, 65536} {
		for name, run := range sealedRuns(pageSize) {
			if CheckSeal(run, 7) != Sealed {
				t.Fatalf("%s of %d bytes is not sealed", name, len(run))
			}
			step := pageSize / 512 // of the large ones a sample
			for at := 0; at < len(run); at++ {
				if step > 1 && at > 256 && at < len(run)-256 && at%step != 0 {
					continue
				}
				flips := []byte{1 << (at % 8), 0xFF}
				if pageSize == 512 && len(run) == 512 {
					for f := 1; f < 256; f++ {
						flips = append(flips, byte(f))
					}
				}
				for _, flip := range flips {
					run[at] ^= flip
					switch got := CheckSeal(run, 7); {
					case name == "freelist" && !hasSealRoom(run): // so many numbers, the last of them no pages
						m := imageOf(NewVerified(64, nil, new(atomic.Int64)), run)
						if _, _, err := m.Freelist(7); err == nil {
							t.Fatalf("freelist: byte %d changed by %#x: not noticed", at, flip)
						}
					case !hasSealRoom(run) && lengthOfLast(run, at): // see hasSealRoom
						hidden++
					case got != WrongSeal:
						t.Fatalf("%s of %d bytes: byte %d changed by %#x: %v", name, len(run), at, flip, got)
					}
					run[at] ^= flip
				}
			}
		}
	}
	if hidden > 10 {
		t.Errorf("%d changes of the length of a last element hide the seal", hidden)
	}
	t.Logf("%d changes of the length of a last element hide the seal", hidden)
}

// A damaged seal is known for one, beside a damaged content too.
func TestSealDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, sealed := range sealedRuns(1024) {
		at := len(sealed) - SealSize
		change := func(what string, want SealState, do func(run []byte)) {
			t.Helper()
			run := slices.Clone(sealed)
			if do(run); CheckSeal(run, 7) != want {
				t.Errorf("%s: %s: %v, want %v", name, what, CheckSeal(run, 7), want)
			}
		}
		for half := 0; half < SealSize; half += 4 {
			for range 100 {
				other := rng.Uint32() | 1
				change("another half", WrongSeal, func(run []byte) { xor32(run[at+half:], other) })
			}
			change("half of zeros", WrongSeal, func(run []byte) { clear(run[at+half:][:4]) })
		}
		for first := range 64 {
			for second := range 64 {
				change(fmt.Sprintf("bits %d and %d of the seal and one of the content", first, second), WrongSeal, func(run []byte) {
					run[at+first/8] ^= 1 << (first % 8)
					run[at+second/8] ^= 1 << (second % 8)
					run[HeaderSize/2] ^= 1
				})
			}
		}
		change("the seal zeroed", Unsealed, func(run []byte) { clear(run[at:]) })
		change("content and seal are another's", Unsealed, func(run []byte) {
			for i := at; i < len(run); i++ {
				run[i] = byte(rng.Uint32())
			}
			run[HeaderSize-1] ^= 1
		})
	}
}

// lengthOfLast tells whether the byte at is one of the last element's key size or
// value size.
func lengthOfLast(run []byte, at int) bool {
	h := DecodeHeader(run)
	last := HeaderSize + (int(h.Count)-1)*LeafElementSize
	from, to := 8, 16
	if h.Flags == FlagBranch {
		from, to = 4, 8
	}
	return at >= last+from && at < last+to
}

func xor32(b []byte, with uint32) {
	binary.NativeEndian.PutUint32(b, binary.NativeEndian.Uint32(b)^with)
}

// A run is sealed for its place.
func TestSealElsewhere(t *testing.T) {
	for name, run := range sealedRuns(512) {
		for _, id := range []ID{2, 6, 8, 7 + 1<<32, 1 << 40} {
			if got := CheckSeal(run, id); got != WrongSeal {
				t.Errorf("%s of page 7 in page %d: %v", name, id, got)
			}
			moved := slices.Clone(run)
			binary.NativeEndian.PutUint64(moved, uint64(id))
			if got := CheckSeal(moved, id); got != WrongSeal {
				t.Errorf("%s of page 7 in page %d, with that number: %v", name, id, got)
			}
		}
	}
}

// What other programs leave after the content is not a seal.
func TestNoSeal(t *testing.T) {
	run := make([]byte, 512)
	if CheckSeal(run, 7) != Unsealed {
		t.Error("zeros are a seal")
	}
	e := NewLeaf(run, 7, 0, 0)
	e.Finish(false)
	for b := range 256 {
		for size := range 5 { // rows of equal words, and of counters
			copy(run[504:], bytes.Repeat(append(make([]byte, size), byte(b)), 8))
			if got := CheckSeal(run, 7); got != Unsealed {
				t.Errorf("%x: %v", run[504:], got)
			}
		}
		binary.NativeEndian.PutUint32(run[504:], uint32(b)*0x1234567)
		binary.NativeEndian.PutUint32(run[508:], uint32(b)*0x1234567+1)
		if got := CheckSeal(run, 7); got != Unsealed {
			t.Errorf("%x: %v", run[504:], got)
		}
	}
	for _, text := range []string{"        ", "textTEXT", "00000001", "\x01\x00\x00\x00\x02\x00\x00\x00"} {
		if copy(run[504:], text); CheckSeal(run, 7) != Unsealed {
			t.Errorf("%q is a seal", text)
		}
	}
	for _, short := range [][]byte{nil, run[:7], run[:8], run[:HeaderSize+SealSize-1]} {
		if got := CheckSeal(short, 7); got != Unsealed {
			t.Errorf("%d bytes: %v", len(short), got)
		}
		if _, ok := SealOf(short, 7); ok {
			t.Errorf("%d bytes have room", len(short))
		}
	}
}

// Content in the place of the seal is content, also if it looks like a seal: a
// user may have chosen it.
func TestSealRoom(t *testing.T) {
	imitation := make([]byte, SealSize)
	putSeal(imitation, 0x12345678)
	for free := range 12 {
		size := 512 - HeaderSize - LeafElementSize - len("k") - free
		value := make([]byte, size)
		copy(value[size-max(0, SealSize-free):], imitation)
		leaf := make([]byte, 512)
		e := NewLeaf(leaf, 7, 1, 0)
		e.Leaf(0, []byte("k"), value)
		e.Finish(true)
		p, err := Parse(leaf, 7)
		if err != nil {
			t.Fatal(err)
		}
		if el, err := p.Leaf(0); err != nil || !bytes.Equal(el.Value, value) {
			t.Fatalf("%d bytes free: the value has changed, %v", free, err)
		}
		want := Unsealed
		if free >= SealSize {
			want = Sealed
		}
		if got := CheckSeal(leaf, 7); got != want {
			t.Errorf("leaf with %d bytes free: %v, want %v", free, got, want)
		}
		if _, ok := SealOf(leaf, 7); ok != (want == Sealed) {
			t.Errorf("leaf with %d bytes free: SealOf says %t", free, ok)
		}
		branch := make([]byte, 512)
		e = NewBranch(branch, 7, 1, 0)
		e.Branch(value, 100)
		e.Finish(true)
		if got := CheckSeal(branch, 7); free > 0 && free < 7 && got != Unsealed || free >= 8 && got != Sealed {
			t.Errorf("branch with %d bytes free: %v", free, got)
		}
	}
	for n := uint64(60); n <= 62; n++ {
		list := make([]byte, 512)
		EncodeFreelist(list, 7, 0, n, slices.Values([]Extent{{Start: 9, N: n}}), true)
		if got := CheckSeal(list, 7); (got == Sealed) != (n <= 61) || got == WrongSeal {
			t.Errorf("freelist of %d numbers: %v", n, got)
		}
	}
	// A gap, as bbolt's surgery leaves, says nothing about the end.
	gap := make([]byte, 512)
	e := NewLeaf(gap, 7, 2, 0)
	e.Leaf(0, []byte("k"), nil)
	e.Leaf(0, []byte("l"), make([]byte, 512-e.data-1-3))
	e.Finish(true)
	copy(gap[HeaderSize:], gap[HeaderSize+LeafElementSize:][:LeafElementSize])
	binary.NativeEndian.PutUint16(gap[10:], 1)
	binary.NativeEndian.PutUint32(gap[HeaderSize+4:], binary.NativeEndian.Uint32(gap[HeaderSize+4:])+LeafElementSize)
	if p, err := Parse(gap, 7); err != nil || contentEnd(gap) != 509 {
		t.Fatalf("%v, it ends at %d", err, contentEnd(gap))
	} else if _, err := p.Leaf(0); err != nil {
		t.Fatal(err)
	}
	if _, ok := SealOf(gap, 7); ok {
		t.Error("a value is in the place of the seal")
	}
	inline := make([]byte, 512)
	e = NewLeaf(inline, 0, 0, 0)
	if e.Finish(true); len(bytes.Trim(inline[HeaderSize:], "\x00")) != 0 {
		t.Error("an inline page is sealed")
	}
	unsealed := make([]byte, 512)
	e = NewLeaf(unsealed, 7, 0, 0)
	if e.Finish(false); CheckSeal(unsealed, 7) != Unsealed || len(bytes.Trim(unsealed[HeaderSize:], "\x00")) != 0 {
		t.Error("a page is sealed that should not be")
	}
}

// A copied branch is sealed with the children that it got.
func TestSealOfCopiedBranch(t *testing.T) {
	p, err := Parse(sealedRuns(512)["branch"], 7)
	if err != nil {
		t.Fatal(err)
	}
	buf := bytes.Repeat([]byte{0xEE}, 512)
	e, err := CopyBranch(buf, 8, p)
	if err != nil {
		t.Fatal(err)
	}
	e.SetChild(0, 101)
	e.SetChild(1, 202)
	e.Finish(true)
	if got := CheckSeal(buf, 8); got != Sealed {
		t.Errorf("the copy: %v", got)
	}
}

// A page that is sealed after it was ended is the same.
func TestSealLater(t *testing.T) {
	for _, n := range []int{0, 1, 5} {
		var bufs [2][]byte
		for i := range bufs {
			bufs[i] = bytes.Repeat([]byte{0xEE}, 512)
			e := NewLeaf(bufs[i], 9, n, 0)
			for k := range n {
				e.Leaf(0, []byte{byte(k)}, make([]byte, 70))
			}
			if i == 0 {
				e.Finish(true)
			} else {
				Seal(bufs[i], 9, e.End())
			}
		}
		if !bytes.Equal(bufs[0], bufs[1]) {
			t.Errorf("%d elements: sealed at once\n%x, sealed later\n%x", n, bufs[0], bufs[1])
		}
	}
}

// Sealing and verifying take no memory.
func TestSealAllocations(t *testing.T) {
	runs := sealedRuns(4096)
	if n := testing.AllocsPerRun(100, func() {
		for _, run := range runs {
			if CheckSeal(run, 7) != Sealed {
				t.Fatal("not sealed")
			}
			Seal(run, 7, int(contentEnd(run)))
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzSeal takes any bytes as a run. A run that has room is sealed by its seal,
// in its place and in no other, and no longer once a byte is another.
func FuzzSeal(f *testing.F) {
	for _, run := range sealedRuns(512) {
		f.Add(run, uint64(7), uint(3), byte(1))
		f.Add(run, uint64(8), uint(len(run)-1), byte(128))
	}
	f.Add(make([]byte, 24), uint64(0), uint(0), byte(1))
	f.Fuzz(func(t *testing.T, run []byte, id uint64, at uint, flip byte) {
		state := CheckSeal(run, ID(id))
		seal, ok := SealOf(run, ID(id))
		if !ok {
			if state != Unsealed && !hasSealRoom(run) {
				t.Fatalf("no room for a seal, and it is %v", state)
			}
			return
		}
		place := len(run) - SealSize
		if (state == Sealed) != bytes.Equal(run[place:], seal[:]) {
			t.Fatalf("%v with %x, the seal is %x", state, run[place:], seal)
		}
		sealed := append(slices.Clone(run[:place]), seal[:]...)
		if got := CheckSeal(sealed, ID(id)); got != Sealed {
			t.Fatalf("sealed: %v", got)
		}
		if got := CheckSeal(sealed, ID(id)+1); got == Sealed {
			t.Fatal("sealed in another place")
		}
		if flip == 0 {
			return
		}
		sealed[at%uint(len(sealed))] ^= flip
		switch got := CheckSeal(sealed, ID(id)); {
		case got == Sealed:
			t.Fatal("a byte is another")
		case got == Unsealed && hasSealRoom(sealed):
			t.Fatal("the seal is not known any more")
		}
	})
}
