package append

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"holdfast"
	"holdfast/test/hook"
)

// denseStep is what one transaction of TestDenseBuckets does to bucket b, which holds what m says: sorted keys are merged into it, some
// removed, and it is written early in between.
func denseStep(rng *rand.Rand, b *holdfast.Bucket, m map[string]string, pageSize int) error {
	hook.Bucket(b).SetDense()
	for range 1 + rng.IntN(3) {
		keys := make([]int, rng.IntN(30+len(m)/2))
		for i := range keys {
			keys[i] = rng.IntN(3000)
		}
		if slices.Sort(keys); rng.IntN(5) == 0 {
			rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		}
		removes := []int{0, 1, 1, 8}[rng.IntN(4)]
		for _, n := range keys {
			k := fmt.Sprintf("%06d", n)
			if n%97 == 5 {
				k += string(bytes.Repeat([]byte{'k'}, 1+n*11%32000))
			}
			if rng.IntN(10) < removes {
				delete(m, k)
				if err := b.Delete([]byte(k)); err != nil {
					return err
				}
				continue
			}
			size := rng.IntN(pageSize / 12)
			if rng.IntN(60) == 0 {
				size = rng.IntN(3 * pageSize)
			}
			v := bytes.Repeat([]byte{byte(rng.Uint32())}, size)
			m[k] = string(v)
			if err := b.Put([]byte(k), v); err != nil {
				return err
			}
			if rng.IntN(200) == 0 {
				if _, err := b.Tx().Spill(int64(pageSize) * int64(rng.IntN(20))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// holdsDense fails unless b holds what m says.
func holdsDense(b *holdfast.Bucket, m map[string]string) error {
	keys, i := slices.Sorted(maps.Keys(m)), 0
	for k, v := range b.All() {
		if i == len(keys) || string(k) != keys[i] || string(v) != m[keys[i]] {
			return fmt.Errorf("key %d is %.20q, with %d bytes", i, k, len(v))
		}
		i++
	}
	if i != len(keys) {
		return fmt.Errorf("%d keys, want %d: %w", i, len(keys), b.Tx().Err())
	}
	return nil
}

// TestDenseBuckets: buckets whose leaves are shared out, in pages of all sizes, hold what they should, and so does what a reader sees
// that began before; the file is sound, whether a transaction was written early, rolled back or committed.
func TestDenseBuckets(t *testing.T) {
	for _, pageSize := range []int{1024, 4096, 16384, 65536} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(11, uint64(pageSize)))
			db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, &holdfast.Options{PageSize: pageSize, NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			var reader *holdfast.Tx
			defer func() {
				if reader != nil {
					_ = reader.Rollback()
				}
				_ = db.Close()
			}()
			var seen map[string]string
			m := map[string]string{}
			errBack := errors.New("rolled back")
			for step := range 20 {
				hook.WriteEarly(db, int64(pageSize)<<rng.IntN(6), int8(1-2*rng.IntN(2)))
				next := maps.Clone(m)
				err := db.Update(func(tx *holdfast.Tx) error {
					b, err := tx.CreateBucketIfNotExists([]byte("b"))
					if err == nil {
						err = denseStep(rng, b, next, pageSize)
					}
					if err == nil && rng.IntN(2) == 0 {
						err = holdsDense(b, next)
					}
					if err == nil && step > 0 && rng.IntN(5) == 0 {
						err = errBack
					}
					return err
				})
				switch {
				case err == nil:
					m = next
				case !errors.Is(err, errBack):
					t.Fatalf("step %d: %v", step, err)
				}
				if reader != nil {
					if err := holdsDense(reader.Bucket([]byte("b")), seen); err != nil {
						t.Fatalf("step %d: a reader from before: %v", step, err)
					}
				}
				if reader == nil || rng.IntN(3) == 0 {
					if reader != nil {
						_ = reader.Rollback()
					}
					if reader, err = db.Begin(false); err != nil {
						t.Fatal(err)
					}
					seen = m
				}
				mustBeSound(t, db)
				if err := db.View(func(tx *holdfast.Tx) error { return holdsDense(tx.Bucket([]byte("b")), m) }); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
		})
	}
}
