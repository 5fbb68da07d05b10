package pager

import (
	"testing"

	"holdfast/internal/commit"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/space"
)

// The pages of the freelist that Close leaves are known to suffice before the record is
// planned, which is in it. In files of some GiB of small pages it was longer than thought
// by the pages of the list, and Close panicked.
func TestFreelistHasRoom(t *testing.T) {
	for _, c := range []struct {
		pageSize int
		high     page.ID
	}{{512, 3_000_000}, {512, 26_000_000}, {1024, 20_000_000}, {4096, 1_200_000}} {
		for _, known := range []bool{false, true} {
			for extra := range page.ID(8) {
				high := c.high + 17*extra
				bits := make([]byte, high/8)
				for i := range bits {
					bits[i] = 0x55
				}
				bits[0] = 0x54
				load := space.Load(high)
				if err := load.PutBits(bits); err != nil {
					t.Fatal(err)
				}
				p := &Pager{pageSize: c.pageSize, space: load.Space()}
				var err error
				if p.record.Hasher, err = extension.NewHasher([16]byte{}); err != nil {
					t.Fatal(err)
				}
				if p.record.Known = known; known {
					p.record.Free.Snapshot = extension.Run{Start: 3, Pages: 1}
					p.record.Free.Inline = make([]byte, extension.Room(c.pageSize, 0, extension.MaxLists)*3/4)
				}
				w := &WriteTx{p: p, space: p.space.Begin(1)}
				if err := w.nameFreelist(); err != nil {
					t.Fatal(err)
				}
				var rec commit.Recording
				if err := p.recorder().Plan(&p.record, w.space, &rec, false); err != nil {
					t.Fatal(err)
				}
				list := w.list
				w.space.Commit()
				p.recorder().Complete(&rec)
				n := p.space.FreeCount() + p.space.PendingCount()
				for e := range rec.Runs() {
					n += e.N
				}
				if size := page.FreelistSize(n); size > list.N*uint64(c.pageSize) {
					t.Errorf("pages of %d bytes, high-water mark %d, known %t: a list of %d bytes in %d", c.pageSize, high, known, size, list.N*uint64(c.pageSize))
				}
			}
		}
	}
}
