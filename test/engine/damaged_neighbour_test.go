package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"holdfast"
)

// A leaf that deletes had made small was joined at commit with the leaf beside it. If that was damaged the commit failed, and
// so did each later one: no key near a damaged page could be deleted any more, and collecting deleted blobs came to an end there.
func TestDeletesBesideADamagedPage(t *testing.T) {
	const keys = 600
	for name, o := range map[string]struct {
		options holdfast.Options
		long    int // each so many is longer than pages that are verified as a whole
	}{
		"short":           {},
		"long":            {long: 7},
		"short, unsealed": {options: holdfast.Options{NoSeals: true}},
		"long, unsealed":  {options: holdfast.Options{NoSeals: true}, long: 7},
	} {
		t.Run(name, func(t *testing.T) {
			o.options.NoSync, o.options.OnDamage, o.options.PageSize = true, holdfast.DamageIsError, 1024
			path := tempPath(t)
			db := open(t, path, &o.options)
			update(t, db, func(tx *holdfast.Tx) {
				b, err := tx.CreateBucket([]byte("b"))
				must(t, err)
				for i := range uint64(keys) {
					value := bytes.Repeat([]byte{byte(i)}, 100)
					if o.long > 0 && i%uint64(o.long) == 0 {
						value = bytes.Repeat(value, 120)
					}
					must(t, b.Put(binary.BigEndian.AppendUint64(nil, i), value))
				}
			})
			var runs []holdfast.PageRun
			view(t, db, func(tx *holdfast.Tx) {
				must(t, tx.ForEachPage(func(r holdfast.PageRun) error {
					if r.Kind == holdfast.PageLeaf || r.Kind == holdfast.PageBranch {
						runs = append(runs, r)
					}
					return nil
				}))
			})
			must(t, db.Close())
			whole := readFile(t, path)
			tried := 0
			for i, r := range runs {
				if i%5 != 0 && r.Kind == holdfast.PageLeaf {
					continue
				}
				file := bytes.Clone(whole)
				at := int(r.ID) * o.options.PageSize
				if o.options.NoSeals {
					file[at+8] ^= 0xff // its kind
				} else {
					file[at+int(r.Pages)*o.options.PageSize*3/4] ^= 1
				}
				must(t, os.WriteFile(path, file, 0o600))
				if deleteBeside(t, open(t, path, &o.options), keys, uint64(i)) {
					tried++
				}
			}
			if tried < 10 {
				t.Errorf("%d pages of %d", tried, len(runs))
			}
		})
	}
}

// deleteBeside deletes, a few at a time, all keys that can be read. ok is false if none can.
func deleteBeside(t *testing.T, db *holdfast.DB, keys int, seed uint64) (ok bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	defer func() { must(t, db.Close()) }()
	var good, bad [][]byte
	for _, i := range rng.Perm(keys) {
		key := binary.BigEndian.AppendUint64(nil, uint64(i))
		if v, err := read(db, key); v != nil && err == nil {
			good = append(good, key)
		} else {
			bad = append(bad, key)
		}
	}
	if len(good) == 0 || len(bad) == 0 { // of the root, or of what a flipped bit does not change
		return false
	}
	for piece := range slices.Chunk(good, 1+rng.IntN(40)) {
		err := db.Update(func(tx *holdfast.Tx) error {
			for _, key := range piece {
				if err := tx.Bucket([]byte("b")).Delete(key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("deleting %d keys, of %d that can be read and %d that can't: %v", len(piece), len(good), len(bad), err)
		}
	}
	var damage *holdfast.CorruptError
	for _, key := range good { // where its leaf is gone a key belongs in the one before
		if v, err := read(db, key); v != nil || err != nil && !errors.As(err, &damage) {
			t.Fatalf("what was deleted is %q, %v", v, err)
		}
	}
	for _, key := range bad {
		if v, err := read(db, key); v != nil || !errors.As(err, &damage) {
			t.Fatalf("what is damaged is %q, %v", v, err)
		}
	}
	return true
}

func read(db *holdfast.DB, key []byte) (value []byte, err error) {
	err = db.View(func(tx *holdfast.Tx) error {
		if b := tx.Bucket([]byte("b")); b != nil {
			value = bytes.Clone(b.Get(key))
		}
		return tx.Err()
	})
	return value, err
}

// A long value on a damaged page could be deleted, or replaced, by a transaction of its own, but not by one that also wrote a page of
// other long values anew: the commit looked at all long pages that the transaction had opened.
func TestReplaceDamagedLongValue(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		path := tempPath(t)
		options := &holdfast.Options{NoSync: true, OnDamage: holdfast.DamageIsError}
		db := open(t, path, options)
		long := func(i byte) []byte { return bytes.Repeat([]byte{'l', i}, 30_000) }
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucket([]byte("b"))
			must(t, err)
			for i := range byte(10) {
				must(t, b.Put([]byte{i}, long(i)))
			}
		})
		must(t, db.Close())
		flipped(t, path, long(4)[:50_000])
		db = open(t, path, options)
		update(t, db, func(tx *holdfast.Tx) {
			b := tx.Bucket([]byte("b"))
			if replaced {
				must(t, b.Put([]byte{4}, []byte("short")))
			} else {
				must(t, b.Delete([]byte{4}))
			}
			for i := range byte(9) { // some of them on the page of one before
				must(t, b.Put([]byte{i, 1}, []byte("beside a long value")))
			}
		})
		for i := range byte(10) {
			want := long(i)
			switch {
			case i == 4 && replaced:
				want = []byte("short")
			case i == 4:
				want = nil
			}
			if v, err := read(db, []byte{i}); !bytes.Equal(v, want) || err != nil {
				t.Errorf("key %d has %d bytes, %v", i, len(v), err)
			}
		}
		must(t, db.View(func(tx *holdfast.Tx) error {
			for err := range tx.Check() {
				t.Error(err)
			}
			return nil
		}))
	}
}
