package differential

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/test/stock/ops"
)

// walkRun is a walk over a bucket of n keys, in which each step changes the bucket.
type walkRun struct {
	n         int
	committed bool // the keys were committed before; else put in the same transaction
	back      bool
	change    string
	seed      uint64
}

var walkChanges = []string{"nothing", "replace", "after", "before", "far after", "far before", "delete after", "delete here", "mixed"}

func walkedKey(i int) []byte { return fmt.Appendf(nil, "k%09d", i) }

// walk gives the keys that an engine's cursor meets, 20 times as many as there are at most.
func walk[B ops.Bucket[B, C], C ops.Cursor](b B, r walkRun) (met [][]byte, err error) {
	rng := rand.New(rand.NewPCG(r.seed, 1))
	c := b.Cursor()
	first, next := c.First, c.Next
	if r.back {
		first, next = c.Last, c.Prev
	}
	for k, _ := first(); k != nil && len(met) < 20*r.n && err == nil; k, _ = next() {
		k = bytes.Clone(k)
		met = append(met, k)
		what := r.change
		if what == "mixed" {
			what = walkChanges[rng.IntN(3)]
			if r.back {
				what = walkChanges[rng.IntN(2)]
			}
			if rng.IntN(5) == 0 {
				what = "delete after"
			}
		}
		switch what {
		case "replace":
			err = b.Put(k, make([]byte, rng.IntN(50)))
		case "after":
			err = b.Put(append(k, 'x'), nil)
		case "before":
			k = bytes.Clone(k)
			k[len(k)-1]--
			err = b.Put(append(k, '~'), nil)
		case "far after":
			err = b.Put(fmt.Appendf(nil, "z%09d", len(met)), nil)
		case "far before":
			err = b.Put(fmt.Appendf(nil, "a%09d", r.n*30-len(met)), nil)
		case "delete after":
			if at := len(met) - 1 - rng.IntN(3); at >= 0 && at < len(met)-1 {
				err = b.Delete(met[at])
			}
		case "delete here":
			err = c.Delete()
		}
	}
	return met, err
}

func walkIn[D interface {
	Begin(bool) (T, error)
	Close() error
}, T ops.Tx[B, C], B ops.Bucket[B, C], C ops.Cursor](db D, r walkRun) (met [][]byte, err error) {
	name := []byte("b")
	fill := func(tx T) (B, error) {
		b, err := tx.CreateBucket(name)
		for i := 0; i < r.n && err == nil; i++ {
			err = b.Put(walkedKey(i), []byte("some value"))
		}
		return b, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.Begin(true)
	if err != nil {
		return nil, err
	}
	b, err := fill(tx)
	if err == nil && r.committed {
		if err = tx.Commit(); err != nil {
			return nil, err
		}
		if tx, err = db.Begin(true); err != nil {
			return nil, err
		}
		b = tx.Bucket(name)
	}
	if err == nil {
		met, err = walk[B, C](b, r)
	}
	return met, errors.Join(err, tx.Rollback())
}

// A walk in which each step put a key did not end, where bbolt's does. Holdfast's meets the keys that there
// were when it began, whatever the change. bbolt's does so in most cases; in the others it goes on for
// ever, meets what was put or passes over keys, depending on where pages end and whether they were changed
// before.
func TestWalks(t *testing.T) {
	same, other := 0, 0
	for _, n := range []int{20, 500} {
		for _, committed := range []bool{true, false} {
			for _, back := range []bool{false, true} {
				for _, change := range walkChanges {
					if back && change == "delete here" {
						continue // bbolt may never return
					}
					for seed := range uint64(2) {
						r := walkRun{n, committed, back, change, seed}
						if compareWalks(t, r) {
							same++
						} else {
							other++
							if committed && (n == 20 || change != "far after" && change != "far before" && change != "before") {
								t.Errorf("%+v: bbolt meets other keys than there were", r)
							}
						}
					}
				}
			}
		}
	}
	if t.Logf("%d walks as bbolt's, %d not", same, other); same < 80 {
		t.Errorf("only %d walks were compared with bbolt's", same)
	}
}

// compareWalks tells whether bbolt meets each key once.
func compareWalks(t *testing.T, r walkRun) bool {
	t.Helper()
	h, err := holdfast.Open(filepath.Join(t.TempDir(), "holdfast"), 0o600, &holdfast.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := walkIn(h, r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	s, err := bbolt.Open(filepath.Join(t.TempDir(), "stock"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	stock, err := walkIn(s, r)
	if err != nil {
		t.Fatalf("%+v: bbolt: %v", r, err)
	}
	var want [][]byte
	for i := range r.n {
		want = append(want, walkedKey(i))
	}
	if r.back {
		slices.Reverse(want)
	}
	if !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%+v: the walk met %d keys, or in another order: %.5q", r, len(got), got)
	}
	return slices.EqualFunc(stock, want, bytes.Equal)
}
