package differential

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
)

// contents is bucket "b".
type contents = map[string]string

// stockReads opens the file at path with bbolt, which checks it, and reads it. It
// works on a copy, so that the file stays as it is.
func stockReads(t *testing.T, path string) contents {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(copied, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := contents{}
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("bbolt: %v", err)
		}
		if tx.Bucket([]byte("b")) == nil {
			return nil
		}
		return tx.Bucket([]byte("b")).ForEach(func(k, v []byte) error {
			all[string(k)] = string(v)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// settle is Settle on the file at path. It tells whether the file has changed.
func settle(t *testing.T, path string) (found holdfast.FileState, changed bool) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if found, err = holdfast.Settle(path, holdfast.SettleOptions{}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != len(after) {
		t.Errorf("Settle has changed the size from %d to %d bytes", len(before), len(after))
	}
	return found, !bytes.Equal(before, after)
}

// A file as kill -9 leaves it in mid use: bbolt sees the state before the last
// flush, after Settle all, and its commits and Holdfast's go on from there.
// Where bbolt has left its freelist page, that stays valid.
func TestSettleForStock(t *testing.T) {
	for _, c := range []struct {
		name     string
		options  holdfast.Options
		pageSize int
		begun    bool // by bbolt, which leaves a freelist page
	}{
		{"Full", holdfast.Options{}, 4096, false},
		{"Full, small pages", holdfast.Options{}, 1024, false},
		{"Full, begun by bbolt", holdfast.Options{}, 4096, true},
		{"Periodic", holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: time.Hour}, 4096, true},
		{"StrictCompat", holdfast.Options{StrictCompat: true}, 4096, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(c.pageSize), 9))
			path := filepath.Join(t.TempDir(), "db")
			c.options.PageSize, c.options.SettleDelay = c.pageSize, -1
			if c.begun {
				begunByStock(t, path, c.pageSize, rng)
				if found, changed := settle(t, path); changed || found.BboltBehind || found.FreeRecorded {
					t.Errorf("of a file of bbolt's: found %+v, changed: %t", found, changed)
				}
			}
			behind := 0
			states := []contents{}
			if c.begun {
				states = append(states, stockReads(t, path))
			} else {
				states = append(states, contents{})
			}
			db, err := holdfast.Open(path, 0o600, &c.options)
			if err != nil {
				t.Fatal(err)
			}
			for commit := range 25 {
				states = append(states, maps.Clone(states[len(states)-1]))
				if err := db.Update(func(tx *holdfast.Tx) error { return follow(tx, rng, states[len(states)-1]) }); err != nil {
					t.Fatal(err)
				}
				killed := left(t, path)
				sees := stockReads(t, killed)
				newest := states[len(states)-1]
				at := slices.IndexFunc(states, func(s contents) bool { return maps.Equal(s, sees) })
				if at < 0 || c.options.Durability == holdfast.Full && at < len(states)-2 {
					t.Fatalf("commit %d: bbolt sees state %d of %d", commit, at, len(states)-1)
				}
				found, changed := settle(t, killed)
				if found.BboltBehind != (at < len(states)-1) || changed != found.BboltBehind {
					t.Errorf("commit %d: bbolt saw state %d of %d; found %+v, changed: %t", commit, at, len(states)-1, found, changed)
				}
				if found.BboltBehind {
					behind++
				}
				if !maps.Equal(stockReads(t, killed), newest) {
					t.Fatalf("commit %d: after Settle bbolt does not see the newest state", commit)
				}
				if again, changed := settle(t, killed); changed || again.BboltBehind {
					t.Errorf("commit %d: the second time: found %+v, changed: %t", commit, again, changed)
				}
				goOn(t, killed, newest, rng)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if found, changed := settle(t, path); changed || found.BboltBehind {
				t.Errorf("after Close: found %+v, changed: %t", found, changed)
			}
			if !maps.Equal(stockReads(t, path), states[len(states)-1]) {
				t.Error("after Close bbolt does not see the newest state")
			}
			if (behind == 0) != c.options.StrictCompat {
				t.Errorf("bbolt was behind %d of 25 times", behind)
			}
		})
	}
}

// left is a copy of the file at path as the end of its process would leave it.
func left(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "left")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

// follow changes bucket "b", and state with it.
func follow(tx *holdfast.Tx, rng *rand.Rand, state contents) error {
	b, err := tx.CreateBucketIfNotExists([]byte("b"))
	if err != nil {
		return err
	}
	return followIn(b, rng, state)
}

func followIn(b editor, rng *rand.Rand, state contents) error {
	for range 10 {
		key := fmt.Sprintf("key%04d", rng.IntN(300))
		if rng.IntN(3) == 0 {
			delete(state, key)
			if err := b.Delete([]byte(key)); err != nil {
				return err
			}
			continue
		}
		state[key] = fmt.Sprintf("%0*d", 1+rng.IntN(1500), rng.IntN(1000))
		if err := b.Put([]byte(key), []byte(state[key])); err != nil {
			return err
		}
	}
	return nil
}

// begunByStock makes a database with bbolt, which leaves a freelist page.
func begunByStock(t *testing.T, path string, pageSize int, rng *rand.Rand) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: pageSize})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return followIn(b, rng, contents{})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// goOn commits to a settled file with bbolt, then with Holdfast.
func goOn(t *testing.T, path string, state contents, rng *rand.Rand) {
	t.Helper()
	state = maps.Clone(state)
	stock, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := stock.Update(func(tx *bbolt.Tx) error { return followIn(tx.Bucket([]byte("b")), rng, state) }); err != nil {
		t.Fatal(err)
	}
	if err := stock.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := holdfast.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *holdfast.Tx) error { return follow(tx, rng, state) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if faults, _, _ := faultsOf(t, path); len(faults) > 0 || !maps.Equal(stockReads(t, path), state) {
		t.Errorf("after commits of both: faults %v, or not what was committed", faults)
	}
}
