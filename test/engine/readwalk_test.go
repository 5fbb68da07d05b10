package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast"
)

// TestReadWalk: moves of any kind, one after the other, of cursors in transactions that only read give what they give over
// a sorted list: within a leaf, from leaf to leaf, at both ends, over buckets and values that have pages of their own.
func TestReadWalk(t *testing.T) {
	for _, n := range []int{0, 1, 2, 30, 3000} {
		for _, pageSize := range []int{4096, 65536} {
			t.Run(fmt.Sprint(n, " keys, pages of ", pageSize), func(t *testing.T) {
				db := openNew(t, pageSize)
				list := fillForWalk(t, db, n, pageSize == 4096)
				walk := func(tx *holdfast.Tx) error {
					readWalk(t, tx.Bucket([]byte("b")), list, rand.New(rand.NewPCG(uint64(n), uint64(pageSize))))
					return nil
				}
				must(t, db.View(walk))
				tx, err := db.Begin(false)
				must(t, err)
				must(t, walk(tx))
				must(t, tx.Rollback())
				must(t, db.Update(walk)) // nothing is edited: the same
			})
		}
	}
}

type walked struct {
	key, value []byte // no value: a bucket
}

// fillForWalk puts n keys. Without long values large pages have leaves of more than a thousand elements, of which a cursor
// copies no headers.
func fillForWalk(t *testing.T, db *holdfast.DB, n int, long bool) (list []walked) {
	must(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		must(t, err)
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		for i := range n {
			one := walked{key: walkKey(i)}
			switch kind := rng.IntN(20); {
			case kind == 0:
				_, err = b.CreateBucket(one.key)
			case kind == 1 && long: // one that is not verified when it is met
				one.value = bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(200_000))
				err = b.Put(one.key, one.value)
			default:
				one.value = bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(100))
				err = b.Put(one.key, one.value)
			}
			must(t, err)
			list = append(list, one)
		}
		return nil
	}))
	return list
}

// readWalk moves a cursor at random, and more often in one direction.
func readWalk(t *testing.T, b *holdfast.Bucket, list []walked, rng *rand.Rand) {
	c := b.Cursor()
	at, steps := -1, 0 // no position
	for range 20_000 {
		var k, v []byte
		what := ""
		if steps--; steps <= 0 {
			steps = rng.IntN(100)
			switch rng.IntN(4) {
			case 0:
				what, at = "First", min(0, len(list)-1)
				k, v = c.First()
			case 1:
				what, at = "Last", len(list)-1
				k, v = c.Last()
			case 2:
				key := walkKey(rng.IntN(len(list) + 2))
				if rng.IntN(2) == 0 {
					key = append(key, 'x')
				}
				what = fmt.Sprintf("Seek(%s)", key)
				k, v = c.Seek(key)
				at, _ = slices.BinarySearchFunc(list, key, func(w walked, key []byte) int { return bytes.Compare(w.key, key) })
				if at == len(list) {
					if k != nil {
						t.Fatalf("%s is %q", what, k)
					}
					steps = 0 // what Next and Prev do is told of by the tests of Seek
					continue
				}
			case 3:
				what = "Delete"
				if err := c.Delete(); b.Writable() {
					return // it has changed
				} else if !errors.Is(err, holdfast.ErrTxNotWritable) {
					t.Fatal(err)
				}
				continue
			}
		}
		if what == "" && at < 0 {
			steps = 0
			continue
		}
		if what == "" {
			next := at + 1
			if what = "Next"; steps%50 > 25 {
				what, next = "Prev", at-1
			}
			if what == "Next" {
				k, v = c.Next()
			} else {
				k, v = c.Prev()
			}
			if next < 0 || next >= len(list) {
				if k != nil {
					t.Fatalf("%s beyond the end is %q", what, k)
				}
				continue
			}
			at = next
		}
		if at < 0 {
			if k != nil {
				t.Fatalf("%s of nothing is %q", what, k)
			}
			continue
		}
		if !bytes.Equal(k, list[at].key) || !bytes.Equal(v, list[at].value) || (v == nil) != (list[at].value == nil) {
			t.Fatalf("%s is %q with %d bytes; want %q with %d", what, k, len(v), list[at].key, len(list[at].value))
		}
	}
}
