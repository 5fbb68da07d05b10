package engine

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"holdfast"
)

// A loop over a bucket that put a key after each one that it met did not end, and ForEach met
// 6,553 keys of 500: a walk went on to what it had put itself. Now it passes over what was put since it
// began, wherever that lies.
func TestWalkThatPuts(t *testing.T) {
	for _, n := range []int{20, 3000} {
		for _, committed := range []bool{true, false} {
			for name, walk := range walks {
				for what, change := range changesInWalk(n) {
					t.Run(fmt.Sprintf("%s/%s,n=%d,committed=%v", name, what, n, committed), func(t *testing.T) {
						walkThatPuts(t, n, committed, walk, change)
					})
				}
			}
		}
	}
}

func walkThatPuts(t *testing.T, n int, committed bool, walk func(b *holdfast.Bucket, visit func(k []byte) bool), change func(b *holdfast.Bucket, k []byte, step int) error) {
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true})
	fill := func(tx *holdfast.Tx) *holdfast.Bucket {
		b, err := tx.CreateBucket([]byte("b"))
		for i := range n {
			if err == nil {
				err = b.Put(walkKey(i), []byte("some value"))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if committed {
		if err := db.Update(func(tx *holdfast.Tx) error { fill(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket([]byte("b"))
		if !committed {
			b = fill(tx)
		}
		var met [][]byte
		walk(b, func(k []byte) bool {
			met = append(met, bytes.Clone(k))
			if err := change(b, bytes.Clone(k), len(met)); err != nil {
				t.Error(err)
			}
			return len(met) <= n && !t.Failed()
		})
		slices.SortFunc(met, bytes.Compare)
		if len(met) != n {
			return fmt.Errorf("the walk met %d keys, want the %d that there were", len(met), n)
		}
		for i, k := range met {
			if !bytes.Equal(k, walkKey(i)) {
				return fmt.Errorf("key %d of the walk is %q, want %q", i, k, walkKey(i))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	checkDB(t, db)
}

func walkKey(i int) []byte { return fmt.Appendf(nil, "k%09d", i) }

// walks are the ways to meet all keys of a bucket. visit says whether to go on.
var walks = map[string]func(b *holdfast.Bucket, visit func(k []byte) bool){
	"Next": func(b *holdfast.Bucket, visit func(k []byte) bool) {
		c := b.Cursor()
		for k, _ := c.First(); k != nil && visit(k); k, _ = c.Next() {
		}
	},
	"Seek": func(b *holdfast.Bucket, visit func(k []byte) bool) {
		c := b.Cursor()
		for k, _ := c.Seek([]byte("k")); k != nil && visit(k); k, _ = c.Next() {
		}
	},
	"Prev": func(b *holdfast.Bucket, visit func(k []byte) bool) {
		c := b.Cursor()
		for k, _ := c.Last(); k != nil && visit(k); k, _ = c.Prev() {
		}
	},
	"ForEach": func(b *holdfast.Bucket, visit func(k []byte) bool) {
		_ = b.ForEach(func(k, _ []byte) error {
			if !visit(k) {
				return fmt.Errorf("enough")
			}
			return nil
		})
	},
	"All": func(b *holdfast.Bucket, visit func(k []byte) bool) {
		for k := range b.All() {
			if !visit(k) {
				return
			}
		}
	},
	"Backward": func(b *holdfast.Bucket, visit func(k []byte) bool) {
		for k := range b.Backward() {
			if !visit(k) {
				return
			}
		}
	},
}

// changesInWalk are changes to a bucket of n keys at each step of a walk.
func changesInWalk(n int) map[string]func(b *holdfast.Bucket, k []byte, step int) error {
	value := []byte("v")
	before := func(k []byte) []byte { k[len(k)-1]--; return append(k, '~') }
	return map[string]func(b *holdfast.Bucket, k []byte, step int) error{
		"after":  func(b *holdfast.Bucket, k []byte, _ int) error { return b.Put(append(k, 'x'), value) },
		"before": func(b *holdfast.Bucket, k []byte, _ int) error { return b.Put(before(k), value) },
		"far after": func(b *holdfast.Bucket, _ []byte, step int) error {
			return b.Put(fmt.Appendf(nil, "z%09d", step), value)
		},
		"far before": func(b *holdfast.Bucket, _ []byte, step int) error {
			return b.Put(fmt.Appendf(nil, "a%09d", 1e9-step), value)
		},
		"in one place": func(b *holdfast.Bucket, _ []byte, step int) error {
			return b.Put(fmt.Appendf(walkKey(n/2), "+%09d", step), value)
		},
		"again": func(b *holdfast.Bucket, k []byte, _ int) error { return b.Put(k, make([]byte, 30)) },
		"append": func(b *holdfast.Bucket, _ []byte, step int) error {
			return b.Append(fmt.Appendf(nil, "z%09d", step), value)
		},
		"append pages": func(b *holdfast.Bucket, _ []byte, step int) error {
			if step > 100 {
				return nil
			}
			return b.Append(fmt.Appendf(nil, "z%09d", step), make([]byte, 5000))
		},
		"append and put": func(b *holdfast.Bucket, k []byte, step int) error {
			if err := b.Append(fmt.Appendf(nil, "z%09d", 2*step), value); err != nil {
				return err
			}
			return b.Put(append(k, 'x'), value)
		},
		"bucket": func(b *holdfast.Bucket, k []byte, _ int) error {
			_, err := b.CreateBucket(append(k, 'x'))
			return err
		},
		"rename": func(b *holdfast.Bucket, k []byte, _ int) error {
			if err := b.Delete(k); err != nil {
				return err
			}
			return b.Put(append(k, 'x'), value)
		},
		// What is deleted and put again is met once, as with bbolt.
		"delete and put others": func(b *holdfast.Bucket, k []byte, _ int) error {
			var i int
			if _, err := fmt.Sscanf(string(k), "k%d", &i); err != nil {
				return err
			}
			k = walkKey((i + 7) % n)
			if err := b.Delete(k); err != nil {
				return err
			}
			return b.Put(k, value)
		},
	}
}

// After First, Last or Seek a cursor meets what was put before that.
func TestWalkAgainMeetsAll(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true})
	if err := db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		if err != nil {
			return err
		}
		c := b.Cursor()
		for i := range 2000 {
			if err := b.Put(walkKey(i), nil); err != nil {
				return err
			}
			if k, _ := c.Next(); i > 0 && k != nil {
				t.Fatalf("Next met %q, which was put after Last", k)
			}
			if k, _ := c.Last(); !bytes.Equal(k, walkKey(i)) {
				t.Fatalf("Last is %q, want %q", k, walkKey(i))
			}
		}
		n := 0
		for k, _ := c.Seek(walkKey(10)); k != nil; k, _ = c.Next() {
			n++
		}
		if n != 1990 {
			t.Fatalf("a walk from key 10 met %d keys", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Next at the end stays there, whatever was put after it, and Prev goes back from there.
func TestWalkStaysAtEnd(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true})
	if err := db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		if err != nil {
			return err
		}
		for i := range 100 {
			if err := b.Put(walkKey(i), nil); err != nil {
				return err
			}
		}
		c := b.Cursor()
		c.Last()
		for i := 100; i < 3000; i++ {
			if err := b.Put(walkKey(i), nil); err != nil {
				return err
			}
			if i%500 == 0 {
				for range 3 {
					if k, _ := c.Next(); k != nil {
						t.Fatalf("Next met %q", k)
					}
				}
			}
		}
		if k, _ := c.Prev(); !bytes.Equal(k, walkKey(98)) {
			t.Fatalf("Prev is %q, want %q", k, walkKey(98))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Next after Prev skipped keys that were put after the cursor's key. bbolt's Next returns them if the page was changed
// before: a test of github.com/lightningnetwork/lnd/kvdb failed. A change of direction begins a new walk.
func TestWalkTurns(t *testing.T) {
	for _, n := range []int{10, 3000} {
		for _, committed := range []bool{true, false} {
			db := open(t, tempPath(t), &holdfast.Options{NoSync: true})
			fill := func(tx *holdfast.Tx) *holdfast.Bucket {
				b, err := tx.CreateBucket([]byte("b"))
				for i := range n {
					if err == nil {
						err = b.Put(walkKey(i), nil)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			if committed {
				if err := db.Update(func(tx *holdfast.Tx) error { fill(tx); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Update(func(tx *holdfast.Tx) error {
				b := tx.Bucket([]byte("b"))
				if !committed {
					b = fill(tx)
				}
				turn(t, b, n)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			checkDB(t, db)
		}
	}
}

// turn goes back and forth around a key in the middle, and puts keys beside it.
func turn(t *testing.T, b *holdfast.Bucket, n int) {
	t.Helper()
	at, c := n/2, b.Cursor()
	want := func(move func() ([]byte, []byte), name string, key []byte) {
		t.Helper()
		if k, _ := move(); !bytes.Equal(k, key) {
			t.Errorf("n=%d: %s gives %q, want %q", n, name, k, key)
		}
	}
	put := func(key string) {
		t.Helper()
		if err := b.Put([]byte(key), nil); err != nil {
			t.Fatal(err)
		}
	}
	here := string(walkKey(at))
	c.Seek(walkKey(at + 2))
	want(c.Prev, "Prev", walkKey(at+1))
	want(c.Prev, "Prev", walkKey(at))
	put(here + "x")
	put(here + "y")
	want(c.Next, "Next after Prev", []byte(here+"x"))
	put(here + "xx") // while it walks: not met
	want(c.Next, "Next", []byte(here+"y"))
	want(c.Prev, "Prev after Next", []byte(here+"xx"))
	put(here + "a")
	want(c.Prev, "Prev", []byte(here+"x"))
	want(c.Prev, "Prev", walkKey(at))
	want(c.Next, "Next after Prev", []byte(here+"a"))
}
