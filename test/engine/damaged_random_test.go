package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"holdfast"
)

// With a damaged page, transactions that do not fail change what they say and nothing else: once the page is as it was, the database
// is consistent and has what a model has.
func TestRandomChangesBesideDamage(t *testing.T) {
	committed, failed := 0, 0
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 7))
		options := &holdfast.Options{NoSync: true, OnDamage: holdfast.DamageIsError, PageSize: 1024, NoSeals: seed%3 == 0}
		path := tempPath(t)
		db := open(t, path, options)
		model := map[string]string{}
		value := func() []byte {
			return bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, []int{3, 60, 200, 700, 3000, 12_000}[min(rng.IntN(6), rng.IntN(6))])
		}
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucket([]byte("b"))
			must(t, err)
			for range 800 {
				k, v := fmt.Appendf(nil, "%04d", rng.IntN(2000)), value()
				must(t, b.Put(k, v))
				model[string(k)] = string(v)
			}
		})
		heal := damageSome(t, db, rng, path, options)
		db = open(t, path, options)
		for range 60 {
			next := maps.Clone(model)
			err := db.Update(func(tx *holdfast.Tx) error { return changeBeside(tx.Bucket([]byte("b")), rng, next, value) })
			var damage *holdfast.CorruptError
			switch {
			case err == nil:
				model = next
				committed++
			case errors.As(err, &damage):
				failed++
			default:
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		must(t, db.Close())
		heal()
		db = open(t, path, options)
		view(t, db, func(tx *holdfast.Tx) {
			checkTx(t, tx)
			n := 0
			must(t, tx.Bucket([]byte("b")).ForEach(func(k, v []byte) error {
				if n++; model[string(k)] != string(v) {
					t.Errorf("seed %d: %q has %d bytes, not %d", seed, k, len(v), len(model[string(k)]))
				}
				return nil
			}))
			if n != len(model) {
				t.Errorf("seed %d: %d keys, not %d", seed, n, len(model))
			}
		})
		must(t, db.Close())
	}
	if committed < 2000 || failed < 80 {
		t.Errorf("%d transactions were committed, %d failed", committed, failed)
	}
}

// changeBeside does some changes, as to a model.
func changeBeside(b *holdfast.Bucket, rng *rand.Rand, model map[string]string, value func() []byte) error {
	if b == nil {
		return nil // Err says why
	}
	from, few := rng.IntN(2000), 1+rng.IntN(200)
	deletes := rng.IntN(4)
	for range 1 + rng.IntN(60) {
		k := fmt.Appendf(nil, "%04d", (from+rng.IntN(few))%2000)
		if rng.IntN(4) < deletes {
			delete(model, string(k))
			if err := b.Delete(k); err != nil {
				return err
			}
			continue
		}
		v := value()
		model[string(k)] = string(v)
		if err := b.Put(k, v); err != nil {
			return err
		}
	}
	return nil
}

// damageSome closes db and damages a page of its file. heal mends that, unless the page has been written again.
func damageSome(t *testing.T, db *holdfast.DB, rng *rand.Rand, path string, options *holdfast.Options) (heal func()) {
	t.Helper()
	var runs []holdfast.PageRun
	view(t, db, func(tx *holdfast.Tx) {
		root := tx.Bucket([]byte("b")).Root()
		must(t, tx.ForEachPage(func(r holdfast.PageRun) error {
			if (r.Kind == holdfast.PageLeaf || r.Kind == holdfast.PageBranch) && r.ID != root {
				runs = append(runs, r)
			}
			return nil
		}))
	})
	must(t, db.Close())
	file := readFile(t, path)
	if rng.IntN(2) == 0 { // a long one, which is verified as a whole only if a value is used
		runs = slices.DeleteFunc(runs, func(r holdfast.PageRun) bool { return r.Pages <= 8 })
	}
	r := runs[rng.IntN(len(runs))]
	at, mask := int(r.ID)*options.PageSize+8, byte(0xff) // its kind
	if !options.NoSeals {
		at, mask = at-8+16+rng.IntN(int(r.Pages)*options.PageSize-32), 1
	}
	file[at] ^= mask
	must(t, os.WriteFile(path, file, 0o600))
	begin := at - at%options.PageSize
	damaged := bytes.Clone(file[begin : begin+options.PageSize])
	return func() {
		file := readFile(t, path)
		if len(file) > at && bytes.Equal(file[begin:][:options.PageSize], damaged) {
			file[at] ^= mask
			must(t, os.WriteFile(path, file, 0o600))
		}
	}
}
