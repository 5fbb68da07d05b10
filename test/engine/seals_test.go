package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// sealedFile makes a database of all kinds of pages in memory, by some commits, and
// closes it.
func sealedFile(t testing.TB, pageSize int, options holdfast.Options) []byte {
	t.Helper()
	mem := vfs.NewMem("mem")
	options.PageSize, options.NoSync = pageSize, true
	db, err := bridge.Open(exactFile{sized(t, mem.Open(), &options)}, &options)
	must(t, err)
	db.AllocSize = 16 * pageSize
	must(t, db.Update(fillSample))
	for i := range 30 { // branches that are copied with other children, and merged pages
		update(t, db, func(tx *holdfast.Tx) {
			b := tx.Bucket([]byte("keys"))
			must(t, b.Put(sampleKey(i*100), []byte("other")))
			for j := range 20 {
				must(t, b.Delete(sampleKey(i*50+j)))
			}
		})
	}
	checkDB(t, db)
	must(t, db.Close())
	return slices.Clone(mem.Bytes())
}

// openSealed opens a copy of data.
func openSealed(t testing.TB, data []byte, options *holdfast.Options) (*holdfast.DB, *vfs.Mem) {
	t.Helper()
	mem := vfs.NewMem("mem")
	_, err := mem.Open().WriteAt(data, 0)
	must(t, err)
	db, err := bridge.Open(exactFile{mem.Open()}, options)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db, mem
}

func sealCounts(t testing.TB, db *holdfast.DB) (c holdfast.SealCounts) {
	t.Helper()
	_, err := db.Verify(context.Background(), holdfast.WithSealCounts(&c))
	must(t, err)
	return c
}

// runsOf are the runs of the trees of a file, and its freelist page: those that
// are sealed, and those that have no room.
func runsOf(t testing.TB, data []byte, pageSize int) (sealed, full []page.Extent) {
	t.Helper()
	slots := page.DecodeSlots(data, data[pageSize:])
	best, err := slots.Best()
	must(t, err)
	meta := slots.Meta[best]
	image := page.NewImage(data, pageSize, meta.HighWater)
	look := func(e page.Extent) error {
		run, err := image.Run(e.Start, e.N)
		must(t, err)
		if page.CheckSeal(run, e.Start) == page.Sealed {
			sealed = append(sealed, e)
		} else if _, ok := page.SealOf(run, e.Start); !ok {
			full = append(full, e)
		}
		return nil
	}
	must(t, look(page.Extent{Start: meta.Freelist, N: 1}))
	must(t, bucket.EachRun(&image, meta.Root, look))
	return sealed, full
}

// Elements of some sizes, such as 18 of 56 bytes in a page of 1,024, filled pages to the
// end, and a whole bulk load was without seals. Now only a page of one element can.
func TestFullPagesAreSealed(t *testing.T) {
	const pageSize = 1024
	for _, size := range []int{16, 30, 32, 40, 64, 88, 100, 136, 228, 480, 983, 984, 990} {
		mem := vfs.NewMem("mem")
		db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: pageSize})
		must(t, err)
		fill(t, db, 400, size)
		must(t, db.Close())
		sealed, full := runsOf(t, mem.Bytes(), pageSize)
		if len(sealed) < 10 && size < 900 {
			t.Errorf("values of %d bytes: %d pages: the test tests little", size, len(sealed))
		}
		image := page.NewImage(mem.Bytes(), pageSize, page.ID(len(mem.Bytes())/pageSize))
		for _, e := range full {
			if p, err := image.Page(e.Start); err != nil || p.Count() > 1 {
				t.Errorf("values of %d bytes: page %d of %d elements has no room for a seal, %v", size, e.Start, p.Count(), err)
			}
		}
	}
}

func isWrongSeal(err error) bool {
	var damage *holdfast.CorruptError
	return errors.As(err, &damage) && strings.Contains(damage.Reason, "its checksum does not match its content")
}

// Every page that is written is sealed, but for those that are full to the end.
func TestEveryPageIsSealed(t *testing.T) {
	for _, pageSize := range []int{512, 1024, 4096, 16384, 65536} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Parallel()
			data := sealedFile(t, pageSize, holdfast.Options{})
			db, _ := openSealed(t, data, &holdfast.Options{ReadOnly: true})
			c := sealCounts(t, db)
			all, full := runsOf(t, data, pageSize)
			if want := (holdfast.SealCounts{Sealed: uint64(len(all)), Unsealed: uint64(len(full))}); c != want || c.Sealed < 5 {
				t.Errorf("%+v, want %+v", c, want)
			}
			must(t, readEverything(db))

			unsealed := sealedFile(t, pageSize, holdfast.Options{NoSeals: true})
			if sealed, _ := runsOf(t, unsealed, pageSize); len(sealed) != 0 {
				t.Errorf("%d pages are sealed with NoSeals", len(sealed))
			}
			db, _ = openSealed(t, unsealed, nil)
			if c := sealCounts(t, db); c.Sealed != 0 || c.Wrong != 0 || c.Unsealed < 5 {
				t.Errorf("without seals: %+v", c)
			}
			must(t, readEverything(db))
		})
	}
}

// A byte that changes anywhere in a sealed page that is in use is noticed by a check
// and by what reads the page, and by neither with NoSeals if the tree is sound.
func TestChangedBytes(t *testing.T) {
	const pageSize = 1024
	data := sealedFile(t, pageSize, holdfast.Options{})
	rng := random(t)
	runs, _ := runsOf(t, data, pageSize)
	if len(runs) < 30 {
		t.Fatalf("%d pages", len(runs))
	}
	for _, run := range runs[1:] { // without the freelist page
		for range 5 {
			at := rng.IntN(int(run.N) * pageSize)
			damaged := slices.Clone(data)
			from := int(run.Start) * pageSize
			damaged[from+at] ^= byte(1 + rng.IntN(255))
			if _, ok := page.SealOf(damaged[from:][:int(run.N)*pageSize], run.Start); !ok {
				continue // the last element's length hides the seal: see docs/format.md
			}
			db, _ := openSealed(t, damaged, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
			faults, err := db.Verify(context.Background())
			must(t, err)
			if len(faults) == 0 {
				t.Fatalf("page %d, byte %d: a check finds nothing", run.Start, at)
			}
			if err := readEverything(db); err == nil {
				t.Fatalf("page %d, byte %d: no reading notices it", run.Start, at)
			}
			must(t, db.Close())
		}
	}
	// The last byte of a value.
	value := bytes.Index(data, bytes.Repeat([]byte{0}, 9_999)) + 5_000
	data[value] ^= 0x10
	db, _ := openSealed(t, data, &holdfast.Options{ReadOnly: true})
	err := db.View(func(tx *holdfast.Tx) error {
		if v := tx.Bucket([]byte("big")).Get([]byte("big")); v != nil {
			t.Error("Get gives a value")
		}
		return nil
	})
	if !isWrongSeal(err) || !strings.HasPrefix(err.Error(), "mem is damaged: page ") || !strings.Contains(err.Error(), "holdfast reseal FILE") {
		t.Errorf("a changed value: %v", err)
	}
	off, _ := openSealed(t, data, &holdfast.Options{NoSeals: true})
	if err := readEverything(off); err != nil {
		t.Errorf("with NoSeals: %v", err)
	}
	if c := sealCounts(t, off); c != (holdfast.SealCounts{}) {
		t.Errorf("with NoSeals a check counts %+v", c)
	}
	checkDB(t, off)
}

// A check tells of a wrong seal and of what else is wrong with the page.
func TestCheckOfWrongSeals(t *testing.T) {
	data := sealedFile(t, 1024, holdfast.Options{})
	db, _ := openSealed(t, data, nil)
	before := sealCounts(t, db)
	var id page.ID
	view(t, db, func(tx *holdfast.Tx) { id = tx.Bucket([]byte("big")).Root() })
	run := data[int(id)*1024:]
	binary.NativeEndian.PutUint32(run[page.HeaderSize+4:], 1<<20)
	db, _ = openSealed(t, data, nil)
	faults, err := db.Verify(context.Background())
	must(t, err)
	if len(faults) < 2 || !isWrongSeal(faults[0]) || faults[0].Page != id || !strings.Contains(faults[1].Reason, "lies outside its page") {
		t.Errorf("faults %v", faults)
	}
	c := sealCounts(t, db)
	if want := (holdfast.SealCounts{Sealed: before.Sealed - 1, Unsealed: before.Unsealed, Wrong: 1}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	// The freelist page: it is met when it is needed for opening.
	data = sealedFile(t, 1024, holdfast.Options{})
	slots := page.DecodeSlots(data, data[1024:])
	best, _ := slots.Best()
	list := int(slots.Meta[best].Freelist) * 1024
	data[list+1000] ^= 1
	db, _ = openSealed(t, data, nil) // by the record
	if faults, err := db.Verify(context.Background()); err != nil || len(faults) != 1 || !isWrongSeal(faults[0]) {
		t.Errorf("a wrong seal of the freelist page: %v, %v", faults, err)
	}
	for slot := range 2 {
		clear(data[slot*1024:][page.ExtensionOffset:1024])
	}
	mem := vfs.NewMem("mem")
	_, err = mem.Open().WriteAt(data, 0)
	must(t, err)
	if _, err := bridge.Open(exactFile{mem.Open()}, nil); !isWrongSeal(err) {
		t.Errorf("opening by a freelist page with a wrong seal: %v", err)
	}
	db, _ = openSealed(t, data, &holdfast.Options{ReadOnly: true})
	if faults, err := db.Verify(context.Background()); err != nil || len(faults) != 1 || !isWrongSeal(faults[0]) {
		t.Errorf("a wrong seal of the freelist page, read-only: %v, %v", faults, err)
	}
}

// Each seal is looked at when its page is first read after opening, and once. Opening
// itself reads the root bucket's page: it may be a leaf of another bucket, in a torn copy.
func TestSealsAreVerifiedOnce(t *testing.T) {
	data := sealedFile(t, 1024, holdfast.Options{})
	for _, options := range []holdfast.Options{{}, {ReadOnly: true}, {NoSync: true}} {
		db, _ := openSealed(t, data, &options)
		passes := func() int { return db.Stats().SealsVerified }
		if n := passes(); n != 1 {
			t.Errorf("opening looked at %d seals, want the root's", n)
		}
		get := func(i int) {
			view(t, db, func(tx *holdfast.Tx) { tx.Bucket([]byte("keys")).Get(sampleKey(i)) })
		}
		get(2000)
		first := passes()
		if first < 3 || first > 6 {
			t.Errorf("one Get looked at %d seals", first)
		}
		get(2000)
		get(2001)
		if n := passes(); n != first {
			t.Errorf("the next Get at the same place looked at %d seals", n-first)
		}
		must(t, readEverything(db))
		all := passes()
		must(t, readEverything(db))
		if n := passes(); n != all || n < 30 {
			t.Errorf("reading everything twice looked at %d and %d seals", all, n-all)
		}
	}
	off, _ := openSealed(t, data, &holdfast.Options{NoSeals: true})
	must(t, readEverything(off))
	if n := off.Stats().SealsVerified; n != 0 {
		t.Errorf("with NoSeals %d seals were looked at", n)
	}
}

// A file that is mapped again is not verified again.
func TestSealsOfAnotherMapping(t *testing.T) {
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{PageSize: 512, NoSync: true}
	db, err := bridge.Open(exactFile{sized(t, mem.Open(), options)}, options)
	must(t, err)
	db.AllocSize = 512
	must(t, db.Update(fillSample))
	must(t, readEverything(db))
	before := db.Stats().SealsVerified
	for range 20 {
		update(t, db, func(tx *holdfast.Tx) { put(t, tx.Bucket([]byte("small")), "k", strings.Repeat("v", 600)) })
	}
	must(t, readEverything(db))
	if n := db.Stats().SealsVerified - before; n > 100 {
		t.Errorf("%d seals were looked at again", n)
	}
	must(t, db.Close())
}

// sealCases are the rows of docs/errors.md about seals.
var sealCases = map[string]func(*errorRow){
	"seal-wrong": func(r *errorRow) {
		data := sealedFile(r, samplePageSize, holdfast.Options{})
		runs, _ := runsOf(r, data, samplePageSize)
		for _, run := range runs[1:] {
			if run.N > 1 || run.Start%7 == 0 {
				changed := slices.Clone(data)
				changed[int(run.End())*samplePageSize-1] ^= 1
				r.tryUse(fmt.Sprint("page ", run.Start), changed, useEverything)
			}
		}
	},
	"seal-wrong-ignored": func(r *errorRow) {
		data := sealedFile(r, samplePageSize, holdfast.Options{})
		runs, _ := runsOf(r, data, samplePageSize)
		for _, run := range runs {
			data[int(run.End())*samplePageSize-1] ^= 1
		}
		r.try("all pages", data, func(path string) error {
			return openUse(path, holdfast.Options{NoSeals: true}, readEverything)
		})
	},
	"seal-missing": func(r *errorRow) {
		r.tryUse("all pages", sealedFile(r, samplePageSize, holdfast.Options{NoSeals: true}), readEverything)
	},
}
