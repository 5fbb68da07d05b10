package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// Extensions that are whole and not to be believed, or not to be believed in the
// slot where they are.
func TestWrongExtensions(t *testing.T) {
	for commits := 30; commits < 32; commits++ { // each slot wins once
		f := newTrailed(t, 1024, commits, anyExtension)
		best := f.data[f.slot*f.size:][:f.size]
		other := 1 - f.slot
		bytes := func(at int, change func(b []byte)) []byte {
			data := slices.Clone(f.data)
			change(data[at:])
			return data
		}
		flip := func(b []byte) { b[0] ^= 1 }
		ext := f.slot*f.size + page.ExtensionOffset
		for at := 8; at < 170; at += 9 {
			data := bytes(ext+at, flip)
			f.opens(fmt.Sprintf("byte %d of the extension", at), data, f.older, holdfast.OpenedByScan, fmt.Sprintf("slot %d: ", f.slot))
		}
		f.opens("magic", bytes(ext, flip), f.older, holdfast.OpenedByScan, "")
		f.opens("cleared", bytes(ext, func(b []byte) { clear(b[:f.size-page.ExtensionOffset]) }), f.older, holdfast.OpenedByScan, "")
		f.opens("the other's", bytes(other*f.size+page.ExtensionOffset, flip), f.newest, holdfast.OpenedByRecord, "")

		// The page copied over the other: both are the same, as bbolt's surgery
		// leaves them.
		f.opens("page copied", bytes(other*f.size, func(b []byte) { copy(b, best) }), f.older, holdfast.OpenedByScan, "does not count")
		// The extension alone, which has the meta before it in its checksum.
		f.opens("extension copied", bytes(other*f.size+page.ExtensionOffset, func(b []byte) {
			copy(b[:f.size-page.ExtensionOffset], best[page.ExtensionOffset:])
		}), f.newest, holdfast.OpenedByRecord, fmt.Sprintf("slot %d: ", other))
		f.opens("an older one copied", bytes(ext, func(b []byte) {
			copy(b[:f.size-page.ExtensionOffset], f.data[other*f.size+page.ExtensionOffset:])
		}), f.older, holdfast.OpenedByScan, fmt.Sprintf("slot %d: ", f.slot))
		// It names a newer state than the winner does, and loses.
		_, newest := f.read(f.data, f.slot)
		f.opens("a newer one loses", f.edit(f.data, other, func(_ *page.Meta, e *extension.Extension) {
			e.Tx, e.Trailing.Base = newest.Tx+10, newest.Tx+9
		}), f.newest, holdfast.OpenedByRecord, "")

		id := func(_ *page.Meta, e *extension.Extension) { e.Database[0] = 1 }
		for slot := range 2 {
			f.opens("ids differ", f.edit(f.data, slot, id), f.older, holdfast.OpenedByScan, "two databases")
		}
		f.opens("an id", f.edit(f.edit(f.data, 0, id), 1, id), f.newest, holdfast.OpenedByRecord, "")
		key := func(_ *page.Meta, e *extension.Extension) { e.Key[5] = 9 }
		f.opens("another key of checksums", f.edit(f.data, f.slot, key), f.newest, holdfast.OpenedByRecord, "")
	}
}

// Free sets whose checksums hold and that cannot be: the newest state is opened,
// and its free pages are found by looking which are in use.
func TestWrongFreeSets(t *testing.T) {
	f := newTrailed(t, 1024, 300, func(e *extension.Extension) bool {
		room := extension.Room(1024, len(e.Free.Logs), len(e.Lists)) - len(e.Free.Inline) - len(e.Trailing.Written)
		return len(e.Free.Logs) > 1 && e.Free.Snapshot.Pages > 0 && len(e.Free.Inline) > 20 && room > 60
	})
	f.opens("as it is", f.data, f.newest, holdfast.OpenedByRecord, "")
	_, e := f.read(f.data, f.slot)
	root, end := e.Trailing.Root, e.Trailing.HighWater
	change := func(taken, put []page.Extent) []byte {
		return append(slices.Clone(e.Free.Inline), extension.AppendChange(nil, taken, put)...)
	}
	at := func(id page.ID, n uint64) []page.Extent { return []page.Extent{{Start: id, N: n}} }
	huge := binary.AppendUvarint(nil, 1<<60)
	for name, wrong := range map[string]func(e *extension.Extension, s *extension.FreeSet){
		"a page more is counted":  func(_ *extension.Extension, s *extension.FreeSet) { s.Count++ },
		"absurd count":            func(_ *extension.Extension, s *extension.FreeSet) { s.Count = 1<<64 - 1 },
		"no snapshot":             func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot = extension.Run{} },
		"snapshot in the metas":   func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot.Start = 1 },
		"snapshot behind the end": func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot.Start = end },
		"snapshot across the end": func(_ *extension.Extension, s *extension.FreeSet) {
			s.Snapshot.Pages = uint32(end - s.Snapshot.Start + 1)
		},
		"snapshot at 2^63":          func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot.Start = 1 << 63 },
		"snapshot of absurd length": func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot.Pages = 1<<32 - 1 },
		"snapshot of too many bytes": func(_ *extension.Extension, s *extension.FreeSet) {
			s.Snapshot.Bytes = s.Snapshot.Pages*uint32(f.size) + 1
		},
		"snapshot of absurd bytes":     func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot.Bytes = 1<<32 - 1 },
		"snapshot of nothing":          func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot.Bytes = 0 },
		"snapshot elsewhere":           func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot.Start = root },
		"log for a snapshot":           func(_ *extension.Extension, s *extension.FreeSet) { s.Snapshot = s.Logs[0] },
		"snapshot for a log":           func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[0] = s.Snapshot },
		"log in the metas":             func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[0].Start = 0 },
		"log behind the end":           func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[1].Start = 1<<64 - 1 },
		"log of no pages":              func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[1].Pages = 0 },
		"log of absurd length":         func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[1].Pages = 1<<32 - 1 },
		"log of absurd bytes":          func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[1].Bytes = 1<<32 - 1 },
		"log cut short":                func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[0].Bytes -= 3 },
		"log named twice":              func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[1] = s.Logs[0] },
		"logs in the wrong order":      func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[0], s.Logs[1] = s.Logs[1], s.Logs[0] },
		"a log is missing":             func(_ *extension.Extension, s *extension.FreeSet) { s.Logs = s.Logs[1:] },
		"a log reaches into another":   func(_ *extension.Extension, s *extension.FreeSet) { s.Logs = reachOver(s.Logs) },
		"a log reaches over the tree":  func(_ *extension.Extension, s *extension.FreeSet) { s.Logs[0].Pages = uint32(end - s.Logs[0].Start) },
		"no inline changes":            func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = nil },
		"changes cut short":            func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = s.Inline[:len(s.Inline)-1] },
		"changes of absurd number":     func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = huge },
		"a used page is taken":         func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = change(at(root, 1), nil) },
		"a page is put twice":          func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = change(nil, twice(e)) },
		"the root is put":              func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = change(nil, at(root, 1)); s.Count++ },
		"a meta is put":                func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = change(nil, at(1, 1)); s.Count++ },
		"a page behind the end is put": func(_ *extension.Extension, s *extension.FreeSet) { s.Inline = change(nil, at(end, 1)); s.Count++ },
		"a log is put": func(_ *extension.Extension, s *extension.FreeSet) {
			s.Inline = change(nil, at(s.Logs[0].Start, 1))
			s.Count++
		},
		"a freelist of no pages":      func(e *extension.Extension, _ *extension.FreeSet) { e.Lists = at(root, 0) },
		"a freelist in the metas":     func(e *extension.Extension, _ *extension.FreeSet) { e.Lists = at(0, 1) },
		"a freelist behind the end":   func(e *extension.Extension, _ *extension.FreeSet) { e.Lists = at(end, 1) },
		"a freelist of absurd length": func(e *extension.Extension, _ *extension.FreeSet) { e.Lists = at(3, 1<<64-2) },
		"a freelist on a log":         func(e *extension.Extension, s *extension.FreeSet) { e.Lists = at(s.Logs[0].Start, 1) },
		"a freelist named twice":      func(e *extension.Extension, _ *extension.FreeSet) { e.Lists = append(at(root, 1), at(root, 1)...) },
	} {
		data := f.edit(f.data, f.slot, func(_ *page.Meta, e *extension.Extension) {
			e.Free.Logs = slices.Clone(e.Free.Logs)
			wrong(e, e.Free)
		})
		f.opens(name, data, f.newest, holdfast.OpenedByScan, "free pages is not believed")
	}
}

// twice is a page that is free.
func twice(e *extension.Extension) []page.Extent {
	free := map[page.ID]bool{}
	set := func(to bool) func(page.Extent) error {
		return func(x page.Extent) error {
			for id := x.Start; id < x.End(); id++ {
				free[id] = to
			}
			return nil
		}
	}
	_ = extension.Changes(e.Free.Inline, e.Trailing.HighWater, set(false), set(true))
	for id, is := range free {
		if is {
			return []page.Extent{{Start: id, N: 1}}
		}
	}
	return nil
}

// reachOver makes the first of two logs in the file so long that it ends within the
// other.
func reachOver(logs []extension.Run) []extension.Run {
	a, b := &logs[0], &logs[1]
	if a.Start > b.Start {
		a, b = b, a
	}
	a.Pages = uint32(b.Start-a.Start) + 1
	return logs
}

// openAsks notes where a file is dropped from the cache, asked for, and read.
type openAsks struct {
	vfs.File
	calls []string
}

func (a *openAsks) DropCache(off, n int64) error {
	a.calls = append(a.calls, fmt.Sprint("drop ", off))
	return a.File.DropCache(off, n)
}

func (a *openAsks) Prefetch(off, n int64) {
	a.calls = append(a.calls, fmt.Sprint("ask ", off))
	a.File.Prefetch(off, n)
}

func (a *openAsks) ReadAt(p []byte, off int64) (int, error) {
	a.calls = append(a.calls, fmt.Sprint("read ", off))
	return a.File.ReadAt(p, off)
}

// An old file took longer to open than a young one, by a read of the disk for each of up to nine runs in which its free
// pages are recorded. All are dropped from the cache, then asked for, and then the first is read.
func TestOpenAsksForRecord(t *testing.T) {
	f := newTrailed(t, 1024, 300, func(e *extension.Extension) bool { return len(e.Free.Logs) > 1 && e.Free.Snapshot.Pages > 0 })
	mem := vfs.NewMem("mem")
	_, err := mem.Open().WriteAt(f.data, 0)
	must(t, err)
	a := &openAsks{File: exactFile{mem.Open()}}
	db, err := bridge.Open(a, &holdfast.Options{SettleDelay: -1})
	must(t, err)
	calls := slices.Clone(a.calls)
	if how := db.Stats().OpenPath; how != holdfast.OpenedByRecord {
		t.Fatalf("opened by %s", how)
	}
	must(t, db.Close())
	_, e := f.read(f.data, f.slot)
	runs := append(slices.Clone(e.Free.Logs), e.Free.Snapshot)
	asked := slices.DeleteFunc(slices.Clone(calls), func(call string) bool { return !strings.HasPrefix(call, "ask ") })
	if len(asked) != len(runs) {
		t.Fatalf("%d runs, asked for are %q", len(runs), asked)
	}
	first, last := slices.Index(calls, asked[0]), slices.Index(calls, asked[len(asked)-1])
	for _, r := range runs {
		at := fmt.Sprint(" ", int64(r.Start)*int64(f.size))
		drop, ask := slices.Index(calls, "drop"+at), slices.Index(calls, "ask"+at)
		if drop < 0 || drop > first || ask < 0 || !slices.Contains(calls[last:], "read"+at) {
			t.Errorf("run at %d: %q", r.Start, calls)
		}
	}
}
