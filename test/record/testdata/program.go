// Program changes two databases in the directory that it is given. It is built on bbolt with hooks.
package main

import (
	"errors"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/bbolt/internal/hook"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func fails(err error) {
	if err == nil {
		panic("no error")
	}
}

func must1[T any](v T, err error) T {
	must(err)
	return v
}

func phase(name string) {
	must(os.WriteFile(filepath.Join(os.Getenv(hook.Env), hook.Phase), []byte(name), 0o600))
}

func main() {
	dir := os.Args[1]
	one := must1(bbolt.Open(filepath.Join(dir, "one.db"), 0o600, nil))
	two := must1(bbolt.Open(filepath.Join(dir, "two.db"), 0o600, nil))
	must(one.Update(func(tx *bbolt.Tx) error { // before the first phase: not logged
		must1(tx.CreateBucket([]byte("early")))
		return nil
	}))
	phase("first")
	must(one.Update(func(tx *bbolt.Tx) error {
		a := must1(tx.CreateBucket([]byte("a")))
		must1(tx.CreateBucketIfNotExists([]byte("a")))
		must1(tx.CreateBucketIfNotExists([]byte("early")))
		b := must1(a.CreateBucketIfNotExists([]byte("b")))
		must(b.Put([]byte("k1"), nil))
		must(b.Put([]byte("k2"), []byte("four")))
		must(a.Put([]byte("k3"), make([]byte, 5000)))
		must(b.Delete([]byte("k1")))
		must(b.Delete([]byte("absent")))
		fails(b.Put(nil, nil))
		fails(a.Put([]byte("b"), nil))
		fails(a.Delete([]byte("b")))
		_, err := tx.CreateBucket([]byte("a"))
		fails(err)
		return nil
	}))
	must(one.Update(func(*bbolt.Tx) error { return nil }))
	fails(one.Update(func(tx *bbolt.Tx) error {
		must(tx.Bucket([]byte("a")).Put([]byte("rolled back"), nil))
		return errors.New("no")
	}))
	must(one.View(func(tx *bbolt.Tx) error {
		fails(tx.Bucket([]byte("a")).Bucket([]byte("b")).Put([]byte("read only"), nil))
		fails(tx.Bucket([]byte("a")).DeleteBucket([]byte("b")))
		return nil
	}))
	must(two.Batch(func(tx *bbolt.Tx) error {
		must1(tx.CreateBucket([]byte{0, 0xff}))
		return nil
	}))
	phase("second")
	must(one.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("a")).Bucket([]byte("b")).Cursor()
		c.First()
		must(c.Delete())
		return nil
	}))
	tx := must1(one.Begin(true))
	fails(tx.DeleteBucket([]byte("absent")))
	must(tx.DeleteBucket([]byte("a"))) // with b in it
	must(tx.Commit())
	fails(tx.Commit())
	if len(os.Args) > 2 {
		must(one.Update(func(tx *bbolt.Tx) error {
			return tx.MoveBucket([]byte("early"), nil, must1(tx.CreateBucket([]byte("to"))))
		}))
	}
	must(errors.Join(one.Close(), two.Close()))
}
