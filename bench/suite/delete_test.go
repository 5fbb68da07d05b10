package suite

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/test/stock/ops"
)

// deletions are the ways in which programs empty a bucket key by key. Each returns how many
// keys it has deleted.
func deletions[B ops.Bucket[B, C], C ops.Cursor](b B, how string) (n int, err error) {
	c := b.Cursor()
	switch how {
	case "first": // First, Delete
		for k, _ := c.First(); k != nil && err == nil; k, _ = c.First() {
			n, err = n+1, b.Delete(k)
		}
	case "first-cursor": // First, Cursor.Delete
		for k, _ := c.First(); k != nil && err == nil; k, _ = c.First() {
			n, err = n+1, c.Delete()
		}
	case "seek": // Seek from the key that is gone
		for k, _ := c.First(); k != nil && err == nil; k, _ = c.Seek(k) {
			n, err = n+1, c.Delete()
		}
	case "cursor": // Next, Cursor.Delete
		for k, _ := c.First(); k != nil && err == nil; k, _ = c.Next() {
			n, err = n+1, c.Delete()
		}
	case "half": // every second key
		for k, _ := c.First(); k != nil && err == nil; k, _ = c.Next() {
			if n++; n%2 == 0 {
				err = c.Delete()
			}
		}
	case "foreach": // keys first, then Delete of each
		var keys [][]byte
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			keys = append(keys, k)
		}
		for ; n < len(keys) && err == nil; n++ {
			err = b.Delete(keys[n])
		}
	case "random":
		order := rand.New(rand.NewPCG(1, 2)).Perm(deletedKeys)
		var key [8]byte
		for ; n < len(order) && err == nil; n++ {
			binary.BigEndian.PutUint64(key[:], uint64(order[n]))
			err = b.Delete(key[:])
		}
	case "last":
		for k, _ := c.Last(); k != nil && err == nil; k, _ = c.Last() {
			n, err = n+1, b.Delete(k)
		}
	}
	return n, err
}

const deletedKeys = 100_000

func fillForDelete[B ops.Bucket[B, C], C ops.Cursor](b B) error {
	value := make([]byte, 100)
	for i := range deletedKeys {
		var key [8]byte
		binary.BigEndian.PutUint64(key[:], uint64(i))
		if err := b.Put(key[:], value); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkDelete empties a bucket of 100,000 keys key by key, in one transaction, and gives the fastest run: keys
// that were committed before, or put in the same transaction, which is then rolled back; or ("whole") keys that were
// committed before, with the commit of the deletion, without a flush.
func BenchmarkDelete(b *testing.B) {
	for _, put := range []string{"committed", "same", "whole"} {
		for _, how := range []string{"first", "first-cursor", "seek", "cursor", "half", "foreach", "random", "last"} {
			b.Run(put+"/"+how+"/stock", func(b *testing.B) {
				db, err := bbolt.Open(filepath.Join(b.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
				must(b, err)
				defer db.Close()
				benchmarkDelete(b, put, how, func() (*bbolt.Tx, error) { return db.Begin(true) })
			})
			b.Run(put+"/"+how+"/holdfast", func(b *testing.B) {
				db, err := holdfast.Open(filepath.Join(b.TempDir(), "db"), 0o600, &holdfast.Options{NoSync: true})
				must(b, err)
				defer db.Close()
				benchmarkDelete(b, put, how, func() (*holdfast.Tx, error) { return db.Begin(true) })
			})
		}
	}
}

func benchmarkDelete[T interface {
	CreateBucketIfNotExists([]byte) (B, error)
	Bucket([]byte) B
	Commit() error
	Rollback() error
}, B ops.Bucket[B, C], C ops.Cursor](b *testing.B, put, how string, begin func() (T, error)) {
	tx, err := begin()
	must(b, err)
	bucket, err := tx.CreateBucketIfNotExists(bucketName)
	must(b, err)
	if put == "committed" {
		must(b, fillForDelete[B, C](bucket))
	}
	must(b, tx.Commit())
	fastest := math.Inf(1)
	for range b.N {
		if put == "whole" {
			tx, err := begin()
			must(b, err)
			must(b, fillForDelete[B, C](tx.Bucket(bucketName)))
			must(b, tx.Commit())
		}
		tx, err := begin()
		must(b, err)
		bucket := tx.Bucket(bucketName)
		if put == "same" {
			must(b, fillForDelete[B, C](bucket))
		}
		began := time.Now()
		n, err := deletions[B, C](bucket, how)
		must(b, err)
		if put == "whole" {
			must(b, tx.Commit())
		}
		fastest = min(fastest, float64(time.Since(began).Nanoseconds())/float64(n))
		if put != "whole" {
			must(b, tx.Rollback())
		}
	}
	b.ReportMetric(fastest, "ns/key")
	b.ReportMetric(0, "ns/op")
}
