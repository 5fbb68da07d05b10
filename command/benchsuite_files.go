package command

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"holdfast"
)

// The files that workloads are run on. Values cannot be compressed, so that a file system
// that compresses does what it does with others.

// suiteSeed makes every run's files the same.
const suiteSeed = 20

// suiteNoise is what values are cut from.
var suiteNoise = func() []byte {
	b := make([]byte, 0, 64<<10)
	for r := rand.NewPCG(suiteSeed, 0); len(b) < cap(b); {
		b = binary.BigEndian.AppendUint64(b, r.Uint64())
	}
	return b
}()

// suiteValue is the i-th value of n bytes, at most as many as there are of noise.
func suiteValue(i uint64, n int) []byte {
	at := int(i * 101 % uint64(len(suiteNoise)-n+1))
	return suiteNoise[at : at+n]
}

func suiteKey(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

var unflushed = holdfast.Options{NoSync: true}

// errMissing is returned when a database does not have what was put there.
var errMissing = errors.New("something is gone that was written")

// each calls fn with numbers from 0 to n, some in each transaction.
func (s *benchSuite) each(db *holdfast.DB, n, atOnce int, fn func(b *holdfast.Bucket, i int) error) error {
	for from := 0; from < n; from += atOnce {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		err := db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists(demoBig)
			for i := from; i < min(from+atOnce, n) && err == nil; i++ {
				err = fn(b, i)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// suiteFile is how a file was made.
type suiteFile struct {
	values int // with keys from 0 on
	size   int // of each
	left   int // of so many values one stays; 1: all
	past   bool
	atOnce int // values deleted in a transaction
}

// Values that stay in an aged file, and deletes in one of the transactions that age it.
const (
	agedLeft   = 10
	agedDelete = 100
)

// agedFile has few keys and many free pages all over, as one that was once full and in hundreds
// of commits lost what it had; without a past it has the same keys only.
func (s *benchSuite) agedFile(bytes int64, past bool) suiteFile {
	return suiteFile{values: int(bytes / demoValueBytes), size: demoValueBytes, left: agedLeft, past: past, atOnce: agedDelete}
}

// make makes the file, and flushes it. In bucket small are some keys more, for commits.
func (s *benchSuite) make(name string, f suiteFile) error {
	defer s.progress("making "+name, 0, nil)()
	return s.with(name, unflushed, func(db *holdfast.DB) error {
		put := func(b *holdfast.Bucket, i int) error {
			if !f.past && i%f.left > 0 {
				return nil
			}
			return b.Put(suiteKey(i), suiteValue(uint64(i), f.size))
		}
		if err := s.each(db, f.values, demoTxValues, put); err != nil {
			return err
		}
		var dropped []int
		for i := range f.values {
			if f.past && i%f.left > 0 {
				dropped = append(dropped, i)
			}
		}
		rand.New(rand.NewPCG(suiteSeed, 1)).Shuffle(len(dropped), func(i, j int) { dropped[i], dropped[j] = dropped[j], dropped[i] })
		drop := func(b *holdfast.Bucket, i int) error { return b.Delete(suiteKey(dropped[i])) }
		if err := s.each(db, len(dropped), f.atOnce, drop); err != nil {
			return err
		}
		if err := fillSmall(db); err != nil {
			return err
		}
		return db.Sync()
	})
}

// commitKey is what a transaction does to commit one key of bucket small. The bucket's
// sequence counts these commits.
func commitKey(tx *holdfast.Tx) error {
	b := tx.Bucket(demoSmall)
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	return b.Put(demoKey(int(n%demoKeys)), suiteValue(n, demoSmallBytes))
}

// committed sees that the database has all commits that were acknowledged, and no more.
func committed(db *holdfast.DB, bucket []byte, n int64) error {
	return db.View(func(tx *holdfast.Tx) error {
		b := tx.Bucket(bucket)
		if b == nil {
			return errMissing
		}
		if has := b.Sequence(); has != uint64(n) {
			return fmt.Errorf("%w: %d commits were acknowledged, and the file has %d", errMissing, n, has)
		}
		return nil
	})
}
