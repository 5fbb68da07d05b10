package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// base are the pages that the flush before the newest one has written, and the extension
// that lists them.
func (f *trailed) base() (listed []page.ID, e *extension.Extension) {
	f.t.Helper()
	_, e = f.read(f.data, 1-f.slot)
	must(f.t, extension.Extents(e.Trailing.Written, e.Trailing.HighWater, func(x page.Extent) error {
		for id := x.Start; id < x.End(); id++ {
			listed = append(listed, id)
		}
		return nil
	}))
	return listed, e
}

// refuses wants the file refused as a torn copy, and unchanged.
func (f *trailed) refuses(what string, data []byte) {
	f.t.Helper()
	for _, readOnly := range []bool{true, false} {
		mem := vfs.NewMem("mem")
		_, err := mem.Open().WriteAt(data, 0)
		must(f.t, err)
		db, err := bridge.Open(exactFile{mem.Open()}, &holdfast.Options{ReadOnly: readOnly, SettleDelay: -1})
		if err == nil {
			f.t.Errorf("%s: it was opened, read-only %v", what, readOnly)
			must(f.t, db.Close())
			continue
		}
		if !errors.Is(err, holdfast.ErrTornCopy) || !errors.As(err, new(*holdfast.CorruptError)) {
			f.t.Errorf("%s: %v", what, err)
		}
		if !bytes.Equal(mem.Bytes(), data) {
			f.t.Errorf("%s: opening has changed the file", what)
		}
	}
}

// A copy that was made while the file was in use has neither the pages of the newest
// state nor those of the one before. That one was opened, without a look at them: as an
// empty database, or one with the keys of another time.
func TestTornCopy(t *testing.T) {
	for _, size := range []int{512, 4096} {
		f := newTrailed(t, size, 31, anyExtension)
		listed, _ := f.base()
		lost := f.lose(f.data)
		f.opens("without the newest", lost, f.older, holdfast.OpenedByRecord, "was not finished")
		for _, id := range listed {
			at := int(id) * size
			for how, change := range map[string]func(data []byte){
				"zero":    func(data []byte) { clear(data[at:][:size]) },
				"a bit":   func(data []byte) { data[at+size/2] ^= 4 },
				"another": func(data []byte) { copy(data[at:][:size], data[2*size:]) },
			} {
				data := slices.Clone(lost)
				if change(data); !bytes.Equal(data, lost) {
					f.refuses(fmt.Sprintf("page %d: %s", id, how), data)
				}
			}
		}
		// Without the other slot nothing is known of it.
		data := slices.Clone(lost)
		clear(data[(1-f.slot)*size:][:size])
		f.opens("without the other meta page", data, f.older, "", "was not finished")
	}
}

// A file that is written now and then has mostly a plain meta of its newest state. What
// the flush of that has written is known from the other slot.
func TestTornCopyOfASettledFile(t *testing.T) {
	const size = 1024
	f := newTrailed(t, size, 31, anyExtension)
	mem := vfs.NewMem("mem")
	_, err := mem.Open().WriteAt(f.data, 0)
	must(t, err)
	_, err = bridge.Open(mem.Open(), &holdfast.Options{SettleDelay: -1}) // which settles, and is killed
	must(t, err)
	settled := mem.Bytes()
	f.opens("as it is", settled, f.newest, holdfast.OpenedByRecord, "")
	older := 0
	for _, id := range f.listed() {
		at := int(id) * size
		if at+size > len(f.before) {
			continue
		}
		data := slices.Clone(settled)
		copy(data[at:][:size], f.before[at:])
		whole := func(h page.Header) bool { return h.ID == id && h.Overflow == 0 } // no run is cut
		if !bytes.Equal(data, settled) && whole(page.DecodeHeader(data[at:])) && whole(page.DecodeHeader(settled[at:])) {
			older++
			f.refuses(fmt.Sprintf("page %d: older", id), data)
		}
	}
	if older == 0 {
		t.Error("no page has an older version: the test tests little")
	}
	// A page that was changed in place, as bbolt's surgery does, or damaged, is the
	// business of its seal.
	root := int(slices.MaxFunc(f.listed(), func(a, b page.ID) int {
		return int(page.DecodeHeader(settled[int(a)*size:]).Count) - int(page.DecodeHeader(settled[int(b)*size:]).Count)
	})) * size
	for _, off := range []int{page.HeaderSize + page.LeafElementSize, 2 * size / 3} {
		data := slices.Clone(settled)
		data[root+off] ^= 1
		mem = vfs.NewMem("mem")
		_, err = mem.Open().WriteAt(data, 0)
		must(t, err)
		db, err := bridge.Open(exactFile{mem.Open()}, &holdfast.Options{OnDamage: holdfast.DamageIsError})
		if err != nil {
			t.Fatalf("byte %d of a page was changed in place: %v", off, err)
		}
		if checked(db) == nil {
			t.Errorf("byte %d of a page was changed in place, and nothing is wrong", off)
		}
		must(t, db.Close())
	}
}

// Through a cursor a program can put keys into the root bucket. A file that has keys there, and
// no bucket, or none in its first leaf, was refused as a torn copy, though it was closed.
func TestKeysInTheRoot(t *testing.T) {
	for _, n := range []int{1, 500} {
		for _, last := range []bool{false, true} {
			for _, noList := range []bool{false, true} {
				t.Run(fmt.Sprint(n, last, noList), func(t *testing.T) {
					mem := vfs.NewMem("mem")
					options := holdfast.Options{PageSize: 1024, NoFreelistSync: noList}
					db, err := bridge.Open(mem.Open(), &options)
					must(t, err)
					for range 3 { // the later ones leave free pages
						update(t, db, func(tx *holdfast.Tx) {
							b := tx.Cursor().Bucket()
							for i := range n {
								put(t, b, fmt.Sprintf("key%04d", i), "value of some length")
							}
							if last {
								_, err := tx.CreateBucketIfNotExists([]byte("zz"))
								must(t, err)
							}
						})
					}
					crashed := slices.Clone(mem.Bytes())
					must(t, db.Close())
					for _, data := range [][]byte{mem.Bytes(), crashed} {
						for _, readOnly := range []bool{true, false} {
							mem := vfs.NewMem("mem")
							_, err := mem.Open().WriteAt(data, 0)
							must(t, err)
							options.ReadOnly = readOnly
							db, err := bridge.Open(exactFile{mem.Open()}, &options)
							must(t, err)
							view(t, db, func(tx *holdfast.Tx) {
								if got := tx.Cursor().Bucket().Get([]byte("key0000")); string(got) != "value of some length" {
									t.Errorf("read-only %v: got %q", readOnly, got)
								}
							})
							must(t, db.Close())
						}
					}
				})
			}
		}
	}
}

// The last page of a snapshot of free pages is covered by its checksum as far as it is used, and
// by the list whole. Of that page bbolt had begun to write another, of which only sectors past
// that came to the disk: the record looked whole, and the file was refused.
func TestTailOfARecordTaken(t *testing.T) {
	const size = 512
	before := false
	f := newTrailed(t, size, 31, func(e *extension.Extension) bool {
		was := before
		before = false
		snapshot := e.Free.Snapshot
		must(t, extension.Extents(e.Trailing.Written, e.Trailing.HighWater, func(x page.Extent) error {
			before = before || snapshot.Pages > 0 && snapshot.Bytes%size > 0 && snapshot.Bytes%size <= size/2 && x.Start <= snapshot.Start && snapshot.Start < x.End()
			return nil
		}))
		return was
	})
	_, e := f.base()
	end := int(e.Free.Snapshot.Start)*size + int(e.Free.Snapshot.Bytes)/size*size + size
	data := f.lose(f.data)
	copy(data[end-size/2:end], bytes.Repeat([]byte("bbolt "), size))
	f.opens("a sector of the record taken", data, f.older, holdfast.OpenedByRecord, "was not finished")
}

// Pages of records are free to bbolt. One that had begun to write, and was killed, may
// have taken them, and the state that both find is as good as ever.
func TestRecordsOfTheBaseTaken(t *testing.T) {
	const size = 1024
	inRecord := func(e *extension.Extension, id page.ID) bool {
		for _, r := range append(slices.Clone(e.Free.Logs), e.Free.Snapshot) {
			if r.Start <= id && id < r.Extent().End() {
				return true
			}
		}
		return false
	}
	before := false
	f := newTrailed(t, size, 31, func(e *extension.Extension) bool {
		was := before
		before = false
		must(t, extension.Extents(e.Trailing.Written, e.Trailing.HighWater, func(x page.Extent) error {
			for id := x.Start; id < x.End(); id++ {
				before = before || inRecord(e, id)
			}
			return nil
		}))
		return was
	})
	listed, e := f.base()
	data := f.lose(f.data)
	tree, taken := page.ID(0), 0
	for _, id := range listed {
		if !inRecord(e, id) {
			tree = id
			continue
		}
		taken++
		copy(data[int(id)*size:][:size], bytes.Repeat([]byte("bbolt "), size/6))
	}
	if taken == 0 || tree == 0 {
		t.Fatalf("the flush wrote %d pages of records, and page %d of a tree", taken, tree)
	}
	f.opens("pages of the record taken", data, f.older, holdfast.OpenedByScan, "was not finished")
	data = f.lose(f.data)
	data[int(tree)*size+size/2] ^= 1
	f.refuses("the record is there, and a page of the tree is not", data)
}

// A root page that a copy took too late is a leaf of some bucket, and read as a database
// without any buckets.
func TestRootOfATornCopy(t *testing.T) {
	f := newTrailed(t, 1024, 31, anyExtension)
	var leaf page.ID
	for at := 2 * f.size; at < len(f.data); at += f.size {
		h := page.DecodeHeader(f.data[at:])
		if p, err := page.Parse(f.data[at:][:f.size], page.ID(at/f.size)); err == nil && p.IsLeaf() && h.Overflow == 0 && p.Count() > 0 && p.NextBucket(0) == p.Count() {
			leaf = h.ID
		}
	}
	if leaf == 0 {
		t.Fatal("the file has no leaf of a bucket")
	}
	data := slices.Clone(f.data)
	for slot := range 2 { // as bbolt, or two flushes, leave it
		m, _ := f.read(data, slot)
		m.Root = leaf
		page.EncodeMeta(data[slot*f.size:][:f.size], page.ID(slot), m, nil)
	}
	f.refuses("the root is a leaf of a bucket", data)
}

// Seals that are written later change what a flush has listed.
func TestResealedIsNoTornCopy(t *testing.T) {
	mem := vfs.NewMem("mem")
	db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: 1024, SettleDelay: -1, NoSeals: true})
	must(t, err)
	for range 3 {
		fill(t, db, 100, 30)
	}
	must(t, db.Sync())
	path := filepath.Join(t.TempDir(), "db")
	must(t, os.WriteFile(path, mem.Bytes(), 0o600)) // as after kill -9
	must(t, db.Close())
	done, err := holdfast.Reseal(t.Context(), path, holdfast.ResealOptions{})
	if err != nil || done.Added == 0 {
		t.Fatalf("resealed %+v: %v", done, err)
	}
	db, err = holdfast.Open(path, 0o600, nil)
	must(t, err)
	must(t, checked(db))
	must(t, db.Close())
}
