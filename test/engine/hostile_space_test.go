package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// hostilePage is the size of the pages of the files whose free space is hostile: small, so that there are many.
const hostilePage = 1024

// hostileSpace is a database of about hostileBytes, most of which is free, and what its newest meta page
// says of that, to be made something else.
type hostileSpace struct {
	t    *testing.T
	data []byte
	slot int
	meta page.Meta
	ext  *extension.Extension
	sum  *extension.Hasher
}

func newHostileSpace(t *testing.T) *hostileSpace {
	t.Helper()
	path := tempPath(t)
	db := open(t, path, &holdfast.Options{PageSize: hostilePage, NoSync: true})
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		must(t, b.Put([]byte("k"), []byte("v")))
		must(t, b.Put([]byte("l"), make([]byte, hostileBytes)))
	})
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.Bucket([]byte("b")).Delete([]byte("l"))) })
	must(t, db.Close())
	f := &hostileSpace{t: t, data: readFile(t, path)}
	slots := page.DecodeSlots(f.data[:hostilePage], f.data[hostilePage:2*hostilePage])
	best, err := slots.Best()
	must(t, err)
	f.slot, f.meta = best, slots.Meta[best]
	f.ext, err = extension.Decode(slices.Clone(f.data[best*hostilePage:][:hostilePage]))
	must(t, err)
	f.sum, err = extension.NewHasher(f.ext.Key)
	must(t, err)
	f.data = f.data[:int(f.meta.HighWater)*hostilePage]
	return f
}

// pages adds pages with content to the file, which the newest state has.
func (f *hostileSpace) pages(content []byte) (id page.ID, n int) {
	id = f.meta.HighWater
	n = (len(content) + hostilePage - 1) / hostilePage
	f.data = append(f.data, content...)
	f.data = append(f.data, make([]byte, (int(id)+n)*hostilePage-len(f.data))...)
	f.meta.HighWater += page.ID(n)
	return id, n
}

// run adds a run of a record, whose checksum is right.
func (f *hostileSpace) run(purpose extension.Purpose, content []byte) extension.Run {
	id, n := f.pages(content)
	return extension.Run{Start: id, Pages: uint32(n), Bytes: uint32(len(content)), Hash: f.sum.Sum(purpose, id, content)}
}

// log is a log run with records.
func (f *hostileSpace) log(records []byte) extension.Run {
	return f.run(extension.OfLog, extension.AppendChunk(nil, records, hostilePage))
}

// record makes all of the record: the set begins with nothing.
func (f *hostileSpace) record(free extension.FreeSet) { *f.ext.Free = free }

// file is the file, with the meta and the extension in their slot. raw changes the bytes of the extension. The
// checksums are right, and there is no other meta.
func (f *hostileSpace) file(raw func(b []byte)) []byte {
	buf := f.data[f.slot*hostilePage:][:hostilePage]
	page.EncodeMeta(buf, page.ID(f.slot), f.meta, nil)
	if f.ext != nil {
		must(f.t, extension.Encode(buf, f.ext, f.sum))
		if b := buf[page.ExtensionOffset:]; raw != nil {
			raw(b)
			end := page.ExtensionOffset + int(binary.NativeEndian.Uint32(b[12:])) - len(extension.Hash{})
			sum := f.sum.Sum(extension.OfMeta, 0, buf[:end])
			copy(buf[end:], sum[:])
		}
	}
	clear(f.data[(1-f.slot)*hostilePage:][:hostilePage])
	return f.data
}

// freelist adds a freelist page that says that it has n numbers, and makes it the one that counts. Its seal is right.
func (f *hostileSpace) freelist(big bool, n uint64, overflow uint32, numbers ...uint64) []byte {
	run := make([]byte, page.HeaderSize, page.HeaderSize+8*len(numbers)+16)
	h := page.Header{ID: f.meta.HighWater, Flags: page.FlagFreelist, Count: uint16(n)}
	if big {
		h.Count = 0xFFFF
		run = binary.NativeEndian.AppendUint64(run, n)
	}
	for _, id := range numbers {
		run = binary.NativeEndian.AppendUint64(run, id)
	}
	run = append(run, make([]byte, page.SealSize)...)
	run = append(run, make([]byte, (hostilePage-len(run)%hostilePage)%hostilePage)...)
	if h.Overflow = uint32(len(run)/hostilePage - 1); overflow != 0 {
		h.Overflow = overflow
	}
	page.EncodeHeader(run, h)
	if seal, ok := page.SealOf(run, h.ID); ok {
		copy(run[len(run)-page.SealSize:], seal[:])
	}
	f.meta.Freelist, _ = f.pages(run)
	f.ext = nil
	return f.file(nil)
}

// numbers are those from first to before end, each step-th.
func numbers(first, end page.ID, step int) (all []uint64) {
	for id := first; id < end; id += page.ID(step) {
		all = append(all, uint64(id))
	}
	return all
}

// uvarints are numbers as the lists have them.
func uvarints(all ...uint64) (b []byte) {
	for _, n := range all {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// turns are records that take and put all pages of an extent, again and again, if it is free.
func turns(e page.Extent, n int) (records []byte) {
	all := []page.Extent{e}
	for range n {
		records = extension.AppendChange(records, all, all)
	}
	return records
}

// hostileSpaces are files that say too much of their free pages, in bytes whose checksums are right.
var hostileSpaces = map[string]func(f *hostileSpace) []byte{
	"as it is": func(f *hostileSpace) []byte { return f.file(nil) },

	// The extension itself.
	"255 logs and lists": func(f *hostileSpace) []byte { return f.file(func(b []byte) { b[9], b[11] = 255, 255 }) },
	"written":            func(f *hostileSpace) []byte { return f.file(func(b []byte) { b[10] |= 1; filled(b[160:164], 0xFF) }) },
	"free pages":         func(f *hostileSpace) []byte { return f.file(func(b []byte) { filled(b[56:64], 0xFF) }) },
	"long freelists": func(f *hostileSpace) []byte {
		for range extension.MaxLists {
			f.ext.Lists = append(f.ext.Lists, page.Extent{Start: 2, N: math.MaxUint64 - 1})
		}
		f.ext.Lists = f.ext.Lists[:extension.MaxLists]
		return f.file(nil)
	},
	"long runs": func(f *hostileSpace) []byte {
		long := extension.Run{Start: 2, Pages: math.MaxUint32, Bytes: math.MaxUint32}
		f.record(extension.FreeSet{Count: 1 << 62, Snapshot: long, Logs: slices.Repeat([]extension.Run{long}, extension.MaxLogs)})
		return f.file(nil)
	},
	"runs of the whole file": func(f *hostileSpace) []byte {
		n := uint32(f.meta.HighWater - 2)
		all := extension.Run{Start: 2, Pages: n, Bytes: n * hostilePage}
		all.Hash = f.sum.Sum(extension.OfLog, 2, f.data[2*hostilePage:])
		f.record(extension.FreeSet{Logs: slices.Repeat([]extension.Run{all}, extension.MaxLogs)})
		return f.file(nil)
	},
	"snapshot of the whole file": func(f *hostileSpace) []byte {
		n := uint32(f.meta.HighWater - 2)
		all := extension.Run{Start: 2, Pages: n, Bytes: n * hostilePage}
		all.Hash = f.sum.Sum(extension.OfSnapshot, 2, f.data[2*hostilePage:])
		f.record(extension.FreeSet{Snapshot: all})
		return f.file(nil)
	},
	"trailing, a list without end": func(f *hostileSpace) []byte { return f.trailing(uvarints(1<<63, 2, 1, 0, 1, 0, 1)) },
	"trailing, all pages":          func(f *hostileSpace) []byte { return f.trailing(uvarints(1, 2, uint64(f.meta.HighWater)-2)) },
	"trailing, more than all":      func(f *hostileSpace) []byte { return f.trailing(uvarints(2, 2, 1, math.MaxUint64, math.MaxUint64)) },
	"trailing, far beyond the end": func(f *hostileSpace) []byte {
		f.meta.Label += 2
		trailing := f.trailed(uvarints(1, 2, 1))
		trailing.HighWater = 1 << 61
		return f.file(nil)
	},

	// Lists of changes.
	"a list without end": func(f *hostileSpace) []byte { return f.inline(uvarints(0, 1<<63, 2, 1, 0, 1, 0, 1)) },
	"empty extents":      func(f *hostileSpace) []byte { return f.inline(uvarints(0, 1<<40, 2, 0, 0, 0, 0, 0)) },
	"an extent of 2^63":  func(f *hostileSpace) []byte { return f.inline(uvarints(0, 1, 2, 1<<63)) },
	"gaps that wrap":     func(f *hostileSpace) []byte { return f.inline(uvarints(0, 3, 2, 1, math.MaxUint64-2, 1, 2, 1)) },
	"half a number":      func(f *hostileSpace) []byte { return f.inline([]byte{0, 0x80, 0x80, 0x80}) },

	// Runs.
	"a log without end": func(f *hostileSpace) []byte { return f.logs(f.log(uvarints(0, 1<<63, 2, 1, 0, 1))) },
	"a chunk without end": func(f *hostileSpace) []byte {
		return f.logs(f.run(extension.OfLog, append([]byte{0xFF, 0xFF, 0xFF, 0xFF}, make([]byte, hostilePage)...)))
	},
	"empty chunks": func(f *hostileSpace) []byte { return f.logs(f.run(extension.OfLog, make([]byte, hostileBytes/2))) },
	"the same log eight times": func(f *hostileSpace) []byte {
		all := page.Extent{Start: 2, N: uint64(f.meta.HighWater) - 2}
		return f.logs(slices.Repeat([]extension.Run{f.log(turns(all, 40_000))}, extension.MaxLogs)...)
	},
	"logs that turn all pages": func(f *hostileSpace) []byte {
		all := page.Extent{Start: 2, N: uint64(f.meta.HighWater) - 2}
		logs := []extension.Run{f.log(extension.AppendChange(nil, nil, []page.Extent{all}))}
		for range extension.MaxLogs - 1 {
			logs = append(logs, f.log(turns(all, 20_000)))
		}
		return f.logs(logs...)
	},
	"a snapshot without end": func(f *hostileSpace) []byte {
		return f.snapshot(append([]byte{0}, uvarints(0, 1<<63, 2, 1, 0, 1)...))
	},
	"a snapshot of single pages": func(f *hostileSpace) []byte {
		var all []page.Extent
		for id := page.FirstDataPage; id < f.meta.HighWater; id += 2 {
			all = append(all, page.Extent{Start: id, N: 1})
		}
		return f.snapshot(extension.AppendExtentsSnapshot(nil, all))
	},
	"bits of all pages and more": func(f *hostileSpace) []byte {
		return f.snapshot(append([]byte{1}, filled(make([]byte, hostileBytes/8), 0xFF)...))
	},
	"bits of every other page": func(f *hostileSpace) []byte {
		return f.snapshot(append([]byte{1}, filled(make([]byte, int(f.meta.HighWater)/8), 0xAA)...))
	},

	// Freelist pages.
	"freelist, 2^64-1 numbers":   func(f *hostileSpace) []byte { return f.freelist(true, math.MaxUint64, 0, 2, 3) },
	"freelist, 2^61 numbers":     func(f *hostileSpace) []byte { return f.freelist(true, 1<<61, 0, 2, 3) }, // whose bytes are none, modulo 2^64
	"freelist, a number more":    func(f *hostileSpace) []byte { return f.freelist(true, 128, 0, 2, 3) },
	"freelist, 65,534 numbers":   func(f *hostileSpace) []byte { return f.freelist(false, 65_534, 0, 2, 3) },
	"freelist, few numbers, big": func(f *hostileSpace) []byte { return f.freelist(true, 2, 0, 4, 5) },
	"freelist, 2^32 pages":       func(f *hostileSpace) []byte { return f.freelist(false, 2, math.MaxUint32, 4, 5) },
	"freelist, beyond the file":  func(f *hostileSpace) []byte { return f.freelist(false, 3, 0, 4, 1<<40, 1<<63) },
	"freelist, the metas":        func(f *hostileSpace) []byte { return f.freelist(false, 2, 0, 0, 1) },
	"freelist, twice":            func(f *hostileSpace) []byte { return f.freelist(false, 3, 0, 4, 4, 4) },
	"freelist, not in order":     func(f *hostileSpace) []byte { return f.freelist(false, 3, 0, 9, 7, 5) },
	"freelist, the same a thousand times": func(f *hostileSpace) []byte {
		return f.freelist(true, 200_000, 0, slices.Repeat([]uint64{7}, 200_000)...)
	},
	// Runs of pages that lie upon each other.
	"each page a freelist of many": func(f *hostileSpace) []byte {
		f.each(func(run []byte, id page.ID, left int) {
			page.EncodeHeader(run, page.Header{ID: id, Flags: page.FlagFreelist, Overflow: uint32(min(left, int(f.meta.HighWater)/(hostilePage/8)))})
		})
		return f.unrecorded()
	},
	"each page a branch to the end": func(f *hostileSpace) []byte {
		f.each(func(run []byte, id page.ID, left int) {
			page.EncodeHeader(run, page.Header{ID: id, Flags: page.FlagBranch, Count: 2, Overflow: uint32(left)})
			for i := range 2 {
				at := page.HeaderSize + i*page.BranchElementSize
				binary.NativeEndian.PutUint32(run[at:], uint32(100+i-at))
				binary.NativeEndian.PutUint32(run[at+4:], uint32((left+1)*hostilePage-108-page.SealSize-i))
				binary.NativeEndian.PutUint64(run[at+8:], uint64(id)+1)
			}
		})
		return f.unrecorded()
	},
	"each page a leaf to the end":             func(f *hostileSpace) []byte { f.leaves(); return f.unrecorded() },
	"each page a leaf to the end, and in use": func(f *hostileSpace) []byte { f.leaves(); f.record(extension.FreeSet{}); return f.file(nil) },
	"each page a leaf to the end, with a wrong seal": func(f *hostileSpace) []byte {
		f.leaves()
		for i, word := range []uint32{12345, 12345 ^ 0xA5E996D3} {
			binary.NativeEndian.PutUint32(f.data[len(f.data)-page.SealSize+4*i:], word)
		}
		f.record(extension.FreeSet{})
		return f.file(nil)
	},
	"each page a leaf to the end, and a child": func(f *hostileSpace) []byte {
		leaves := f.leaves()
		at := page.HeaderSize + len(leaves)*page.BranchElementSize
		run := make([]byte, at, at+9*len(leaves)+hostilePage)
		for i, id := range leaves {
			head := page.HeaderSize + i*page.BranchElementSize
			binary.NativeEndian.PutUint32(run[head:], uint32(len(run)-head))
			binary.NativeEndian.PutUint32(run[head+4:], 8)
			binary.NativeEndian.PutUint64(run[head+8:], uint64(id))
			run = fmt.Appendf(run, "k%07d", id)
		}
		page.EncodeHeader(run, page.Header{ID: f.meta.HighWater, Flags: page.FlagBranch, Count: uint16(len(leaves)), Overflow: uint32((len(run) - 1) / hostilePage)})
		id, _ := f.pages(run)
		root := f.data[int(f.meta.Root)*hostilePage:][:hostilePage]
		binary.NativeEndian.PutUint64(root[page.HeaderSize+page.LeafElementSize+len("b"):], uint64(id))
		seal, ok := page.SealOf(root, f.meta.Root)
		if !ok {
			f.t.Fatal("the root page has no room for a seal")
		}
		copy(root[hostilePage-page.SealSize:], seal[:])
		f.record(extension.FreeSet{})
		return f.file(nil)
	},
	"freelist, itself": func(f *hostileSpace) []byte { return f.freelist(false, 1, 0, uint64(f.meta.HighWater)) },
	"freelist, every other page": func(f *hostileSpace) []byte {
		all := numbers(2, f.meta.HighWater, 2)
		return f.freelist(false, uint64(len(all)), 0, all...)
	},
	"freelist, all pages": func(f *hostileSpace) []byte {
		all := numbers(2, f.meta.HighWater, 1)
		return f.freelist(false, uint64(len(all)), 0, all...)
	},
}

// each makes something else of each page that is free, after which the file has left pages.
func (f *hostileSpace) each(write func(run []byte, id page.ID, left int)) {
	for id := page.FirstDataPage; id < f.meta.HighWater; id++ {
		if run := f.data[int(id)*hostilePage:][:hostilePage]; id != f.meta.Root && string(run[page.HeaderSize+page.LeafElementSize:][:2]) != "kv" {
			write(run, id, int(f.meta.HighWater-id)-1)
		}
	}
	f.meta.Freelist = page.NoFreelist
}

// leaves makes each page that is free a leaf with one value, to the end of the file.
func (f *hostileSpace) leaves() (all []page.ID) {
	f.each(func(run []byte, id page.ID, left int) {
		page.EncodeHeader(run, page.Header{ID: id, Flags: page.FlagLeaf, Count: 1, Overflow: uint32(left)})
		start := page.HeaderSize + page.LeafElementSize
		hostileElement(run, 0, 0, start, 8, (left+1)*hostilePage-start-8-page.SealSize)
		copy(run[start:], fmt.Sprintf("k%07d", id))
		all = append(all, id)
	})
	end := f.data[len(f.data)-hostilePage:]
	filled(end[100:hostilePage-page.SealSize], 'x') // else the value would look lost
	clear(end[hostilePage-page.SealSize:])
	return all
}

// unrecorded is the file without a word on its free pages.
func (f *hostileSpace) unrecorded() []byte {
	f.ext, f.meta.Freelist = nil, page.NoFreelist
	return f.file(nil)
}

func filled(b []byte, with byte) []byte {
	for i := range b {
		b[i] = with
	}
	return b
}

// inline makes b the changes that stand in the extension.
func (f *hostileSpace) inline(b []byte) []byte {
	f.record(extension.FreeSet{Count: 1, Inline: b})
	return f.file(nil)
}

func (f *hostileSpace) logs(runs ...extension.Run) []byte {
	f.record(extension.FreeSet{Logs: runs})
	return f.file(nil)
}

func (f *hostileSpace) snapshot(content []byte) []byte {
	f.record(extension.FreeSet{Snapshot: f.run(extension.OfSnapshot, content)})
	return f.file(nil)
}

// trailed makes the extension that of a newer state that a flush of some pages has written.
func (f *hostileSpace) trailed(written []byte) *extension.Trailing {
	t := &extension.Trailing{Base: f.ext.Tx, Root: f.meta.Root, HighWater: f.meta.HighWater, Written: written}
	f.ext.Tx++
	f.ext.Trailing, f.ext.Free = t, nil
	return t
}

func (f *hostileSpace) trailing(written []byte) []byte {
	f.trailed(written)
	return f.file(nil)
}
