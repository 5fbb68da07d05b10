package engine

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// longFile is a database with values that take more pages than are verified at
// once: "a" and "c" in one run with "d", "e" alone, and small ones in between.
func longFile(t *testing.T) []byte {
	t.Helper()
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{PageSize: 512, NoSync: true}
	db, err := bridge.Open(exactFile{sized(t, mem.Open(), options)}, options)
	must(t, err)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		long := strings.Repeat("x", 20*512+100)
		for key, value := range map[string]string{"a": "A" + long, "b": "small", "c": "C" + long, "d": "D" + long} {
			put(t, b, key, value)
		}
		other := createBucket(t, tx, "other")
		put(t, other, "e", "E"+strings.Repeat(long, 50))
		put(t, other, "f", "small")
		in, err := b.CreateBucket([]byte("in"))
		must(t, err)
		put(t, in, "k", "v")
	})
	must(t, db.Close())
	return slices.Clone(mem.Bytes())
}

// passes is how many seals fn has looked at.
func passes(db *holdfast.DB, fn func(tx *holdfast.Tx)) int {
	before := db.Stats().SealsVerified
	_ = db.View(func(tx *holdfast.Tx) error { fn(tx); return nil })
	return db.Stats().SealsVerified - before
}

// A long run is read when a value of it is, and not by those who pass by.
func TestLongValuesAreVerifiedLate(t *testing.T) {
	data := longFile(t)
	run := longRun(t, data, 'E')
	damaged := slices.Clone(data)
	damaged[(int(run.Start)+500)*512] ^= 1
	for what, fn := range map[string]func(tx *holdfast.Tx){
		"opening":          func(*holdfast.Tx) {},
		"another key":      func(tx *holdfast.Tx) { tx.Bucket([]byte("other")).Get([]byte("dd")) },
		"seeking after it": func(tx *holdfast.Tx) { tx.Bucket([]byte("other")).Cursor().Seek([]byte("ee")) },
		"the buckets": func(tx *holdfast.Tx) {
			must(t, tx.Bucket([]byte("b")).ForEachBucket(func([]byte) error { return nil }))
		},
		"inspecting": func(tx *holdfast.Tx) { tx.Inspect() },
		"counting":   func(tx *holdfast.Tx) { tx.Bucket([]byte("other")).Stats() },
	} {
		for way, options := range map[string]*holdfast.Options{
			"record": nil, "scan": {ReadOnly: true, PreLoadFreelist: true}, "read-only": {ReadOnly: true},
		} {
			from := slices.Clone(damaged)
			if way == "scan" { // which visits every page: without a freelist
				meta(from, 512, func(m *page.Meta) { m.Freelist = page.NoFreelist })
			}
			db, _ := openSealed(t, from, options)
			if n := passes(db, fn); n > 10 {
				t.Errorf("%s, %s: %d seals were looked at", what, way, n)
			}
			must(t, db.View(func(tx *holdfast.Tx) error { fn(tx); return nil }))
		}
	}
	for what, fn := range map[string]func(tx *holdfast.Tx) bool{
		"Get": func(tx *holdfast.Tx) bool { return tx.Bucket([]byte("other")).Get([]byte("e")) != nil },
		"Seek": func(tx *holdfast.Tx) bool {
			k, _ := tx.Bucket([]byte("other")).Cursor().Seek([]byte("e"))
			return k != nil
		},
		"First": func(tx *holdfast.Tx) bool { k, _ := tx.Bucket([]byte("other")).Cursor().First(); return k != nil },
		"Prev": func(tx *holdfast.Tx) bool {
			c := tx.Bucket([]byte("other")).Cursor()
			c.Last()
			k, _ := c.Prev()
			return k != nil
		},
		"All": func(tx *holdfast.Tx) bool { return len(collect(tx.Bucket([]byte("other")).All())) > 0 },
	} {
		for name, begin := range map[string]func(*holdfast.DB, func(*holdfast.Tx) error) error{
			"View": (*holdfast.DB).View, "Update": (*holdfast.DB).Update,
		} {
			db, _ := openSealed(t, damaged, nil)
			err := begin(db, func(tx *holdfast.Tx) error {
				if fn(tx) {
					t.Errorf("%s in %s: gives the damaged value", what, name)
				}
				return nil
			})
			if !isWrongSeal(err) {
				t.Errorf("%s in %s: %v", what, name, err)
			}
		}
	}
	db, _ := openSealed(t, data, nil)
	get := func(tx *holdfast.Tx) {
		if v := tx.Bucket([]byte("other")).Get([]byte("e")); len(v) == 0 || v[0] != 'E' {
			t.Error("no value")
		}
		c := tx.Bucket([]byte("other")).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if len(v) == 0 {
				t.Errorf("%q has no value", k)
			}
		}
	}
	if n, again := passes(db, get), passes(db, get); n < 3 || again != 0 {
		t.Errorf("reading the value looked at %d seals, and then at %d", n, again)
	}
}

// longRun is the leaf that holds the value which begins with first.
func longRun(t *testing.T, data []byte, first byte) (found page.Extent) {
	t.Helper()
	at := bytes.Index(data, append([]byte{first}, strings.Repeat("x", 1000)...))
	runs, _ := runsOf(t, data, 512)
	for _, run := range runs {
		if int(run.Start)*512 <= at && at < int(run.Start+page.ID(run.N))*512 {
			found = run
		}
	}
	if at < 0 || found.N <= 16 {
		t.Fatalf("the value of %c lies at %d, in a run of %d pages", first, at, found.N)
	}
	return found
}

// meta changes both metas.
func meta(data []byte, pageSize int, change func(m *page.Meta)) {
	slots := page.DecodeSlots(data, data[pageSize:])
	for slot := range 2 {
		m := slots.Meta[slot]
		change(&m)
		page.EncodeMeta(data[slot*pageSize:][:pageSize], page.ID(slot), m, nil)
	}
}

// A damaged value does not go into a new page, where it would get a right seal;
// one that is replaced or deleted need not be read.
func TestDamageIsNotSealed(t *testing.T) {
	data := longFile(t)
	for key, first := range map[string]byte{"a": 'A', "e": 'E'} {
		run := longRun(t, data, first)
		damaged := slices.Clone(data)
		at := bytes.Index(damaged, append([]byte{first}, strings.Repeat("x", 1000)...))
		damaged[at+700] ^= 1
		bucket := []byte("b")
		if key == "e" {
			bucket = []byte("other")
		}
		neighbour := key + "1"
		for what, edit := range map[string]func(b *holdfast.Bucket) error{
			"a neighbour": func(b *holdfast.Bucket) error { return b.Put([]byte(neighbour), []byte("v")) },
			"deleted again": func(b *holdfast.Bucket) error {
				return errors.Join(b.Put([]byte(neighbour), nil), b.Delete([]byte(neighbour)))
			},
			"through the cursor": func(b *holdfast.Bucket) error { b.Cursor().Seek([]byte(key)); return nil },
			"in the node": func(b *holdfast.Bucket) error {
				err := b.Put([]byte(neighbour), nil)
				if v := b.Get([]byte(key)); v != nil {
					t.Error("a damaged value was read")
				}
				if k, _ := b.Cursor().Seek([]byte(key)); k != nil {
					t.Error("a damaged value was read through a cursor")
				}
				return err
			},
		} {
			db, mem := openSealed(t, damaged, &holdfast.Options{NoFreelistSync: true})
			before := slices.Clone(mem.Bytes())
			err := db.Update(func(tx *holdfast.Tx) error { return edit(tx.Bucket(bucket)) })
			if !isWrongSeal(err) {
				t.Errorf("%s: %s: %v", key, what, err)
			}
			var damage *holdfast.CorruptError
			if errors.As(err, &damage) && damage.Page != run.Start {
				t.Errorf("%s: %s: page %d, want %d", key, what, damage.Page, run.Start)
			}
			if !bytes.Equal(before, mem.Bytes()) {
				t.Errorf("%s: %s: the file has changed", key, what)
			}
		}
	}
	// "e" stands alone in its run.
	damaged := slices.Clone(data)
	damaged[(int(longRun(t, data, 'E').Start)+500)*512] ^= 1
	for what, edit := range map[string]func(b *holdfast.Bucket) error{
		"replaced": func(b *holdfast.Bucket) error { return b.Put([]byte("e"), []byte("new")) },
		"deleted":  func(b *holdfast.Bucket) error { return b.Delete([]byte("e")) },
	} {
		db, _ := openSealed(t, damaged, nil)
		must(t, db.Update(func(tx *holdfast.Tx) error { return edit(tx.Bucket([]byte("other"))) }))
		checkDB(t, db)
		if c := sealCounts(t, db); c.Wrong != 0 {
			t.Errorf("%s: %+v", what, c)
		}
		must(t, readEverything(db))
	}
}
