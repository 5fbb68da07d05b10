package holdfast_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"holdfast"
)

var errAgain = errors.New("not wanted")

// A bucket that is moved takes with it what the same transaction did to it, and
// handles that were opened before stay good.
func TestMoveBucketWithChanges(t *testing.T) {
	for _, size := range []int{10, 5000} { // inline, and with a page of its own
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			db := openNew(t, 1024)
			big := string(bytes.Repeat([]byte("x"), size))
			update(t, db, func(tx *holdfast.Tx) {
				from := createBucket(t, tx, "from")
				b := createBucket(t, from, "moved")
				put(t, b, "old", big)
				put(t, createBucket(t, b, "inner"), "k", "v")
				createBucket(t, tx, "to")
			})
			update(t, db, func(tx *holdfast.Tx) {
				from, to := tx.Bucket([]byte("from")), tx.Bucket([]byte("to"))
				b := from.Bucket([]byte("moved"))
				put(t, b, "before", "1")
				must(t, b.SetSequence(7))
				inner := b.Bucket([]byte("inner"))
				put(t, inner, "before", "1")
				must(t, tx.MoveBucket([]byte("moved"), from, to))
				put(t, b, "after", big)
				put(t, inner, "after", "2")
				if from.Bucket([]byte("moved")) != nil {
					t.Error("the bucket is in its old place too")
				}
				if to.Bucket([]byte("moved")) != b {
					t.Error("the new place gives another handle")
				}
				// A bucket of that name may be made in the old place again.
				put(t, createBucket(t, from, "moved"), "k", "another")
			})
			view(t, db, func(tx *holdfast.Tx) {
				checkTx(t, tx)
				b := tx.Bucket([]byte("to")).Bucket([]byte("moved"))
				equalPairs(t, "moved bucket", collect(b.All()), []pair{
					{key: "after", value: big}, {key: "before", value: "1"}, {key: "inner", bucket: true}, {key: "old", value: big},
				})
				equalPairs(t, "bucket in it", collect(b.Bucket([]byte("inner")).All()), []pair{
					{key: "after", value: "2"}, {key: "before", value: "1"}, {key: "k", value: "v"},
				})
				if b.Sequence() != 7 {
					t.Errorf("sequence %d, want 7", b.Sequence())
				}
				equalPairs(t, "old place", collect(tx.Bucket([]byte("from")).Bucket([]byte("moved")).All()), []pair{{key: "k", value: "another"}})
			})
		})
	}
}

// Buckets move from and to the top level, and into a bucket that was made or
// moved in the same transaction.
func TestMoveBucketTopLevel(t *testing.T) {
	db := openNew(t, 0)
	update(t, db, func(tx *holdfast.Tx) {
		put(t, createBucket(t, tx, "a"), "in", "a")
		put(t, createBucket(t, tx, "b"), "in", "b")
	})
	update(t, db, func(tx *holdfast.Tx) {
		c := createBucket(t, tx, "c")
		must(t, tx.MoveBucket([]byte("a"), nil, c))
		must(t, tx.MoveBucket([]byte("b"), nil, c.Bucket([]byte("a"))))
		must(t, c.MoveBucket([]byte("a"), createBucket(t, tx, "d")))
		must(t, tx.MoveBucket([]byte("b"), tx.Bucket([]byte("d")).Bucket([]byte("a")), nil))
	})
	view(t, db, func(tx *holdfast.Tx) {
		checkTx(t, tx)
		got := fmt.Sprint(tx.Inspect())
		if want := "{root 0 [{b 1 []} {c 0 []} {d 0 [{a 1 []}]}]}"; got != want {
			t.Errorf("structure %s, want %s", got, want)
		}
	})
}

// The handle of a deleted bucket must not bring it back, nor what is made anew
// under its name be mixed up with it.
func TestDeletedBucketsHandle(t *testing.T) {
	db := openNew(t, 1024)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, createBucket(t, tx, "outer"), "b")
		for i := range 200 {
			put(t, b, fmt.Sprint(i), "old")
		}
	})
	update(t, db, func(tx *holdfast.Tx) {
		outer := tx.Bucket([]byte("outer"))
		stale := outer.Bucket([]byte("b"))
		put(t, stale, "changed", "before it is deleted")
		must(t, outer.DeleteBucket([]byte("b")))
		if err := stale.Put([]byte("k"), []byte("v")); err != holdfast.ErrBucketNotFound {
			t.Errorf("Put in a deleted bucket: %v", err)
		}
		if outer.Bucket([]byte("b")) != nil {
			t.Error("the bucket is still there")
		}
		fresh := createBucket(t, outer, "b")
		put(t, fresh, "k", "new")
		if err := stale.Put([]byte("k"), []byte("v")); err != holdfast.ErrBucketNotFound {
			t.Errorf("Put in a deleted bucket after it was made anew: %v", err)
		}
	})
	view(t, db, func(tx *holdfast.Tx) {
		checkTx(t, tx)
		equalPairs(t, "bucket", collect(tx.Bucket([]byte("outer")).Bucket([]byte("b")).All()), []pair{{key: "k", value: "new"}})
	})
}

// FillPercent decides how full the pages of a load in key order are.
func TestFillPercent(t *testing.T) {
	leaves := func(fill float64) int {
		db := openNew(t, 4096)
		update(t, db, func(tx *holdfast.Tx) {
			b := createBucket(t, tx, "b")
			b.FillPercent = fill
			for i := range 2000 {
				put(t, b, fmt.Sprintf("%06d", i), "a value of some twenty bytes")
			}
		})
		var n int
		view(t, db, func(tx *holdfast.Tx) {
			checkTx(t, tx)
			b := tx.Bucket([]byte("b"))
			if b.FillPercent != holdfast.DefaultFillPercent {
				t.Errorf("a bucket that was just opened has FillPercent %v", b.FillPercent)
			}
			n = b.Stats().LeafPageN
		})
		return n
	}
	full, most, little := leaves(1), leaves(0.9), leaves(0.25)
	if !(full < most && 2*most < little) {
		t.Errorf("leaves at 100%%: %d, at 90%%: %d, at 25%%: %d", full, most, little)
	}
	if least, below := leaves(0.1), leaves(-1); least != below {
		t.Errorf("leaves at 10%%: %d, below: %d; want the same", least, below)
	}
	if above := leaves(7); above != full {
		t.Errorf("leaves above 100%%: %d, at 100%%: %d; want the same", above, full)
	}
	if own := leaves(holdfast.DefaultFillPercent); own > most {
		t.Errorf("leaves as Holdfast chooses when keys are appended: %d, at 90%%: %d", own, most)
	}
}

// Sequences belong to their bucket, count from 1, survive reopening and do not
// change when a transaction is rolled back.
func TestSequences(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, nil)
	for want := uint64(1); want <= 3; want++ {
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			if n, err := b.NextSequence(); err != nil || n != want {
				t.Fatalf("NextSequence gives %d, %v; want %d", n, err, want)
			}
			in, err := b.CreateBucketIfNotExists([]byte("in"))
			must(t, err)
			must(t, in.SetSequence(100*want))
		})
		if err := db.Update(func(tx *holdfast.Tx) error {
			_, err := tx.Bucket([]byte("b")).NextSequence()
			must(t, err)
			return errAgain
		}); err != errAgain {
			t.Fatal(err)
		}
	}
	must(t, db.Close())
	db = open(t, path, nil)
	view(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		if b.Sequence() != 3 || b.Bucket([]byte("in")).Sequence() != 300 {
			t.Errorf("sequences %d and %d, want 3 and 300", b.Sequence(), b.Bucket([]byte("in")).Sequence())
		}
		checkTx(t, tx)
	})
	update(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		must(t, b.SetSequence(1<<64-1))
		if n, err := b.NextSequence(); err != nil || n != 0 {
			t.Errorf("NextSequence behind the last gives %d, %v", n, err)
		}
	})
}

// In a writing transaction a bucket is opened once; the functions that iterate
// stop at an error and return it.
func TestBucketHandlesAndForEach(t *testing.T) {
	db := openNew(t, 0)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		put(t, b, "k", "v")
		in := createBucket(t, b, "in")
		same, err := b.CreateBucketIfNotExists([]byte("in"))
		must(t, err)
		if same != in || b.Bucket([]byte("in")) != in || tx.Bucket([]byte("b")) != b {
			t.Error("one bucket has two handles")
		}
		if !b.Writable() || b.Tx() != tx || tx.DB() != db {
			t.Error("the bucket does not know its transaction")
		}
		if b.Get([]byte("in")) != nil || b.Get([]byte("no")) != nil || b.Bucket([]byte("k")) != nil {
			t.Error("a key is taken for a bucket, or a bucket for a key")
		}
		c := b.Cursor()
		if c.Bucket() != b {
			t.Error("the cursor does not know its bucket")
		}
	})
	stop := errors.New("stop")
	view(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		var seen []string
		must(t, b.ForEach(func(k, v []byte) error { seen = append(seen, fmt.Sprint(string(k), v == nil)); return nil }))
		must(t, b.ForEachBucket(func(k []byte) error { seen = append(seen, string(k)); return nil }))
		must(t, tx.ForEach(func(name []byte, b *holdfast.Bucket) error {
			seen = append(seen, string(name)+string(b.Get([]byte("k"))))
			return nil
		}))
		if got, want := fmt.Sprint(seen), "[intrue kfalse in bv]"; got != want {
			t.Errorf("met %s, want %s", got, want)
		}
		for _, err := range []error{
			b.ForEach(func(k, v []byte) error { return stop }),
			b.ForEachBucket(func(k []byte) error { return stop }),
			tx.ForEach(func(name []byte, b *holdfast.Bucket) error { return stop }),
		} {
			if err != stop {
				t.Errorf("got %v, want the function's error", err)
			}
		}
		if b.Root() != 0 && b.RootPage() != b.Root() {
			t.Error("Root and RootPage differ")
		}
	})
}

// A cursor that stands nowhere deletes nothing; a bucket cannot be moved to a
// transaction that has ended.
func TestNowhere(t *testing.T) {
	db := openNew(t, 0)
	var ended *holdfast.Bucket
	update(t, db, func(tx *holdfast.Tx) { ended = createBucket(t, tx, "b"); put(t, ended, "k", "v") })
	update(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		c := b.Cursor()
		must(t, c.Delete())
		if k, _ := c.Next(); k != nil {
			t.Errorf("Next of a cursor that stands nowhere gives %s", k)
		}
		if k, _ := c.Prev(); k != nil {
			t.Errorf("Prev of a cursor that stands nowhere gives %s", k)
		}
		c.Seek([]byte("z"))
		must(t, c.Delete())
		c.First()
		must(t, c.Delete())
		must(t, c.Delete()) // there is nothing any more
		put(t, b, "k", "v")
		createBucket(t, b, "in")
		if err := b.MoveBucket([]byte("in"), ended); err != holdfast.ErrTxClosed {
			t.Errorf("moving to a transaction that has ended: %v", err)
		}
	})
	view(t, db, func(tx *holdfast.Tx) {
		equalPairs(t, "bucket", collect(tx.Bucket([]byte("b")).All()), []pair{{key: "in", bucket: true}, {key: "k", value: "v"}})
	})
}
