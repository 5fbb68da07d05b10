package append

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/test/hook"
)

// What a small bucket keeps in memory lay in what the caller had put, which he may use again
// behind a Spill: other bytes were committed.
func TestSpillKeptValue(t *testing.T) {
	db := spillDB(t)
	v := []byte("the value")
	err := db.Update(func(tx *holdfast.Tx) error {
		s, err := tx.CreateBucket([]byte("small"))
		if err != nil {
			return err
		}
		if err := errors.Join(s.Put([]byte("k"), v), fillBucket(tx.Bucket([]byte("a")), 0, 100), mustSpill(tx)); err != nil {
			return err
		}
		copy(v, "XXXXXXXXXXXX")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.View(func(tx *holdfast.Tx) error {
		if got := tx.Bucket([]byte("small")).Get([]byte("k")); string(got) != "the value" {
			t.Errorf("got %q", got)
		}
		return nil
	})
}

// A cursor that has come behind the last element gave the last one without saying so, and Spill
// used its page again.
func TestSpillBehindTheEnd(t *testing.T) {
	db := spillDB(t)
	err := db.Update(func(tx *holdfast.Tx) error {
		a, other := tx.Bucket([]byte("a")), tx.Bucket([]byte("other"))
		if err := errors.Join(fillBucket(other, 0, 100), mustSpill(tx)); err != nil {
			return err
		}
		c := other.Cursor()
		if k, _ := c.Seek([]byte("z")); k != nil {
			return errors.New("found")
		}
		k, v := c.Prev()
		was := string(k) + string(v)
		for range 10 {
			if err := errors.Join(fillBucket(other, 0, 100), mustSpill(tx), fillBucket(a, 0, 100), mustSpill(tx)); err != nil {
				return err
			}
			if is := string(k) + string(v); is != was {
				return fmt.Errorf("%q became %q", was, is)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A bucket to which much was appended, and of which so much was deleted that it became small, kept
// elements in pages that Spill gave away.
func TestSpillAppendedSmall(t *testing.T) {
	db := spillDB(t)
	value := func(i int) []byte { return fmt.Appendf(nil, "%060d", i) }
	err := db.Update(func(tx *holdfast.Tx) error {
		a := tx.Bucket([]byte("a"))
		s, err := tx.CreateBucket([]byte("s"))
		if err != nil {
			return err
		}
		for i := range 200 {
			if err := s.Append(fmt.Appendf(nil, "%08d", i), value(i)); err != nil {
				return err
			}
		}
		for i := range 200 {
			if i == 5 || i == 100 {
				continue
			}
			if err := s.Delete(fmt.Appendf(nil, "%08d", i)); err != nil {
				return err
			}
		}
		for range 20 {
			if err := errors.Join(fillBucket(a, 0, 100), mustSpill(tx)); err != nil {
				return err
			}
			for _, i := range []int{5, 100} {
				if v, _ := s.AppendValue(nil, fmt.Appendf(nil, "%08d", i)); !bytes.Equal(v, value(i)) {
					return fmt.Errorf("%d is %q", i, v)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	mustBeSound(t, db)
}

// The same with a file's usual pages: what was committed was damaged.
func TestSpillAppendedSmallCommitted(t *testing.T) {
	db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	value := func(i int) []byte { return fmt.Appendf(nil, "%060d", i) }
	err = db.Update(func(tx *holdfast.Tx) error {
		a, err := tx.CreateBucket([]byte("a"))
		if err != nil {
			return err
		}
		s, err := tx.CreateBucket([]byte("s"))
		if err != nil {
			return err
		}
		for i := range 30000 {
			if err := s.Append(fmt.Appendf(nil, "%08d", i), value(i)); err != nil {
				return err
			}
		}
		for i := range 30000 {
			if i != 5 && i != 20000 {
				if err := s.Delete(fmt.Appendf(nil, "%08d", i)); err != nil {
					return err
				}
			}
		}
		for range 3 {
			if err := errors.Join(fillBucket(a, 0, 40000), mustSpill(tx)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, db)
	_ = db.View(func(tx *holdfast.Tx) error {
		for _, i := range []int{5, 20000} {
			if v := tx.Bucket([]byte("s")).Get(fmt.Appendf(nil, "%08d", i)); !bytes.Equal(v, value(i)) {
				t.Errorf("%d is %q", i, v)
			}
		}
		return nil
	})
}

// An inline bucket in a leaf to which was appended lay in memory that Spill gave away.
func TestSpillAppendedInline(t *testing.T) {
	db := spillDB(t)
	err := db.Update(func(tx *holdfast.Tx) error {
		n, err := tx.Bucket([]byte("other")).CreateBucket([]byte("00000099n"))
		if err != nil {
			return err
		}
		return n.Put([]byte("k"), []byte("value of n"))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		a, other := tx.Bucket([]byte("a")), tx.Bucket([]byte("other"))
		for i := 100; i < 200; i++ {
			if err := other.Append(fmt.Appendf(nil, "%08d", i), fmt.Appendf(nil, "%0100d", i)); err != nil {
				return err
			}
		}
		n := other.Bucket([]byte("00000099n"))
		for range 20 {
			if err := errors.Join(fillBucket(other, 90, 110), fillBucket(a, 0, 100), mustSpill(tx)); err != nil {
				return err
			}
			v, _ := n.AppendValue(nil, []byte("k"))
			if string(v) != "value of n" {
				return fmt.Errorf("it is %q %v", v, tx.Err())
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	mustBeSound(t, db)
}

// A bucket of which all that was appended made one page had that as its root behind a Spill, which
// Append did not know: the memory of the page was used again, and a branch with other bytes as its
// first key was committed.
func TestSpillOnePage(t *testing.T) {
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	shapes := map[string]func(b *holdfast.Bucket) error{
		"one long value": func(b *holdfast.Bucket) error { return b.Append(key(0), make([]byte, 2856)) },
		"a page of which what follows was deleted": func(b *holdfast.Bucket) error {
			for i := range 8 {
				if err := b.Append(key(i), make([]byte, 100)); err != nil {
					return err
				}
			}
			return errors.Join(b.Append(key(8), make([]byte, 2856)), b.Delete(key(8)))
		},
	}
	for name, begin := range shapes {
		for who, behind := range map[string]int8{"behind the caller": 1, "by the caller": -1} {
			t.Run(name+" "+who, func(t *testing.T) {
				db := spillDB(t)
				hook.WriteEarly(db, 1, behind)
				if err := db.Update(func(tx *holdfast.Tx) error { return appendBehindSpill(tx, begin, key) }); err != nil {
					t.Fatal(err)
				}
				_ = db.View(func(tx *holdfast.Tx) error {
					for err := range tx.Check() {
						t.Error(err)
					}
					b := tx.Bucket([]byte("s"))
					if k, _ := b.Cursor().First(); !bytes.Equal(k, key(0)) {
						t.Errorf("the first key is %q", k)
					}
					for i := 10; i < 100; i++ {
						if !bytes.Equal(b.Get(key(i)), key(i)) {
							t.Errorf("key %d has %q", i, b.Get(key(i)))
						}
					}
					return nil
				})
			})
		}
	}
}

// appendBehindSpill makes a bucket with what begin appends, and appends more behind a Spill, and
// another one.
func appendBehindSpill(tx *holdfast.Tx, begin func(*holdfast.Bucket) error, key func(int) []byte) error {
	b, err := tx.CreateBucket([]byte("s"))
	if err != nil {
		return err
	}
	if err := errors.Join(begin(b), mustSpill(tx)); err != nil {
		return err
	}
	for i := 10; i < 100; i++ {
		if err := b.Append(key(i), key(i)); err != nil {
			return err
		}
	}
	return errors.Join(fillBucket(tx.Bucket([]byte("other")), 0, 100), mustSpill(tx))
}
