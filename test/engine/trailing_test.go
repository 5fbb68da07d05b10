package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// trailed is a file as a process leaves it that is killed: the winning slot has
// the meta of one state, older, and a trailing extension for the next, newest.
type trailed struct {
	t             testing.TB
	size          int // of a page
	data          []byte
	before        []byte // the newest commit
	slot          int    // that wins
	older, newest map[string]dump
}

// newTrailed makes a file with at least so many commits, and more until its newest
// extension is one that is wanted.
func newTrailed(t testing.TB, size, commits int, wanted func(e *extension.Extension) bool) *trailed {
	f := &trailed{t: t, size: size}
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{PageSize: size, SettleDelay: -1}
	db, err := bridge.Open(sized(t, mem.Open(), options), options)
	must(t, err)
	for i := 0; ; i++ {
		if i >= commits {
			f.older, f.before = dumpDB(t, db), slices.Clone(mem.Bytes())
		}
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			put(t, b, "version", fmt.Sprint(i))
			put(t, b, fmt.Sprintf("key %d", i*37%200), string(make([]byte, i*7919%(2*size))))
		})
		if i < commits {
			continue
		}
		data := mem.Bytes()
		m, e := f.read(data, 0)
		f.slot = 0
		if other, o := f.read(data, 1); other.Label > m.Label {
			f.slot, e = 1, o
		}
		if e != nil && e.Trailing != nil && e.Free != nil && wanted(e) {
			break
		}
		if i > commits+3000 {
			t.Fatalf("no commit makes what is wanted; the last one %+v", e)
		}
	}
	f.newest, f.data = dumpDB(t, db), slices.Clone(mem.Bytes())
	must(t, db.Close())
	return f
}

func anyExtension(*extension.Extension) bool { return true }

// read gives the meta and the extension in a slot.
func (f *trailed) read(data []byte, slot int) (page.Meta, *extension.Extension) {
	f.t.Helper()
	buf := data[slot*f.size:][:f.size]
	m, err := page.DecodeMeta(buf)
	must(f.t, err)
	e, err := extension.Decode(buf)
	if err != nil {
		return m, nil
	}
	return m, e
}

// edit gives the file with another meta or extension in a slot, whose checksums hold.
func (f *trailed) edit(data []byte, slot int, change func(m *page.Meta, e *extension.Extension)) []byte {
	f.t.Helper()
	m, e := f.read(data, slot)
	data = slices.Clone(data)
	change(&m, e)
	buf := data[slot*f.size:][:f.size]
	page.EncodeMeta(buf, page.ID(slot), m, nil)
	h, err := extension.NewHasher(e.Key)
	must(f.t, err)
	must(f.t, extension.Encode(buf, e, h))
	return data
}

// listed are the pages that the newest commit has written.
func (f *trailed) listed() (all []page.ID) {
	_, e := f.read(f.data, f.slot)
	must(f.t, extension.Extents(e.Trailing.Written, e.Trailing.HighWater, func(x page.Extent) error {
		for id := x.Start; id < x.End(); id++ {
			all = append(all, id)
		}
		return nil
	}))
	return all
}

// lose gives the file without a page of the newest commit.
func (f *trailed) lose(data []byte) []byte {
	data = slices.Clone(data)
	id := int(f.listed()[0])
	copy(data[id*f.size:][:f.size], f.before[id*f.size:])
	return data
}

// opens opens the file, wants a state, opened in that way, and a message in the
// log; and that writing to it goes well, which the next opening sees.
func (f *trailed) opens(what string, data []byte, want map[string]dump, how holdfast.OpenPath, message string) {
	f.t.Helper()
	f.onlyRead(what, data, want)
	mem := vfs.NewMem("mem")
	_, err := mem.Open().WriteAt(data, 0)
	must(f.t, err)
	log := &memoryLogger{}
	for range 2 {
		db, err := bridge.Open(exactFile{mem.Open()}, &holdfast.Options{SettleDelay: -1, Logger: log})
		if err != nil {
			f.t.Errorf("%s: open: %v", what, err)
			return
		}
		if got := dumpDB(f.t, db); !reflect.DeepEqual(got, want) {
			f.t.Errorf("%s: version %s was opened, of the two %s and %s", what, version(got), version(f.older), version(f.newest))
		}
		if how != "" && db.Stats().OpenPath != how {
			f.t.Errorf("%s: opened by %s, want by %s", what, db.Stats().OpenPath, how)
		}
		if message != "" {
			log.has(f.t, message)
		}
		must(f.t, checked(db))
		for range 3 {
			update(f.t, db, func(tx *holdfast.Tx) { put(f.t, tx.Bucket([]byte("b")), "more", string(make([]byte, f.size))) })
		}
		must(f.t, checked(db))
		want, how, message = dumpDB(f.t, db), "", ""
		next := vfs.NewMem("mem") // as after kill -9
		_, err = next.Open().WriteAt(mem.Bytes(), 0)
		must(f.t, err)
		must(f.t, db.Close())
		mem = next
	}
}

// onlyRead opens the file for reading, twice, and wants it unchanged.
func (f *trailed) onlyRead(what string, data []byte, want map[string]dump) {
	f.t.Helper()
	mem := vfs.NewMem("mem")
	_, err := mem.Open().WriteAt(data, 0)
	must(f.t, err)
	for range 2 {
		db, err := bridge.Open(exactFile{mem.Open()}, &holdfast.Options{ReadOnly: true, PreLoadFreelist: true})
		if err != nil {
			f.t.Errorf("%s: open for reading: %v", what, err)
			return
		}
		if got := dumpDB(f.t, db); !reflect.DeepEqual(got, want) {
			f.t.Errorf("%s: version %s was opened for reading", what, version(got))
		}
		must(f.t, checked(db))
		must(f.t, db.Close())
	}
	if !slices.Equal(mem.Bytes(), data) {
		f.t.Errorf("%s: reading has changed the file", what)
	}
}

func version(d map[string]dump) string {
	for _, p := range d["b"].Pairs {
		if p.key == "version" {
			return p.value
		}
	}
	return "none"
}

// checked is what a check finds.
func checked(db *holdfast.DB) error {
	return db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	})
}

// A file whose last flush was cut short: all of its pages are there, and the
// newest state is opened, and from then on it is in a plain meta; or one is not,
// and the state before is.
func TestTrailingMeta(t *testing.T) {
	for _, size := range []int{512, 4096} {
		for commits := 30; commits < 34; commits++ {
			f := newTrailed(t, size, commits, anyExtension)
			f.opens("as it is", f.data, f.newest, holdfast.OpenedByRecord, "")
			listed := f.listed()
			if len(listed) < 2 {
				t.Fatalf("%d pages are listed: the test tests little", len(listed))
			}
			for at := 2 * size; at < min(len(f.before), len(f.data)); at += size {
				if id := page.ID(at / size); !bytes.Equal(f.before[at:][:size], f.data[at:][:size]) && !slices.Contains(listed, id) {
					t.Errorf("page %d was written and is not listed", id)
				}
			}
			for i, id := range listed {
				at := int(id) * size
				next := int(listed[(i+1)%len(listed)]) * size
				for how, change := range map[string]func(data []byte){
					"zero":   func(data []byte) { clear(data[at:][:size]) },
					"older":  func(data []byte) { copy(data[at:][:size], f.before[at:]) },
					"a bit":  func(data []byte) { data[at+size/2] ^= 4 },
					"traded": func(data []byte) { copy(data[at:][:size], f.data[next:]); copy(data[next:][:size], f.data[at:]) },
				} {
					data := slices.Clone(f.data)
					if change(data); bytes.Equal(data, f.data) {
						continue // an older version that is the same
					}
					f.opens(fmt.Sprintf("page %d: %s", id, how), data, f.older, holdfast.OpenedByRecord, "was not finished: not all of its pages")
				}
			}
		}
	}
}

// What was opened by a trailing meta has a plain one, in the slot that lost,
// before Open returns: bbolt finds it, however the process ends.
func TestOpeningSettles(t *testing.T) {
	f := newTrailed(t, 1024, 31, anyExtension)
	for _, c := range []struct {
		data []byte
		root func(m page.Meta, e *extension.Extension) page.ID
	}{
		{f.data, func(_ page.Meta, e *extension.Extension) page.ID { return e.Trailing.Root }},
		{f.lose(f.data), func(m page.Meta, _ *extension.Extension) page.ID { return m.Root }},
	} {
		mem := vfs.NewMem("mem")
		_, err := mem.Open().WriteAt(c.data, 0)
		must(t, err)
		db, err := bridge.Open(mem.Open(), nil)
		must(t, err)
		before, e := f.read(f.data, f.slot)
		m, plain := f.read(mem.Bytes(), 1-f.slot)
		if plain == nil || plain.Trailing != nil || m.Root != c.root(before, e) || m.Label <= before.Label {
			t.Errorf("opening left %+v with %+v in slot %d, above label %d", m, plain, 1-f.slot, before.Label)
		}
		must(t, db.Close())
	}
}

// Numbers of a trailing extension that make no sense, although its checksum holds.
func TestTrailingNumbers(t *testing.T) {
	f := newTrailed(t, 1024, 31, anyExtension)
	_, e := f.read(f.data, f.slot)
	m, _ := f.read(f.data, f.slot)
	pages := page.ID(len(f.data) / f.size)
	list := func(extents ...page.Extent) []byte { return extension.AppendExtents(nil, extents) }
	huge := binary.AppendUvarint(nil, 1<<60)
	for name, change := range map[string]func(t *extension.Trailing){
		"root past the end":            func(t *extension.Trailing) { t.Root = t.HighWater },
		"root in the metas":            func(t *extension.Trailing) { t.Root = 1 },
		"root absurd":                  func(t *extension.Trailing) { t.Root = 1<<64 - 1 },
		"mark past the file":           func(t *extension.Trailing) { t.HighWater = pages + 1 },
		"mark of 2^63":                 func(t *extension.Trailing) { t.HighWater = 1 << 63 },
		"mark absurd":                  func(t *extension.Trailing) { t.HighWater = 1<<64 - 1 },
		"mark of the metas":            func(t *extension.Trailing) { t.HighWater = 2 },
		"mark before the pages":        func(t *extension.Trailing) { t.HighWater = max(t.Root, f.listed()[0]) },
		"a meta page is listed":        func(t *extension.Trailing) { t.Written = list(page.Extent{Start: 1, N: 2}) },
		"all pages and metas":          func(t *extension.Trailing) { t.Written = list(page.Extent{Start: 0, N: uint64(t.HighWater)}) },
		"a page past the end":          func(t *extension.Trailing) { t.Written = list(page.Extent{Start: t.HighWater, N: 1}) },
		"pages across the end":         func(t *extension.Trailing) { t.Written = list(page.Extent{Start: t.HighWater - 1, N: 2}) },
		"absurd number of extents":     func(t *extension.Trailing) { t.Written = huge },
		"absurd extent":                func(t *extension.Trailing) { t.Written = list(page.Extent{Start: 2, N: 1<<64 - 3}) },
		"absurd place":                 func(t *extension.Trailing) { t.Written = list(page.Extent{Start: 1<<64 - 2, N: 1}) },
		"extent of no page":            func(t *extension.Trailing) { t.Written = list(page.Extent{Start: 2}) },
		"number cut short":             func(t *extension.Trailing) { t.Written = []byte{1, 0x80} },
		"no list":                      func(t *extension.Trailing) { t.Written = nil },
		"bytes after the list":         func(t *extension.Trailing) { t.Written = append(slices.Clone(t.Written), 0) },
		"a page too many":              func(t *extension.Trailing) { t.Written = list(page.Extent{Start: 2, N: 1}) },
		"nothing listed":               func(t *extension.Trailing) { t.Written = list() },
		"another key":                  func(t *extension.Trailing) { t.Key[3] ^= 1 },
		"another hash":                 func(t *extension.Trailing) { t.Hash[3] ^= 1 },
		"root and mark of other files": func(t *extension.Trailing) { t.Root, t.HighWater = 1<<40, 1<<40+1 },
	} {
		data := f.edit(f.data, f.slot, func(_ *page.Meta, e *extension.Extension) { change(e.Trailing) })
		f.opens(name, data, f.older, holdfast.OpenedByRecord, "was not finished")
	}
	if e.Trailing.HighWater < m.HighWater {
		t.Fatal("the high-water mark went down")
	}
}

// Transaction numbers that no history gives: what is opened is right, and so is
// what is committed on top of it.
func TestTrailingTransactionNumbers(t *testing.T) {
	f := newTrailed(t, 1024, 31, anyExtension)
	_, e := f.read(f.data, f.slot)
	const last = page.TxID(page.MaxLabel)
	number := func(data []byte, slot int, n page.TxID) []byte {
		return f.edit(data, slot, func(_ *page.Meta, e *extension.Extension) { e.Tx = n })
	}
	base := func(data []byte, n page.TxID) []byte {
		return f.edit(data, f.slot, func(_ *page.Meta, e *extension.Extension) { e.Trailing.Base = n })
	}
	const nonsense = "an extension of transaction .* makes no sense"
	for _, n := range []page.TxID{0, 1, 5, e.Tx, e.Tx + 1, last - 100, last, last + 1, 1<<64 - 1} {
		what := fmt.Sprint("number ", n)
		switch {
		case n <= e.Trailing.Base || n > last: // not above the base, or never given
			f.opens(what, number(f.data, f.slot, n), f.older, holdfast.OpenedByScan, nonsense)
		case n < last:
			f.opens(what, number(f.data, f.slot, n), f.newest, holdfast.OpenedByRecord, "")
		}
		what = fmt.Sprint("base ", n)
		if n >= e.Tx {
			f.opens(what, base(f.data, n), f.older, holdfast.OpenedByScan, nonsense)
			f.opens(what, f.lose(base(f.data, n)), f.older, holdfast.OpenedByScan, nonsense)
		} else {
			f.opens(what, base(f.data, n), f.newest, holdfast.OpenedByRecord, "")
			// The other slot's free set is of another state than the one that is opened.
			f.opens(what, f.lose(base(f.data, n)), f.older, holdfast.OpenedByScan, "was not finished")
		}
		what = fmt.Sprint("the other is ", n)
		if _, other := f.read(f.data, 1-f.slot); n > other.Trailing.Base {
			f.opens(what, number(f.data, 1-f.slot, n), f.newest, holdfast.OpenedByRecord, "")
			if n != e.Trailing.Base {
				f.opens(what, f.lose(number(f.data, 1-f.slot, n)), f.older, holdfast.OpenedByScan, "was not finished")
			}
		}
	}
}

// At the last number nothing is committed any more, and nothing is lost.
func TestLastTransactionNumber(t *testing.T) {
	f := newTrailed(t, 1024, 31, anyExtension)
	data := f.edit(f.data, f.slot, func(_ *page.Meta, e *extension.Extension) { e.Tx = page.TxID(page.MaxLabel) })
	f.onlyRead("the last number", data, f.newest)
	mem := vfs.NewMem("mem")
	_, err := mem.Open().WriteAt(data, 0)
	must(t, err)
	for range 2 {
		db, err := bridge.Open(mem.Open(), nil)
		must(t, err)
		err = db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put([]byte("k"), nil) })
		var damage *holdfast.CorruptError
		if !errors.As(err, &damage) || !strings.Contains(err.Error(), "transaction ids are used up") {
			t.Errorf("a commit after the last number: %v", err)
		}
		if got := dumpDB(t, db); !reflect.DeepEqual(got, f.newest) {
			t.Errorf("version %s was opened", version(got))
		}
		checkDB(t, db)
		must(t, db.Close())
	}
}

// One flipped bit in the newest meta page of a file that was not closed lost the last commit, and neither the log nor
// FileState had a word of it, unless the bit was after bbolt's fields and not in the first bytes there.
func TestNewestMetaDamaged(t *testing.T) {
	const size = 4096
	f := newTrailed(t, size, 12, anyExtension)
	lost := 0
	for at := 16; at < 600; at++ {
		data := bytes.Clone(f.data)
		data[f.slot*size+at] ^= 1 << (at % 8)
		mem := vfs.NewMem("mem")
		_, err := mem.Open().WriteAt(data, 0)
		must(t, err)
		logger := &memoryLogger{}
		db, err := bridge.Open(exactFile{mem.Open()}, &holdfast.Options{ReadOnly: true, Logger: logger})
		must(t, err)
		if !reflect.DeepEqual(dumpDB(t, db), f.newest) {
			lost++
			if s := db.FileState(); !s.Unreadable && !s.Unfinished {
				t.Errorf("byte %d: a commit is lost, and FileState is %+v", at, s)
			}
			if !strings.Contains(logger.text(), "lost by damage") && !strings.Contains(logger.text(), "was not finished") {
				t.Errorf("byte %d: a commit is lost, and the log says %s", at, logger.text())
			}
		}
		must(t, db.Close())
	}
	if lost < 100 {
		t.Errorf("%d of the bits lose a commit: the test tests little", lost)
	}
}
