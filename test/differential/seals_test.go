package differential

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/bbolt/cmd/bbolt/command"

	"holdfast"
)

// faultsOf opens the file with Holdfast, reads all of bucket "b", checks the file
// and counts its seals.
func faultsOf(t *testing.T, path string) (faults []*holdfast.CorruptError, seals holdfast.SealCounts, read error) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	read = db.View(func(tx *holdfast.Tx) error {
		for range tx.Bucket([]byte("b")).All() { // to its end, or to what is damaged
		}
		return nil
	})
	if faults, err = db.Verify(context.Background(), holdfast.WithSealCounts(&seals)); err != nil {
		t.Fatal(err)
	}
	return faults, seals, read
}

// editor is what both engines have in common here.
type editor interface {
	Put(key, value []byte) error
	Delete(key []byte) error
}

func edit(b editor, rng *rand.Rand) error {
	for range 40 {
		key := fmt.Appendf(nil, "key%04d", rng.IntN(800))
		var err error
		if rng.IntN(3) == 0 {
			err = b.Delete(key)
		} else {
			err = b.Put(key, fmt.Append(nil, strings.Repeat("v", rng.IntN(300)), rng.Uint32()))
		}
		if err != nil {
			return err
		}
	}
	if rng.IntN(4) == 0 {
		return b.Put([]byte("long"), []byte(strings.Repeat("long value", 1000+rng.IntN(20_000))))
	}
	return nil
}

// bbolt's commits write whole pages: it leaves no seal behind that does not fit.
// Pages that it wrote have none, and are read without complaint; so are ours by it.
func TestSealsAfterStock(t *testing.T) {
	for _, pageSize := range []int{1024, 4096, 16384} {
		rng := rand.New(rand.NewPCG(uint64(pageSize), 5))
		path := filepath.Join(t.TempDir(), "db")
		both, onlyStock := 0, 0
		for round := range 40 {
			ours := round%4 < 2
			var err error
			if ours {
				var db *holdfast.DB
				if db, err = holdfast.Open(path, 0o600, &holdfast.Options{PageSize: pageSize, NoSync: true}); err == nil {
					err = db.Update(func(tx *holdfast.Tx) error {
						b, err := tx.CreateBucketIfNotExists([]byte("b"))
						if err != nil {
							return err
						}
						return edit(b, rng)
					})
					if closeErr := db.Close(); err == nil {
						err = closeErr
					}
				}
			} else {
				var db *bbolt.DB
				if db, err = bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: round%8 > 4}); err == nil {
					err = db.Update(func(tx *bbolt.Tx) error {
						for err := range tx.Check() {
							return err
						}
						return edit(tx.Bucket([]byte("b")), rng)
					})
					if closeErr := db.Close(); err == nil {
						err = closeErr
					}
				}
			}
			if err != nil {
				t.Fatalf("pages of %d bytes, round %d: %v", pageSize, round, err)
			}
			faults, seals, read := faultsOf(t, path)
			if len(faults) > 0 || seals.Wrong > 0 || read != nil {
				t.Fatalf("pages of %d bytes, round %d: %+v, %v, faults %v", pageSize, round, seals, read, faults)
			}
			switch {
			case seals.Sealed > 0 && seals.Unsealed > 0:
				both++
			case seals.Unsealed > 0:
				onlyStock++
			}
		}
		if both < 10 {
			t.Errorf("pages of %d bytes: in %d of 40 rounds there were pages with seals and pages without, in %d only such without", pageSize, both, onlyStock)
		}
	}
}

// surgery runs "bbolt surgery" on a copy of the file at path.
func surgery(t *testing.T, path string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "mended")
	cmd := command.NewRootCommand()
	cmd.SetArgs(append([]string{"surgery", args[0], path, "--output", out}, args[1:]...))
	cmd.SetOut(io.Discard)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return out
}

// bbolt's surgery edits pages in place: the seal that it leaves does not fit, the
// error says so and what to do, and reseal mends it.
func TestSealsAfterSurgery(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	var leaf, other string
	if err := db.Update(func(tx *holdfast.Tx) error {
		for _, name := range []string{"b", "c"} {
			b, err := tx.CreateBucket([]byte(name))
			if err != nil {
				return err
			}
			for i := range 30 {
				if err := b.Put(fmt.Append(nil, name, 10+i), []byte(strings.Repeat("v", 100))); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.View(func(tx *holdfast.Tx) error {
		leaf = strconv.Itoa(int(tx.Bucket([]byte("b")).Root()))
		other = strconv.Itoa(int(tx.Bucket([]byte("c")).Root()))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// Up to the end, the surgery leaves a gap before the first element: a fault of
	// its own, which reseal lets pass.
	for gap, args := range [][]string{
		{"clear-page-elements", "--pageId", leaf, "--from-index", "3", "--to-index", "5"},
		{"clear-page-elements", "--pageId", leaf, "--from-index", "20", "--to-index", "-1"},
	} {
		mended := surgery(t, path, args...)
		faults, seals, read := faultsOf(t, mended)
		if len(faults) != 1+gap || strconv.Itoa(int(faults[0].Page)) != leaf || seals.Wrong != 1 {
			t.Fatalf("%v: %+v, faults %v", args, seals, faults)
		}
		if read == nil || !strings.Contains(read.Error(), "holdfast reseal FILE") {
			t.Errorf("%v: reading: %v", args, read)
		}
		before, err := os.ReadFile(mended)
		if err != nil {
			t.Fatal(err)
		}
		done, err := holdfast.Reseal(context.Background(), mended, holdfast.ResealOptions{})
		if err != nil || len(done.Replaced) != 1 {
			t.Fatalf("%v: %+v, %v", args, done, err)
		}
		after, err := os.ReadFile(mended)
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for i := 2 * 4096; i < len(before); i++ { // after the meta pages, in which the seal sum is recorded
			if before[i] != after[i] {
				changed++
			}
		}
		if changed == 0 || changed > 8 {
			t.Errorf("%v: reseal has changed %d bytes", args, changed)
		}
		if faults, seals, read := faultsOf(t, mended); len(faults) != gap || seals.Wrong > 0 || read != nil {
			t.Errorf("%v: after reseal: %+v, %v, faults %v", args, seals, read, faults)
		}
	}
	// Of a page that was copied over another, with a number of its own, nothing but
	// the seal tells.
	copied := surgery(t, path, "copy-page", "--from-page", other, "--to-page", leaf)
	if faults, seals, read := faultsOf(t, copied); len(faults) != 1 || seals.Wrong != 1 || read == nil {
		t.Errorf("copy-page: %+v, %v, faults %v", seals, read, faults)
	}
	if faults, seals, _ := faultsOf(t, surgery(t, path, "revert-meta-page")); seals.Wrong > 0 {
		t.Errorf("revert-meta-page: %+v, faults %v", seals, faults)
	}
}
