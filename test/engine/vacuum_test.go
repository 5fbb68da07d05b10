package engine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"holdfast"
)

// fill puts n values of size bytes into a bucket, and deletes all but those that keep
// says.
func fillAndDelete(t *testing.T, db *holdfast.DB, name string, n, size int, keep func(int) bool) {
	t.Helper()
	key := func(i int) []byte { return fmt.Appendf(nil, "key%08d", i) }
	const step = 5000
	each := func(do func(b *holdfast.Bucket, i int) error) {
		for at := 0; at < n; at += step {
			must(t, db.Update(func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte(name))
				for i := at; err == nil && i < min(at+step, n); i++ {
					err = do(b, i)
				}
				return err
			}))
		}
	}
	value := make([]byte, size)
	each(func(b *holdfast.Bucket, i int) error { return b.Put(key(i), value) })
	each(func(b *holdfast.Bucket, i int) error {
		if keep(i) {
			return nil
		}
		return b.Delete(key(i))
	})
}

// content is a hash of all that is in the database.
func content(t *testing.T, db *holdfast.DB) string {
	t.Helper()
	h := sha256.New()
	must(t, db.View(func(tx *holdfast.Tx) error { return hashBucket(h, tx.Cursor().Bucket()) }))
	return fmt.Sprintf("%x", h.Sum(nil))
}

func hashBucket(h hash.Hash, b *holdfast.Bucket) error {
	fmt.Fprintf(h, "{%d", b.Sequence())
	return b.ForEach(func(k, v []byte) error {
		fmt.Fprintf(h, "%q=%t%x", k, v == nil, sha256.Sum256(v))
		if v == nil {
			return hashBucket(h, b.Bucket(k))
		}
		return nil
	})
}

// compactSize is the size of a compacted copy, in bytes up to its high-water mark.
func compactSize(t *testing.T, db *holdfast.DB) int64 {
	t.Helper()
	dst := openSized(t, filepath.Join(t.TempDir(), "copy"), &holdfast.Options{NoSync: true, PageSize: db.Info().PageSize})
	defer dst.Close()
	must(t, holdfast.Compact(dst, db, 0))
	var size int64
	must(t, dst.View(func(tx *holdfast.Tx) error {
		size = tx.Size()
		return nil
	}))
	return size
}

// TestVacuum: a file with free pages all over becomes as short as a compacted copy, and
// says the same.
func TestVacuum(t *testing.T) {
	for _, size := range []int{20, 100, 900, 1500, 3000, 10_000, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, &holdfast.Options{NoSync: true})
			must(t, err)
			defer db.Close()
			rnd := rand.New(rand.NewPCG(1, 2))
			fillAndDelete(t, db, "b", 40_000_000/(size+1000), size, func(int) bool { return rnd.IntN(5) == 0 })
			vacuumDense(t, db, 64<<10)
		})
	}
}

// vacuumDense vacuums the database, which holds the same afterwards, and is no longer
// than a compacted copy but for a twentieth and slack bytes.
func vacuumDense(t *testing.T, db *holdfast.DB, slack int64) {
	t.Helper()
	want := content(t, db)
	before := fileSize(t, db.Path())
	r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	after, compacted := length(t, db), compactSize(t, db)
	t.Logf("%d -> %d, %.3f of a compacted copy; %+v", before, after, float64(after)/float64(compacted), r)
	if r.SizeBefore != before || r.SizeAfter != fileSize(t, db.Path()) {
		t.Errorf("the result says %d -> %d", r.SizeBefore, r.SizeAfter)
	}
	if float64(after) > 1.05*float64(compacted)+float64(slack) {
		t.Errorf("the file has %d bytes, a compacted copy %d", after, compacted)
	}
	if content(t, db) != want {
		t.Error("the content is another")
	}
	checkDB(t, db)
}
