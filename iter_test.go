package holdfast_test

import (
	"fmt"
	"strings"
	"testing"

	"holdfast"
)

// iterSample is a bucket of keys with some nested buckets between them, on
// several pages of 1,024 bytes.
func iterSample(t *testing.T, b *holdfast.Bucket) []pair {
	t.Helper()
	var want []pair
	for i := range 500 {
		k := fmt.Sprintf("%04d", i)
		if i%50 == 7 {
			createBucket(t, b, k)
			want = append(want, pair{key: k, bucket: true})
			continue
		}
		v := fmt.Sprint("value ", i)
		if i%50 == 8 {
			v = "" // which is not a bucket
		}
		put(t, b, k, v)
		want = append(want, pair{key: k, value: v})
	}
	return want
}

func reversed(pairs []pair) []pair {
	var r []pair
	for i := len(pairs) - 1; i >= 0; i-- {
		r = append(r, pairs[i])
	}
	return r
}

// Iterators give what cursors give, in both directions, of pages and of what a
// transaction has not committed yet.
func TestIterators(t *testing.T) {
	db := openNew(t, 1024)
	var want []pair
	look := func(t *testing.T, b *holdfast.Bucket) {
		equalPairs(t, "All", collect(b.All()), want)
		equalPairs(t, "Backward", collect(b.Backward()), reversed(want))
		equalPairs(t, "Range of all", collect(b.Range(nil, nil)), want)
		for _, r := range []struct {
			from, to string
			want     []pair
		}{
			{"0000", "0500", want},
			{"0010", "0020", want[10:20]},
			{"00100", "0020x", want[11:21]},
			{"0007", "0008", want[7:8]},
			{"0020", "0020", nil},
			{"0030", "0020", nil},
			{"x", "y", nil},
			{"", "0003", want[:3]},
			{"0498", "x", want[498:]},
		} {
			equalPairs(t, fmt.Sprintf("Range(%q, %q)", r.from, r.to), collect(b.Range([]byte(r.from), []byte(r.to))), r.want)
		}
		equalPairs(t, "Range without end", collect(b.Range([]byte("0490"), nil)), want[490:])
		equalPairs(t, "Range without beginning", collect(b.Range(nil, []byte("0010"))), want[:10])
		equalPairs(t, "Prefix of a hundred", collect(b.Prefix([]byte("02"))), want[200:300])
		equalPairs(t, "Prefix of one", collect(b.Prefix([]byte("0207"))), want[207:208])
		equalPairs(t, "Prefix of none", collect(b.Prefix([]byte("x"))), nil)
		equalPairs(t, "empty Prefix", collect(b.Prefix(nil)), want)
		equalPairs(t, "Range to the empty key", collect(b.Range(nil, []byte{})), nil)
	}
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		want = iterSample(t, b)
		look(t, b)
	})
	view(t, db, func(tx *holdfast.Tx) { look(t, tx.Bucket([]byte("b"))) })
}

// A loop may end early, and the iterator can be used again, from the beginning.
func TestIteratorsBreak(t *testing.T) {
	db := openNew(t, 1024)
	update(t, db, func(tx *holdfast.Tx) { iterSample(t, createBucket(t, tx, "b")) })
	view(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		for name, seq := range map[string]func(func(k, v []byte) bool){
			"All": b.All(), "Range": b.Range([]byte("0100"), []byte("0300")), "Backward": b.Backward(), "Prefix": b.Prefix([]byte("0")),
		} {
			var first []string
			for range 2 {
				n := 0
				for k := range seq {
					if n == 0 {
						first = append(first, string(k))
					}
					if n++; n == 40 {
						break
					}
				}
				if n != 40 {
					t.Errorf("%s: %d steps, want 40", name, n)
				}
			}
			if first[0] != first[1] {
				t.Errorf("%s began at %s, then at %s", name, first[0], first[1])
			}
		}
		if got := b.Stats().KeyN; got != 500 {
			t.Errorf("%d keys, want 500", got)
		}
	})
}

// An empty bucket has nothing to iterate over.
func TestIteratorsEmpty(t *testing.T) {
	db := openNew(t, 0)
	look := func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		equalPairs(t, "All", collect(b.All()), nil)
		equalPairs(t, "Backward", collect(b.Backward()), nil)
		equalPairs(t, "Range", collect(b.Range([]byte("a"), []byte("z"))), nil)
	}
	update(t, db, func(tx *holdfast.Tx) { createBucket(t, tx, "b"); look(tx) })
	view(t, db, look)
}

// Deleting while iterating is allowed with a cursor; each key is met once.
func TestDeleteWhileIterating(t *testing.T) {
	db := openNew(t, 1024)
	var want []pair
	update(t, db, func(tx *holdfast.Tx) { want = iterSample(t, createBucket(t, tx, "b")) })
	update(t, db, func(tx *holdfast.Tx) {
		c := tx.Bucket([]byte("b")).Cursor()
		i := 0
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if string(k) != want[i].key {
				t.Fatalf("met %s, want %s", k, want[i].key)
			}
			if v != nil {
				must(t, c.Delete())
			}
			i++
		}
		if i != len(want) {
			t.Errorf("met %d keys, want %d", i, len(want))
		}
	})
	view(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		for k, v := range b.All() {
			if v != nil {
				t.Errorf("%s is left", k)
			}
		}
		checkTx(t, tx)
	})
}

// What comes after a prefix is another byte, where that is not 255.
func TestPrefixOfHighBytes(t *testing.T) {
	db := openNew(t, 0)
	keys := []string{"a", "a\xfe", "a\xff", "a\xff\x00", "a\xff\xff", "a\xff\xffz", "b", "\xff", "\xff\x01", "\xff\xff", "\xff\xff\xff"}
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		for _, k := range keys {
			put(t, b, k, "")
		}
	})
	view(t, db, func(tx *holdfast.Tx) {
		for _, prefix := range append(keys, "", "a\xff\xff\xff", "c") {
			var want []pair
			for _, k := range keys {
				if strings.HasPrefix(k, prefix) {
					want = append(want, pair{key: k})
				}
			}
			equalPairs(t, fmt.Sprintf("Prefix(%q)", prefix), collect(tx.Bucket([]byte("b")).Prefix([]byte(prefix))), want)
		}
	})
}

// A newcomer asked whether a loop may delete: with any iterator, by Bucket.Delete, each key that was there is met
// once, whatever is done to those that were met.
func TestChangeWithinRange(t *testing.T) {
	for name, seq := range map[string]func(*holdfast.Bucket) func(func(k, v []byte) bool){
		"All":      func(b *holdfast.Bucket) func(func(k, v []byte) bool) { return b.All() },
		"Range":    func(b *holdfast.Bucket) func(func(k, v []byte) bool) { return b.Range([]byte("0"), []byte("9")) },
		"Prefix":   func(b *holdfast.Bucket) func(func(k, v []byte) bool) { return b.Prefix([]byte("0")) },
		"Backward": func(b *holdfast.Bucket) func(func(k, v []byte) bool) { return b.Backward() },
	} {
		for _, share := range []int{1, 2, 7} { // of the keys, every how manieth is deleted
			db := openNew(t, 1024)
			var want []pair
			update(t, db, func(tx *holdfast.Tx) { want = iterSample(t, createBucket(t, tx, "b")) })
			if name == "Backward" {
				want = reversed(want)
			}
			left := 0
			update(t, db, func(tx *holdfast.Tx) {
				b, i := tx.Bucket([]byte("b")), 0
				for k, v := range seq(b) {
					if i >= len(want) || string(k) != want[i].key {
						t.Fatalf("%s: step %d is %s", name, i, k)
					}
					switch {
					case v == nil:
						left++
					case i%share == 0:
						must(t, b.Delete(k))
					default:
						must(t, b.Put(k, []byte(fmt.Sprint("another value, longer than the one before: ", i))))
						left++
					}
					i++
				}
				if i != len(want) {
					t.Errorf("%s: met %d keys, want %d", name, i, len(want))
				}
			})
			view(t, db, func(tx *holdfast.Tx) {
				if got := len(collect(tx.Bucket([]byte("b")).All())); got != left {
					t.Errorf("%s: %d keys are left, want %d", name, got, left)
				}
				checkTx(t, tx)
			})
		}
	}
}
