package blob

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

func FuzzRef(f *testing.F) {
	for _, r := range someRefs() {
		b, _ := r.MarshalBinary()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Ref
		if r.UnmarshalBinary(b) != nil {
			return
		}
		again, err := r.MarshalBinary()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x is %v, which is %x, %v", b, r, again, err)
		}
		text, err := r.MarshalText()
		must(t, err)
		if parsed, err := ParseRef(string(text)); err != nil || parsed != r {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

func FuzzRefText(f *testing.F) {
	for _, r := range someRefs() {
		b, _ := r.MarshalText()
		f.Add(string(b))
		f.Add(r.String())
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, addr, tree, err := parseDigest(s); err == nil {
			r := Ref{algorithm: a, addr: addr}
			if tree {
				r.level = 1
			}
			if r.String() != s {
				t.Fatalf("%q is %v", s, r)
			}
		}
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		if text, err := r.MarshalText(); err != nil || string(text) != s {
			t.Fatalf("%q is %v, which is %q, %v", s, r, text, err)
		}
		b, err := r.MarshalBinary()
		must(t, err)
		var again Ref
		if err := again.UnmarshalBinary(b); err != nil || again != r {
			t.Fatalf("%q: %v", s, err)
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, o := range small {
		o.setDefaults(4096)
		f.Add(appendConfig(nil, o))
		f.Add(plainConfig(o))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseConfig(b, nil)
		if errors.Is(err, ErrKey) {
			o, err = parseConfig(b, testKey)
		}
		if err != nil {
			return
		}
		if again := appendConfig(nil, o); !bytes.Equal(again, b) && !bytes.Equal(plainConfig(o), b) {
			t.Fatalf("%x is %+v, which is %x", b, o, again)
		}
	})
}

func FuzzEntry(f *testing.F) {
	for _, e := range []entry{{}, {packed: true, id: 7, length: 100, parents: 3, users: 1}, {id: math.MaxUint64, length: maxChunk, parents: maxCount, users: maxCount, leased: maxLeased}, {id: 1, users: 3, leased: 2},
		{packed: true, id: 9, length: 65_488, stored: 20_000, parents: 1, users: 1, leased: 1}} {
		f.Add(e.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEntry(b)
		if err != nil {
			return
		}
		if again := e.append(nil); !bytes.Equal(again, b) || len(again) > maxEntrySize {
			t.Fatalf("%x is %+v, which is %x", b, e, again)
		}
	})
}

func FuzzNode(f *testing.F) {
	for _, o := range small {
		sh := o.shape()
		for _, sizes := range [][]int64{{1024, 1}, {1024, 1024, 1024}, {126 * 1024, 126 * 1024, 500}} {
			var nb nodeBuilder
			for i, size := range sizes {
				k := chunkKey{addr: SHA256.sum([]byte{byte(i)}), level: sh.level(size)}
				must(f, nb.add(sh, &k, size))
			}
			f.Add(bytes.Clone(nb.finish(sh, sh.level(3*sizes[0]))), sh.level(3*sizes[0]), sh.cdc)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, level uint8, cdc bool) {
		sh := shape{leafSize: MinLeafSize, cdc: cdc}
		n, err := parseNode(b, level, sh)
		if err != nil {
			return
		}
		var nb nodeBuilder
		offset := int64(0)
		for i := range n.count() {
			k, size := n.child(i)
			if size <= 0 || k.level >= level || sh.checkSize(size, k.level) != nil && !cdc {
				t.Fatalf("child %d of level %d has %d bytes and level %d", i, level, size, k.level)
			}
			for _, at := range []int64{offset, offset + size - 1} {
				if j, begin := n.find(at); j != i || begin != offset {
					t.Fatalf("offset %d is in child %d from %d, not %d from %d", at, j, begin, i, offset)
				}
			}
			offset += size
			must(t, nb.add(sh, &k, size))
		}
		if offset != n.size || nb.size != n.size {
			t.Fatalf("children of %d bytes in a node of %d", offset, n.size)
		}
		if again := nb.finish(sh, level); !bytes.Equal(again, b) {
			t.Fatalf("%x was made again as %x", b, again)
		}
	})
}
