package holdfast

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"
)

func benchDB(b *testing.B, n int) *DB {
	db, err := Open(filepath.Join(b.TempDir(), "db"), 0600, &Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	for at := 0; at < n; {
		if err := db.Update(func(tx *Tx) error {
			bk, _ := tx.CreateBucketIfNotExists([]byte("b"))
			for i := 0; i < 10000 && at < n; i++ {
				if err := bk.Put(fmt.Appendf(nil, "key%08d", at), make([]byte, 100)); err != nil {
					return err
				}
				at++
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() { db.Close() })
	return db
}

func BenchmarkViewEmpty(b *testing.B) {
	db := benchDB(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		db.View(func(tx *Tx) error { return nil })
	}
}
func BenchmarkViewGet(b *testing.B) {
	db := benchDB(b, 100000)
	b.ReportAllocs()
	k := []byte("key00050000")
	bn := []byte("b")
	for b.Loop() {
		db.View(func(tx *Tx) error { tx.Bucket(bn).Get(k); return nil })
	}
}
func BenchmarkUpdate1(b *testing.B) {
	db := benchDB(b, 100000)
	b.ReportAllocs()
	k := []byte("key00050000")
	bn := []byte("b")
	v := make([]byte, 100)
	for b.Loop() {
		db.Update(func(tx *Tx) error { return tx.Bucket(bn).Put(k, v) })
	}
}
func BenchmarkPut1000(b *testing.B) {
	const n = 1000000
	db := benchDB(b, n)
	b.ReportAllocs()
	bn := []byte("b")
	v := make([]byte, 100)
	x := uint64(1)
	for b.Loop() {
		db.Update(func(tx *Tx) error {
			bk := tx.Bucket(bn)
			for i := 0; i < 1000; i++ {
				x = x*6364136223846793005 + 1442695040888963407
				if err := bk.Put(fmt.Appendf(nil, "key%08d", (x>>33)%n), v); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
func BenchmarkLoadSeq(b *testing.B) {
	for b.Loop() {
		benchDB(b, 2000000)
	}
}
func BenchmarkLoadRandom(b *testing.B) {
	for b.Loop() {
		db, err := Open(filepath.Join(b.TempDir(), "db"), 0600, &Options{NoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		x := uint64(1)
		for t := 0; t < 200; t++ {
			db.Update(func(tx *Tx) error {
				bk, _ := tx.CreateBucketIfNotExists([]byte("b"))
				for i := 0; i < 10000; i++ {
					x = x*6364136223846793005 + 1442695040888963407
					k := binary.BigEndian.AppendUint64(nil, x)
					if err := bk.Put(k, make([]byte, 100)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		b.Log(db.pager.Counts().BytesWritten.Load()>>20, db.Stats())
		db.Close()
	}
}
func BenchmarkScan(b *testing.B) {
	db := benchDB(b, 2000000)
	for b.Loop() {
		db.View(func(tx *Tx) error {
			c := tx.Bucket([]byte("b")).Cursor()
			n := 0
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				n++
			}
			if n != 2000000 {
				b.Fatal(n)
			}
			return nil
		})
	}
}
func BenchmarkRandomGet(b *testing.B) {
	db := benchDB(b, 2000000)
	x := uint64(1)
	b.ReportAllocs()
	key := make([]byte, 0, 20)
	db.View(func(tx *Tx) error {
		bk := tx.Bucket([]byte("b"))
		for b.Loop() {
			x = x*6364136223846793005 + 1442695040888963407
			key = fmt.Appendf(key[:0], "key%08d", (x>>33)%2000000)
			if bk.Get(key) == nil {
				b.Fatal()
			}
		}
		return nil
	})
}
