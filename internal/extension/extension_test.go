package extension

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"holdfast/internal/page"
)

const pageSize = 4096

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sampleExtension fills every field.
func sampleExtension() *Extension {
	e := &Extension{Tx: 17, File: 18, Sum: page.Sum{N: 1 << 63, Known: true}, Lists: []page.Extent{{Start: 99, N: 2}, {Start: 120, N: 1}}, Free: &FreeSet{}, Trailing: &Trailing{}}
	for i := range e.Key {
		e.Key[i], e.Database[i] = byte(i), byte(100+i)
	}
	*e.Trailing = Trailing{Base: 16, Root: 44, Sequence: 5, HighWater: 200, BaseSum: page.Sum{N: 7, Known: true}, Key: [16]byte{9}, Hash: Hash{8}, Written: []byte{1, 0, 0, 4}}
	*e.Free = FreeSet{
		Count: 12, Snapshot: Run{Start: 7, Pages: 4, Bytes: 15000, Hash: Hash{1, 2}},
		Logs:   []Run{{Start: 20, Pages: 2, Bytes: 4096, Hash: Hash{3}}, {Start: 30, Pages: 9, Bytes: 1, Hash: Hash{4}}},
		Inline: []byte{1, 2, 3},
	}
	return e
}

// metaPage is a meta page with e.
func metaPage(t testing.TB, slot page.ID, e *Extension) []byte {
	t.Helper()
	buf := make([]byte, pageSize)
	page.EncodeMeta(buf, slot, page.Meta{PageSize: pageSize, HighWater: 1000, Root: 3, Label: page.Label(slot)}, nil)
	h, err := NewHasher(e.Key)
	must(t, err)
	must(t, Encode(buf, e, h))
	return buf
}

func TestRoundTrip(t *testing.T) {
	for _, logs := range []int{0, 1, MaxLogs} {
		e := sampleExtension()
		e.Free.Logs = nil
		for i := range logs {
			e.Free.Logs = append(e.Free.Logs, Run{Start: page.ID(i), Pages: 1, Bytes: 9, Hash: Hash{byte(i)}})
		}
		e.Free.Inline = make([]byte, Room(pageSize, logs, 2)-len(e.Trailing.Written))
		got, err := Decode(metaPage(t, 1, e))
		must(t, err)
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%d logs: got %+v, want %+v", logs, got, e)
		}
		e.Free.Inline = append(e.Free.Inline, 0)
		h, err := NewHasher(e.Key)
		must(t, err)
		if Encode(make([]byte, pageSize), e, h) == nil {
			t.Errorf("%d logs: an extension that is too long was written", logs)
		}
	}
}

// What an extension need not have is not there when it is read again.
func TestRoundTripOfLess(t *testing.T) {
	for _, leave := range []func(*Extension){
		func(e *Extension) { e.Trailing = nil },
		func(e *Extension) { e.Sum = page.Sum{} },
		func(e *Extension) { e.Sum.N = 0 },
		func(e *Extension) { e.Trailing.BaseSum = page.Sum{} },
		func(e *Extension) { e.Free = nil },
		func(e *Extension) { e.Lists, e.Free, e.Trailing = nil, nil, nil },
		func(e *Extension) { e.Trailing.Written = []byte{} },
	} {
		e := sampleExtension()
		leave(e)
		got, err := Decode(metaPage(t, 1, e))
		must(t, err)
		if !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
}

// The checksum of pages does not depend on their order, does on each bit and on
// where a page stands, and a page that is added twice is gone.
func TestPages(t *testing.T) {
	h, err := NewHasher([16]byte{1})
	must(t, err)
	b := make([]byte, 3*512)
	for i := range b {
		b[i] = byte(i*i + i/512)
	}
	sum := func(id page.ID, b []byte) (sum Hash) {
		h.Pages(&sum, id, b, 512, len(b))
		return sum
	}
	all := sum(7, b)
	parts := sum(9, b[1024:])
	parts.Add(sum(7, b[:1024]))
	if parts != all {
		t.Error("two parts give another sum")
	}
	if sum(8, b) == all {
		t.Error("the same sum one page further")
	}
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if sum(7, b) == all {
			t.Fatalf("bit %d of byte %d: the same sum", i%8, i/8)
		}
		b[i/8] ^= 1 << (i % 8)
	}
	// What GMAC alone does not see: pages that traded places, and equal pages that
	// changed in the same way. Half a write of a long value passed for the whole.
	traded := append(append(append([]byte(nil), b[512:1024]...), b[:512]...), b[1024:]...)
	if sum(7, traded) == all {
		t.Error("two pages traded places: the same sum")
	}
	if sum(7, make([]byte, 1024)) == sum(7, bytes.Repeat([]byte{9}, 1024)) {
		t.Error("two equal pages that changed in the same way: the same sum")
	}
	h.Pages(&all, 7, b, 512, len(b))
	if all != (Hash{}) {
		t.Error("pages taken out again leave something")
	}
	if n := testing.AllocsPerRun(100, func() { h.Pages(&all, 7, b, 512, len(b)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What version 2 has written is read: it had no sum, and its lists stood there.
func TestVersionBefore(t *testing.T) {
	for _, leave := range []func(*Extension){
		func(*Extension) {},
		func(e *Extension) { e.Trailing = nil },
		func(e *Extension) { e.Lists, e.Free, e.Trailing = nil, nil, nil },
	} {
		e := sampleExtension()
		e.Sum, e.Trailing.BaseSum = page.Sum{}, page.Sum{}
		leave(e)
		buf := metaPage(t, 1, e)
		b := buf[page.ExtensionOffset:]
		end := int(order.Uint32(b[12:])) - len(Hash{})
		b[8] = 2
		copy(b[sumAt:], b[fixedSize:end])
		end -= fixedSize - sumAt
		order.PutUint32(b[12:], uint32(end+len(Hash{})))
		h, err := NewHasher(e.Key)
		must(t, err)
		sum := h.Sum(OfMeta, 0, covered(buf, end))
		copy(b[end:], sum[:])
		got, err := Decode(buf)
		must(t, err)
		if !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
}

// A trailing extension of another version names a state that cannot be told; a plain one
// is as good as none.
func TestOtherVersion(t *testing.T) {
	for _, trailing := range []bool{true, false} {
		ext := sampleExtension()
		want := ErrVersion
		if !trailing {
			ext.Trailing, want = nil, ErrPlainVersion
		}
		buf := metaPage(t, 0, ext)
		b := buf[page.ExtensionOffset:]
		b[8]++
		size := int(order.Uint32(b[12:]))
		h, err := NewHasher(ext.Key)
		must(t, err)
		sum := h.Sum(OfMeta, 0, covered(buf, size-len(Hash{})))
		copy(b[size-len(sum):], sum[:])
		if _, err := Decode(buf); !errors.Is(err, want) {
			t.Errorf("trailing %t: %v, want %v", trailing, err, want)
		}
		b[size-1]++ // and of one that is damaged nothing is known
		if _, err := Decode(buf); err == nil || errors.Is(err, ErrVersion) || errors.Is(err, ErrPlainVersion) {
			t.Errorf("trailing %t, damaged: %v", trailing, err)
		}
	}
}

// What is on disks is this. The hash of pages was changed once and the version was not: a
// file in mid use then opened one flush behind, without an error.
func TestHashesStay(t *testing.T) {
	h, err := NewHasher([16]byte{1, 2, 3})
	must(t, err)
	b := make([]byte, 1024)
	for i := range 300 {
		b[i], b[512+i] = byte(i), byte(i*i)
	}
	copy(b[1016:], "the tail")
	var sum Hash
	h.Pages(&sum, 7, b, 512, len(b))
	for _, c := range []struct{ what, got, want string }{
		{"pages", fmt.Sprintf("%x", sum), "3e64f528e0255e7e229fad4db1594758"},
		{"a log", fmt.Sprintf("%x", h.Sum(OfLog, 9, b)), "7d04d482c1010f0536abd1232bd73841"},
	} {
		if c.got != c.want || version != 3 {
			t.Errorf("the hash of %s is %s in version %d and was %s in version 3: another hash needs another version", c.what, c.got, version, c.want)
		}
	}
}

// Zeros at the end of a page are not summed, and count all the same.
func TestPagesWithZeros(t *testing.T) {
	h, err := NewHasher([16]byte{1})
	must(t, err)
	sum := func(b []byte, end int) (sum Hash) {
		h.Pages(&sum, 7, b, 512, end)
		return sum
	}
	for _, content := range []int{0, 1, 5, 63, 64, 200, 440, 503, 504, 505, 512, 600, 1015, 1016, 1024} {
		for _, sealed := range []bool{false, true} {
			b := make([]byte, 1024)
			for i := range content {
				b[i] = byte(i*7) | byte(i%2) // some are zero
			}
			if sealed {
				copy(b[1016:], "sealseal")
			}
			all := sum(b, len(b))
			for end := content; end <= len(b); end++ {
				if sum(b, end) != all {
					t.Fatalf("%d bytes, zeros known from %d on: another sum", content, end)
				}
			}
			for i := range len(b) * 8 {
				b[i/8] ^= 1 << (i % 8)
				if sum(b, len(b)) == all {
					t.Errorf("%d bytes, bit %d of byte %d: the same sum", content, i%8, i/8)
				}
				b[i/8] ^= 1 << (i % 8)
			}
		}
	}
}

// Each bit of the meta and of the extension counts, also where it stands.
func TestEveryBit(t *testing.T) {
	buf := metaPage(t, 0, sampleExtension())
	end := page.ExtensionOffset + int(order.Uint32(buf[page.ExtensionOffset+12:]))
	for i := range end * 8 {
		buf[i/8] ^= 1 << (i % 8)
		if _, err := Decode(buf); err == nil {
			t.Errorf("bit %d of byte %d: believed", i%8, i/8)
		}
		buf[i/8] ^= 1 << (i % 8)
	}
	_, err := Decode(buf)
	must(t, err)
	other := metaPage(t, 1, sampleExtension())
	copy(other[page.ExtensionOffset:], buf[page.ExtensionOffset:])
	if _, err := Decode(other); err == nil {
		t.Error("believed in the other slot")
	}
	for n := range end {
		if _, err := Decode(buf[:n]); err == nil {
			t.Errorf("believed of %d bytes", n)
		}
	}
	if _, err := Decode(make([]byte, pageSize)); !errors.Is(err, ErrNone) {
		t.Errorf("nothing there: %v", err)
	}
}

// set is a free set as a map, to compare with.
type set map[page.ID]bool

func (s set) take(e page.Extent) error {
	for id := e.Start; id < e.End(); id++ {
		if !s[id] {
			return errors.New("not there")
		}
		delete(s, id)
	}
	return nil
}

func (s set) put(e page.Extent) error {
	for id := e.Start; id < e.End(); id++ {
		if s[id] {
			return errors.New("there already")
		}
		s[id] = true
	}
	return nil
}

func (s set) extents(highWater page.ID) (all []page.Extent) {
	for id := range highWater {
		if n := len(all); !s[id] {
			continue
		} else if n > 0 && all[n-1].End() == id {
			all[n-1].N++
		} else {
			all = append(all, page.Extent{Start: id, N: 1})
		}
	}
	return all
}

// Random changes, chunked or not, and snapshots of the set give the set again.
func TestChangesAndSnapshots(t *testing.T) {
	const highWater = 3000
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		truth := set{}
		var records, log []byte
		for range 50 {
			var taken, put []page.Extent
			for id := page.ID(2); id < highWater; {
				n := min(page.ID(1+rng.IntN(1+rng.IntN(20))), highWater-id)
				e := page.Extent{Start: id, N: uint64(n)}
				all, none := true, true
				for p := e.Start; p < e.End(); p++ {
					all, none = all && truth[p], none && !truth[p]
				}
				switch {
				case all && rng.IntN(3) == 0:
					taken = append(taken, e)
					must(t, truth.take(e))
				case none && rng.IntN(3) == 0:
					put = append(put, e)
					must(t, truth.put(e))
				}
				id += n + page.ID(rng.IntN(100))
			}
			records = AppendChange(records, taken, put)
			if rng.IntN(4) == 0 {
				log = AppendChunk(log, records, 512)
				records = nil
			}
		}
		got := set{}
		must(t, Log(log, 512, highWater, got.take, got.put))
		must(t, Changes(records, highWater, got.take, got.put))
		if !reflect.DeepEqual(got, truth) {
			t.Fatalf("seed %d: the changes give another set", seed)
		}
		again, extents := set{}, truth.extents(highWater)
		b := AppendExtentsSnapshot(nil, extents)
		if limit := MaxExtents(uint64(len(extents)), highWater); uint64(len(b)) > limit {
			t.Errorf("seed %d: a snapshot of %d bytes, want at most %d", seed, len(b), limit)
		}
		noBits := func([]byte) error { return errors.New("a bitmap") }
		must(t, Snapshot(b, highWater, again.put, noBits))
		if !reflect.DeepEqual(again, truth) {
			t.Fatalf("seed %d: the snapshot gives another set", seed)
		}
		noExtents := func(page.Extent) error { return errors.New("an extent") }
		var bits []byte
		must(t, Snapshot(append(AppendBitsSnapshot(nil), b...), highWater, noExtents, func(b []byte) error { bits = b; return nil }))
		if !bytes.Equal(bits, b) {
			t.Fatalf("seed %d: other bits", seed)
		}
	}
}

// Whatever the bytes are, decoding ends, within the high-water mark.
func FuzzRecords(f *testing.F) {
	f.Add(AppendChange(nil, []page.Extent{{Start: 5, N: 2}}, []page.Extent{{Start: 9, N: 1}}), uint64(20))
	f.Add(AppendExtentsSnapshot(nil, []page.Extent{{Start: 5, N: 2}, {Start: 9, N: 1}}), uint64(20))
	f.Add(AppendChunk(nil, AppendChange(nil, nil, []page.Extent{{Start: 9, N: 1}}), 512), uint64(10))
	f.Add([]byte{asBitmap, 0xFF, 0xFF}, uint64(12))
	f.Fuzz(func(t *testing.T, b []byte, high uint64) {
		highWater := page.ID(high % (1 << 40))
		visited := 0
		visit := func(e page.Extent) error {
			if visited++; e.N == 0 || e.Start >= highWater || e.N > uint64(highWater-e.Start) {
				t.Fatalf("extent %v, high-water mark %d", e, highWater)
			}
			return nil
		}
		_ = Changes(b, highWater, visit, visit)
		_ = Log(b, 512, highWater, visit, visit)
		_ = Snapshot(b, highWater, visit, func(bits []byte) error {
			if len(bits) >= len(b) {
				t.Fatalf("%d bytes of bits from %d bytes", len(bits), len(b))
			}
			return nil
		})
		if visited > 3*8*(len(b)+1) {
			t.Fatalf("%d extents from %d bytes", visited, len(b))
		}
	})
}

// FuzzExtension decodes meta pages of any content.
func FuzzExtension(f *testing.F) {
	f.Add(metaPage(f, 0, sampleExtension()))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err == nil && e.Free != nil && len(e.Free.Logs) > MaxLogs {
			t.Fatalf("%d log runs", len(e.Free.Logs))
		}
	})
}

// TestBits: the runs of set bits are the set, each as long as it can be.
func TestBits(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		set := make([]byte, random.IntN(40))
		for i := range set {
			set[i] = []byte{0, 0xFF, byte(random.Uint32())}[random.IntN(3)]
		}
		got, end := make([]byte, len(set)), page.ID(0)
		err := Bits(set, func(e page.Extent) error {
			if e.N == 0 || e.Start <= end && end > 0 {
				t.Fatalf("%+v from page %d on", e, end)
			}
			for id := e.Start; id < e.End(); id++ {
				got[id/8] |= 1 << (id % 8)
			}
			end = e.End()
			return nil
		})
		if err != nil || !bytes.Equal(got, set) {
			t.Fatalf("%v: got %x of %x", err, got, set)
		}
	}
}
