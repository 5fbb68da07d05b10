package page

import (
	"bytes"
	"errors"
	"testing"
)

// onlyDamage ends the test unless err is nil or reports damage.
func onlyDamage(t *testing.T, err error) {
	t.Helper()
	var damage *CorruptError
	if err != nil && !errors.As(err, &damage) {
		t.Fatalf("an error that is no damage: %v", err)
	}
}

// FuzzParse reads everything that a page of any bytes has. What is found must
// be inside of the page, and a page that is sound must not be changed by being
// written again.
func FuzzParse(f *testing.F) {
	f.Add(leafPage(3, 512, testElement{0, "a", "b"}, testElement{1, "c", "d"}), uint64(3))
	f.Add(branchPage(3, 512, "a", "b"), uint64(3))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, run []byte, id uint64) {
		p, err := Parse(run, ID(id))
		if err != nil {
			onlyDamage(t, err)
			return
		}
		_, err = p.UsedBytes()
		onlyDamage(t, err)
		_, _, err = p.Search([]byte("b"))
		onlyDamage(t, err)
		if !p.IsLeaf() {
			onlyDamage(t, CopyBranch(make([]byte, len(run)), 9, p))
		}
		for i := range p.Count() {
			k, err := p.Key(i)
			onlyDamage(t, err)
			if p.IsLeaf() {
				e, err := p.Leaf(i)
				onlyDamage(t, err)
				if err == nil && !bytes.Equal(e.Key, k) {
					t.Fatal("Leaf and Key differ")
				}
				if err == nil && e.IsBucket() {
					_, _, err := DecodeBucket(e.Value)
					onlyDamage(t, err)
				}
				continue
			}
			b, child, err := p.Branch(i)
			onlyDamage(t, err)
			if err == nil && (!bytes.Equal(b, k) || child != p.Child(i)) {
				t.Fatal("Branch, Key and Child differ")
			}
		}
	})
}

// FuzzFreelist reads a freelist page of any bytes: what it lists ascends and
// lies in the file, and is read again after it was written.
func FuzzFreelist(f *testing.F) {
	m := listImage(8, 8, 3, 0, 4, 5, 7)
	f.Add(m.data[3*512:], uint16(8))
	big := listImage(8, 8, 0xFFFF, 1, 2, 5, 6)
	f.Add(big.data[3*512:], uint16(8))
	f.Fuzz(func(t *testing.T, run []byte, highWater uint16) {
		data := append(make([]byte, 3*512), run...)
		m := NewImage(data, 512, ID(highWater))
		free, pages, err := m.Freelist(3)
		if err != nil {
			onlyDamage(t, err)
			return
		}
		var n uint64
		last := FirstDataPage
		for i, e := range free {
			if e.N == 0 || e.Start < last || i > 0 && e.Start == last || e.End() > m.HighWater() {
				t.Fatalf("extents %v", free)
			}
			last = e.End()
			n += e.N
		}
		size := FreelistSize(n)
		again := make([]byte, (max(size, pages*512)+511)/512*512)
		EncodeFreelist(again, 3, uint32(len(again)/512-1), n, func(yield func(Extent) bool) {
			for _, e := range free {
				yield(e)
			}
		})
		m2 := NewImage(append(make([]byte, 3*512), again...), 512, max(ID(highWater), ID(3+len(again)/512)))
		free2, _, err := m2.Freelist(3)
		if err != nil || len(free) != len(free2) {
			t.Fatalf("read again: %v, %v", free2, err)
		}
	})
}

// FuzzMeta reads a meta page of any bytes; a meta that is valid is written the
// same again.
func FuzzMeta(f *testing.F) {
	f.Add(metaPage(0, testMeta), int64(1<<20))
	f.Add(metaPage(1, Meta{}), int64(0))
	f.Fuzz(func(t *testing.T, buf []byte, size int64) {
		m, err := DecodeMeta(buf)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && err != ErrVersionMismatch && err != ErrChecksum {
				t.Fatal(err)
			}
			return
		}
		onlyDamage(t, m.Check(size))
		again := make([]byte, ExtensionOffset)
		EncodeMeta(again, 0, m, nil)
		if !bytes.Equal(again[HeaderSize:ExtensionOffset], buf[HeaderSize:ExtensionOffset]) {
			t.Fatal("written again it differs")
		}
		s := DecodeSlots(buf, buf)
		if best, err := s.Best(); best != 0 || err != nil {
			t.Fatalf("of two equal slots %d is the better, %v", best, err)
		}
	})
}

// FuzzBucket reads a bucket's value of any bytes.
func FuzzBucket(f *testing.F) {
	f.Add(make([]byte, BucketHeaderSize))
	f.Add(append(make([]byte, BucketHeaderSize), leafPage(0, 512, testElement{0, "k", "v"})...))
	f.Fuzz(func(t *testing.T, value []byte) {
		b, p, err := DecodeBucket(value)
		if err != nil {
			onlyDamage(t, err)
			return
		}
		if (b.Root == 0) != p.Valid() {
			t.Fatal("an inline bucket without a page, or a page without one")
		}
		again := bytes.Clone(value)
		EncodeBucket(again, b)
		if !bytes.Equal(again, value) {
			t.Fatal("written again it differs")
		}
	})
}
