package command_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"holdfast"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// variant is one bad file of a row. nil data: there is none.
type variant struct {
	name string
	data []byte
}

// builder makes bad files.
type builder struct {
	plain    *tree // as bbolt writes it
	recorded *tree // as Holdfast leaves it, without seals
	sealed   *tree // as Holdfast leaves it
	left     *tree // in mid use: with a newest state that only Holdfast finds
}

func one(data []byte) []variant { return []variant{{"", data}} }

// with damages a copy of the plain tree.
func (b *builder) with(damage func(s *tree)) []byte {
	s := b.plain.stripped()
	damage(s)
	return s.data
}

func (b *builder) metas(change func(m *page.Meta)) []byte {
	return b.with(func(s *tree) { s.setMetas(change) })
}

// notAFile are rows of docs/errors.md that are of the API or of what is around the file, and where
// those are tested that a command can meet.
var notAFile = map[string]string{
	"empty-writable": "TestBadFiles: no command makes a database of an empty file unless --create is given", "page-size-option": "API", "page-size-bad-option": "API",
	"directory": "TestBadFiles", "missing-directory": "TestBadFiles", "no-permission": "TestNoPermission", "locked": "TestBadFiles", "locked-shared": "TestReadersShare",
	"environment-unknown": "TestEnvironment", "environment-together": "TestEnvironment", "strict-periodic": "API", "durability-unknown": "API",
	"base-periodic": "API", "damage-unknown": "API",
	"settle-nothing": "settle and reseal are among the calls of all other rows", "settle-missing": "the same",
	"seal-wrong-ignored": "API", "commit-meets": "of a transaction", "sticky": "of a transaction", "sticky-rollback": "of a transaction", "sticky-view": "of a transaction",
}

// badRows makes the files of the rows of docs/errors.md, and of some more.
var badRows = map[string]func(b *builder) []variant{
	"not-a-database": func(b *builder) []variant {
		return []variant{{"text", bytes.Repeat([]byte("not a database\n"), 2000)}, {"without its metas", b.plain.data[2*treePage:]}}
	},
	"tiny-file": func(b *builder) []variant {
		return []variant{{"1 byte", b.plain.data[:1]}, {"70 bytes", b.plain.data[:70]}}
	},
	"empty-read-only":      func(*builder) []variant { return one([]byte{}) },
	"interrupted-creation": func(b *builder) []variant { return one(make([]byte, 3*os.Getpagesize())) },
	"zeros":                func(*builder) []variant { return one(make([]byte, 4*os.Getpagesize())) },
	"zeros-read-only":      func(*builder) []variant { return one(make([]byte, 4*os.Getpagesize())) },
	"zeros-other-length":   func(*builder) []variant { return one(make([]byte, 5*os.Getpagesize())) },
	"one-page": func(b *builder) []variant {
		return []variant{{"a page", b.plain.data[:treePage]}, {"no second meta", b.plain.data[:2*treePage-1]}}
	},
	"truncated": func(b *builder) []variant {
		return []variant{{"metas only", b.plain.data[:2*treePage]}, {"8 pages", b.plain.data[:8*treePage]}, {"last page", b.plain.data[:int(b.plain.meta.HighWater-1)*treePage]}}
	},
	"truncated-tail": func(b *builder) []variant { return one(b.plain.data[:int(b.plain.meta.HighWater)*treePage]) },
	"page-size-absurd": func(b *builder) []variant {
		return []variant{{"0", b.metas(pageSize(0))}, {"2^32-1", b.metas(pageSize(math.MaxUint32))}}
	},
	"page-size-wrong": func(b *builder) []variant {
		few := func(ps uint32) func(m *page.Meta) { return func(m *page.Meta) { m.PageSize = ps; m.HighWater = 8 } }
		return []variant{{"512", b.metas(few(512))}, {"4096", b.metas(few(4096))}}
	},
	"newer-version": func(b *builder) []variant {
		return one(b.with(func(s *tree) { s.set32(0, page.HeaderSize+4, 3); s.set32(1, page.HeaderSize+4, 3) }))
	},
	"both-metas-torn": func(b *builder) []variant {
		return one(b.with(func(s *tree) { s.page(0)[page.HeaderSize+40] ^= 1; s.page(1)[page.HeaderSize+20] ^= 0x80 }))
	},
	"one-meta-torn": func(b *builder) []variant {
		torn := func(slot page.ID) []byte { return b.with(func(s *tree) { s.page(slot)[page.HeaderSize+40] ^= 1 }) }
		return []variant{{"slot 0", torn(0)}, {"slot 1", torn(1)}}
	},
	"other-byte-order": func(b *builder) []variant {
		return one(b.with(func(s *tree) {
			for slot := range page.ID(2) {
				swapMeta(s.page(slot)[page.HeaderSize:])
			}
		}))
	},
	"high-water-absurd": func(b *builder) []variant {
		hw := func(id page.ID) []byte { return b.metas(func(m *page.Meta) { m.HighWater = id }) }
		return []variant{{"0", hw(0)}, {"2^54", hw(1 << 54)}, {"2^64-1", hw(math.MaxUint64)}}
	},
	"torn-copy": func(b *builder) []variant { // without the pages of the last two flushes
		data := bytes.Clone(b.left.data)
		for slot := range 2 {
			ext, err := extension.Decode(data[slot*treePage:][:treePage])
			if err != nil || ext.Trailing == nil {
				panic("a slot lists nothing")
			}
			_ = extension.Extents(ext.Trailing.Written, ext.Trailing.HighWater, func(e page.Extent) error {
				clear(data[int(e.Start)*treePage : int(e.End())*treePage])
				return nil
			})
		}
		return one(data)
	},
	"torn-root":     func(b *builder) []variant { return one(b.metas(func(m *page.Meta) { m.Root = b.plain.keys })) },
	"copied-in-use": func(*builder) []variant { return one(copiedInUse()) },
	"root-absurd": func(b *builder) []variant {
		root := func(id page.ID) []byte { return b.metas(func(m *page.Meta) { m.Root = id }) }
		return []variant{{"0", root(0)}, {"2^64-1", root(math.MaxUint64)}}
	},
	"label-absurd": func(b *builder) []variant { return one(b.metas(func(m *page.Meta) { m.Label = 1<<63 + m.Label%2 })) },
	"freelist-absurd": func(b *builder) []variant {
		list := func(id page.ID) []byte { return b.metas(func(m *page.Meta) { m.Freelist = id }) }
		return []variant{{"1", list(1)}, {"2^64-2", list(math.MaxUint64 - 1)}}
	},
	"directory-read-only": func(*builder) []variant { return nil }, // see TestBadFiles
	"missing-read-only":   func(*builder) []variant { return one(nil) },

	"freelist-type": func(b *builder) []variant {
		return one(b.list(func(s *tree, list page.ID) { s.set16(list, offFlags, page.FlagLeaf) }))
	},
	"freelist-number": func(b *builder) []variant {
		return one(b.list(func(s *tree, list page.ID) { s.set64(list, offID, 3) }))
	},
	"freelist-unordered": func(b *builder) []variant { return one(b.list(func(s *tree, list page.ID) { s.swapNumbers(list) })) },
	"freelist-twice": func(b *builder) []variant {
		return one(b.list(func(s *tree, list page.ID) { p := s.page(list)[page.HeaderSize:]; copy(p[8:16], p[:8]) }))
	},
	"freelist-range": func(b *builder) []variant {
		return []variant{{"first", b.list(func(s *tree, list page.ID) { s.set64(list, page.HeaderSize, 1) })}, {"last", b.list(func(s *tree, list page.ID) {
			s.set64(list, page.HeaderSize+8*(int(page.DecodeHeader(s.page(list)).Count)-1), 1<<40)
		})}}
	},
	"freelist-count": func(b *builder) []variant {
		return []variant{{"16 bits", b.list(func(s *tree, list page.ID) { s.set16(list, offCount, 200) })}, {"64 bits", b.list(func(s *tree, list page.ID) {
			s.set16(list, offCount, 0xFFFF)
			s.set64(list, page.HeaderSize, math.MaxUint64/8+2)
		})}}
	},
	"freelist-overflow": func(b *builder) []variant {
		return one(b.list(func(s *tree, list page.ID) { s.set32(list, offOverflow, math.MaxUint32) }))
	},
	"freelist-lists-used": func(b *builder) []variant {
		return one(b.list(func(s *tree, list page.ID) { s.addNumber(list, s.leaf()) }))
	},
	"freelist-leaves-out": func(b *builder) []variant { return one(b.list(func(s *tree, list page.ID) { s.dropNumber(list) })) },

	"page-type": func(b *builder) []variant {
		return b.inTree(func(s *tree, id page.ID) { s.set16(id, offFlags, page.FlagLeaf|page.FlagBranch) })
	},
	"page-number": func(b *builder) []variant {
		return b.inTree(func(s *tree, id page.ID) { s.set64(id, offID, uint64(id)+1) })
	},
	"page-count": func(b *builder) []variant {
		return b.inTree(func(s *tree, id page.ID) { s.set16(id, offCount, 0xFFFF) })
	},
	"page-overflow": func(b *builder) []variant {
		return b.inTree(func(s *tree, id page.ID) { s.set32(id, offOverflow, math.MaxUint32) })
	},
	"element-offset": func(b *builder) []variant { return b.inLeaf(func(s *tree, id page.ID) { s.set32(id, offPos, 1<<20) }) },
	"element-key-length": func(b *builder) []variant {
		return b.inLeaf(func(s *tree, id page.ID) { s.set32(id, offKeyLen, 1<<20) })
	},
	"element-value-length": func(b *builder) []variant {
		return b.inLeaf(func(s *tree, id page.ID) { s.set32(id, offValueLen, 1<<20) })
	},
	"element-sum": func(b *builder) []variant {
		return b.inLeaf(func(s *tree, id page.ID) {
			s.set32(id, offPos, math.MaxUint32)
			s.set32(id, offKeyLen, math.MaxUint32)
			s.set32(id, offValueLen, math.MaxUint32)
		})
	},
	"dangling": func(b *builder) []variant {
		to := func(child uint64) []byte { return b.with(func(s *tree) { s.set64(s.keys, offChild, child) }) }
		return []variant{{"1", to(1)}, {"2^64-1", to(math.MaxUint64)}}
	},
	"cycle-tree": func(b *builder) []variant {
		return one(b.with(func(s *tree) { s.set64(s.keys, offChild, uint64(s.keys)) }))
	},
	"cycle-bucket": func(b *builder) []variant {
		return []variant{
			{"in itself", b.with(func(s *tree) { page.EncodeBucket(s.value(s.nest, "deep"), page.Bucket{Root: s.nest}) })},
			{"root in itself", b.with(func(s *tree) {
				for _, name := range []string{"big", "keys", "nest"} {
					page.EncodeBucket(s.value(s.meta.Root, name), page.Bucket{Root: s.meta.Root})
				}
			})},
		}
	},
	"empty-branch": func(b *builder) []variant { return one(b.with(func(s *tree) { s.set16(s.keys, offCount, 0) })) },
	"bucket-short": func(b *builder) []variant {
		return []variant{{"nested", b.with(func(s *tree) { s.set32(s.nest, offValueLen, 5) })}, {"top level", b.with(func(s *tree) { s.set32(s.meta.Root, offValueLen, 0) })}}
	},
	"bucket-root": func(b *builder) []variant {
		return []variant{
			{"nested", b.with(func(s *tree) { page.EncodeBucket(s.value(s.nest, "deep"), page.Bucket{Root: 1}) })},
			{"top level", b.with(func(s *tree) { page.EncodeBucket(s.value(s.meta.Root, "keys"), page.Bucket{Root: math.MaxUint64}) })},
		}
	},
	"bucket-inline": func(b *builder) []variant {
		return one(b.with(func(s *tree) {
			page.EncodeHeader(s.value(s.nest, "inline")[page.BucketHeaderSize:], page.Header{Flags: page.FlagLeaf, Count: 0xFFFF})
		}))
	},
	"inline-in-inline": func(b *builder) []variant {
		return one(b.with(func(s *tree) { // its only key becomes a bucket, whose value is too short for that
			inline := s.value(s.nest, "inline")[page.BucketHeaderSize:]
			binary.NativeEndian.PutUint32(inline[page.HeaderSize:], page.BucketFlag)
		}))
	},
	"used-twice": func(b *builder) []variant {
		return []variant{
			{"by two branches", b.with(func(s *tree) { s.set64(s.keys, offChild, uint64(s.child(s.keys, 1))) })},
			{"by two buckets", b.with(func(s *tree) { page.EncodeBucket(s.value(s.nest, "deep"), page.Bucket{Root: s.leaf()}) })},
		}
	},
	"used-twice-scan": func(b *builder) []variant {
		return one(b.with(func(s *tree) {
			s.setMetas(func(m *page.Meta) { m.Freelist = page.NoFreelist })
			page.EncodeBucket(s.value(s.nest, "deep"), page.Bucket{Root: s.leaf()})
		}))
	},
	"unordered": func(b *builder) []variant {
		return one(b.with(func(s *tree) { e, _ := s.parse(s.leaf()).Leaf(1); e.Key[0] = 'a' }))
	},
	"elements-shared": func(b *builder) []variant {
		return one(b.with(func(s *tree) {
			e, _ := s.parse(s.leaf()).Leaf(0)
			from, _, _ := s.parse(s.leaf()).Span(0)
			s.set32(s.leaf(), offValueLen, uint32(treePage-from-len(e.Key))) // it reaches to the end of the page
		}))
	},
	"seal-wrong":   func(b *builder) []variant { return one(flipped(b.sealed, int(b.sealed.leaf()+1)*treePage-1)) },
	"seal-missing": func(b *builder) []variant { return one(b.recorded.data) },

	// What Holdfast adds to the meta pages, and what it records.
	"+whole":           func(b *builder) []variant { return one(b.sealed.data) },
	"+bbolt":           func(b *builder) []variant { return one(b.plain.data) },
	"+left in mid use": func(b *builder) []variant { return one(b.left.data) },
	"+extension": func(b *builder) []variant {
		both := flipped(b.recorded, page.ExtensionOffset+20)
		both[treePage+page.ExtensionOffset+20] ^= 1
		return []variant{{"both", both}}
	},
	"+extension of the last flush": func(b *builder) []variant {
		data := bytes.Clone(b.left.data)
		data[page.ExtensionOffset+20] ^= 1
		data[treePage+page.ExtensionOffset+20] ^= 1
		return one(data)
	},
	"+last page": func(b *builder) []variant { // of the last flush: its commit counts as not made
		return one(b.left.data[:len(b.left.data)/treePage/2*treePage])
	},
}

func pageSize(ps uint32) func(m *page.Meta) { return func(m *page.Meta) { m.PageSize = ps } }

func flipped(s *tree, at int) []byte {
	data := bytes.Clone(s.data)
	data[at] ^= 1
	return data
}

// list damages the freelist page.
func (b *builder) list(damage func(s *tree, list page.ID)) []byte {
	return b.with(func(s *tree) { damage(s, s.meta.Freelist) })
}

// inTree damages the root of all, a branch or a leaf.
func (b *builder) inTree(damage func(s *tree, id page.ID)) []variant {
	return append([]variant{{"branch", b.with(func(s *tree) { damage(s, s.keys) })}}, b.inLeaf(damage)...)
}

func (b *builder) inLeaf(damage func(s *tree, id page.ID)) []variant {
	return []variant{
		{"root", b.with(func(s *tree) { damage(s, s.meta.Root) })},
		{"leaf", b.with(func(s *tree) { damage(s, s.leaf()) })},
	}
}

func (s *tree) swapNumbers(list page.ID) {
	b := s.page(list)[page.HeaderSize:]
	first, second := [8]byte(b), [8]byte(b[8:])
	copy(b, second[:])
	copy(b[8:], first[:])
}

// addNumber lists a page that is in use.
func (s *tree) addNumber(list, id page.ID) {
	n := int(page.DecodeHeader(s.page(list)).Count)
	b := s.page(list)[page.HeaderSize:]
	at := 0
	for at < n && page.ID(binary.NativeEndian.Uint64(b[8*at:])) < id {
		at++
	}
	copy(b[8*at+8:8*n+8], b[8*at:8*n])
	binary.NativeEndian.PutUint64(b[8*at:], uint64(id))
	s.set16(list, offCount, uint16(n+1))
}

// dropNumber takes the first number off the list.
func (s *tree) dropNumber(list page.ID) {
	n := int(page.DecodeHeader(s.page(list)).Count)
	b := s.page(list)[page.HeaderSize:]
	copy(b, b[8:8*n])
	s.set16(list, offCount, uint16(n-1))
}

// swapMeta turns every number of a meta to the other byte order.
func swapMeta(b []byte) {
	for _, f := range []struct{ at, size int }{{0, 4}, {4, 4}, {8, 4}, {12, 4}, {16, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 8}} {
		for i := range f.size / 2 {
			j := f.at + f.size - 1 - i
			b[f.at+i], b[j] = b[j], b[f.at+i]
		}
	}
	binary.NativeEndian.PutUint64(b[56:], 0)
}

// copiedInUse is a file whose second half was copied before many commits, and the first after them.
func copiedInUse() []byte {
	dir, err := os.MkdirTemp("", "holdfast-copied")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "original")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: treePage, StrictCompat: true})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	read := func() []byte {
		for n := range 60 {
			err := db.Update(func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				return errors.Join(err, b.Put(fmt.Appendf(nil, "%03d", n*137%500), bytes.Repeat([]byte{byte(n)}, 300)))
			})
			if err != nil {
				panic(err)
			}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		return data
	}
	moment, data := read(), read()
	half := len(moment) / 2 / treePage * treePage
	copy(data[half:], moment[half:])
	return data
}
