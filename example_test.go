package holdfast_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdfast"
)

// fruit opens a database with a bucket of fruits and their colors.
func fruit() (db *holdfast.DB, closeDB func()) {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Fatal(err)
	}
	db, err = holdfast.Open(filepath.Join(dir, "fruit.db"), 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("fruit"))
		if err != nil {
			return err
		}
		for _, f := range [][2]string{{"apple", "red"}, {"banana", "yellow"}, {"cherry", "red"}, {"lime", "green"}, {"plum", "blue"}} {
			if err := b.Put([]byte(f[0]), []byte(f[1])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		if err := db.Close(); err != nil {
			log.Fatal(err)
		}
		os.RemoveAll(dir)
	}
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	// Wait a second, and not for ever, if another process has it open.
	db, err := holdfast.Open(filepath.Join(dir, "my.db"), 0o600, &holdfast.Options{Timeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fmt.Println(db.IsReadOnly())
	// Output: false
}

func ExampleDB_Update() {
	db, closeDB := fruit()
	defer closeDB()

	err := db.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket([]byte("fruit"))
		if err := b.Put([]byte("apple"), []byte("green")); err != nil {
			return err
		}
		return fmt.Errorf("but there are no green apples")
	})
	fmt.Println(err)

	_ = db.View(func(tx *holdfast.Tx) error {
		fmt.Printf("apples are still %s\n", tx.Bucket([]byte("fruit")).Get([]byte("apple")))
		return nil
	})
	// Output:
	// but there are no green apples
	// apples are still red
}

func ExampleDB_View() {
	db, closeDB := fruit()
	defer closeDB()

	var color []byte
	err := db.View(func(tx *holdfast.Tx) error {
		// The value is good until the transaction ends: keep a copy.
		color = bytes.Clone(tx.Bucket([]byte("fruit")).Get([]byte("plum")))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(color))
	// Output: blue
}

func ExampleDB_Begin() {
	db, closeDB := fruit()
	defer closeDB()

	reader, err := db.Begin(false)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Rollback() // every transaction must be ended

	writer, err := db.Begin(true)
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Rollback() // does nothing after Commit
	if err := writer.Bucket([]byte("fruit")).Delete([]byte("plum")); err != nil {
		log.Fatal(err)
	}
	if err := writer.Commit(); err != nil {
		log.Fatal(err)
	}

	fmt.Printf("the reader still sees plums: %s\n", reader.Bucket([]byte("fruit")).Get([]byte("plum")))
	// Output: the reader still sees plums: blue
}

func ExampleDB_Batch() {
	db, closeDB := fruit()
	defer closeDB()

	// Many goroutines share few commits.
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			err := db.Batch(func(tx *holdfast.Tx) error {
				key := binary.BigEndian.AppendUint64(nil, uint64(i))
				return tx.Bucket([]byte("fruit")).Put(key, []byte("new"))
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()

	_ = db.View(func(tx *holdfast.Tx) error {
		fmt.Println(tx.Bucket([]byte("fruit")).Stats().KeyN)
		return nil
	})
	// Output: 105
}

func ExampleBucket_All() {
	db, closeDB := fruit()
	defer closeDB()

	_ = db.View(func(tx *holdfast.Tx) error {
		for name, color := range tx.Bucket([]byte("fruit")).All() {
			fmt.Printf("%s %s\n", color, name)
		}
		return tx.Err() // did the loop end early, because of damage?
	})
	// Output:
	// red apple
	// yellow banana
	// red cherry
	// green lime
	// blue plum
}

func ExampleBucket_Range() {
	db, closeDB := fruit()
	defer closeDB()

	_ = db.View(func(tx *holdfast.Tx) error {
		for name := range tx.Bucket([]byte("fruit")).Range([]byte("b"), []byte("m")) {
			fmt.Println(string(name))
		}
		return tx.Err()
	})
	// Output:
	// banana
	// cherry
	// lime
}

func ExampleBucket_Prefix() {
	db, closeDB := fruit()
	defer closeDB()

	_ = db.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket([]byte("fruit"))
		for name := range b.Prefix([]byte("b")) {
			if err := b.Delete(name); err != nil { // a loop may delete
				return err
			}
		}
		for name := range b.All() {
			fmt.Println(string(name))
		}
		return nil
	})
	// Output:
	// apple
	// cherry
	// lime
	// plum
}

func ExampleBucket_Backward() {
	db, closeDB := fruit()
	defer closeDB()

	_ = db.View(func(tx *holdfast.Tx) error {
		for name := range tx.Bucket([]byte("fruit")).Backward() {
			fmt.Println("the last one is", string(name))
			break
		}
		return tx.Err()
	})
	// Output: the last one is plum
}

func ExampleCursor() {
	db, closeDB := fruit()
	defer closeDB()

	// All keys that begin with "b" or "c", and what stands before them.
	_ = db.View(func(tx *holdfast.Tx) error {
		c := tx.Bucket([]byte("fruit")).Cursor()
		for k, v := c.Seek([]byte("b")); k != nil && k[0] <= 'c'; k, v = c.Next() {
			fmt.Printf("%s %s\n", v, k)
		}
		c.Seek([]byte("b"))
		k, _ := c.Prev()
		fmt.Println("before them:", string(k))
		return tx.Err()
	})
	// Output:
	// yellow banana
	// red cherry
	// before them: apple
}

func ExampleBucket_CreateBucket() {
	db, closeDB := fruit()
	defer closeDB()

	// Buckets in buckets. A nested bucket looks like a key without a value.
	err := db.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket([]byte("fruit"))
		berries, err := b.CreateBucket([]byte("berries"))
		if err != nil {
			return err
		}
		if err := berries.Put([]byte("strawberry"), []byte("red")); err != nil {
			return err
		}
		for k, v := range b.Range([]byte("b"), []byte("c")) {
			fmt.Println(string(k), v == nil)
		}
		id, err := berries.NextSequence()
		fmt.Println("berry number", id)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	_ = db.View(func(tx *holdfast.Tx) error {
		color := tx.Bucket([]byte("fruit")).Bucket([]byte("berries")).Get([]byte("strawberry"))
		fmt.Println(string(color))
		return nil
	})
	// Output:
	// banana false
	// berries true
	// berry number 1
	// red
}

func ExampleTx_WriteTo() {
	db, closeDB := fruit()
	defer closeDB()

	// A backup, while the database is in use.
	var backup bytes.Buffer
	err := db.View(func(tx *holdfast.Tx) error {
		n, err := tx.WriteTo(&backup)
		fmt.Println("all of it:", n == tx.Size())
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: all of it: true
}

func ExampleTx_Check() {
	db, closeDB := fruit()
	defer closeDB()

	_ = db.View(func(tx *holdfast.Tx) error {
		for fault := range tx.Check() {
			fmt.Println(fault)
		}
		fmt.Println("checked")
		return nil
	})
	// Output: checked
}

func ExampleDB_Stats() {
	db, closeDB := fruit()
	defer closeDB()

	before := db.Stats()
	for i := range 3 {
		err := db.Update(func(tx *holdfast.Tx) error {
			return tx.Bucket([]byte("fruit")).Put([]byte("kiwi"), []byte{byte(i)})
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	now := db.Stats()
	d := now.Sub(&before)
	log.Printf("%d flushes, %d bytes written, 99%% of the commits within %s",
		d.Flushes, d.BytesWritten, d.CommitLatency.Quantile(0.99))
	fmt.Println(d.Commits, "commits in", d.CommitGroups, "groups")
	// Output: 3 commits in 3 groups
}

func ExampleSettle() {
	db, closeDB := fruit()
	defer closeDB()
	backup := db.Path() + ".copy"
	if err := db.View(func(tx *holdfast.Tx) error { return tx.CopyFile(backup, 0o600) }); err != nil {
		log.Fatal(err)
	}

	found, err := holdfast.Settle(backup, holdfast.SettleOptions{Timeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("bbolt would have been behind:", found.BboltBehind)
	// Output: bbolt would have been behind: false
}

func ExampleCompact() {
	src, closeSrc := fruit()
	defer closeSrc()

	path := src.Path() + ".compact"
	dst, err := holdfast.Open(path, 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dst.Close()
	if err := holdfast.Compact(dst, src, 1<<20); err != nil { // transactions of 1 MiB
		log.Fatal(err)
	}
	_ = dst.View(func(tx *holdfast.Tx) error {
		fmt.Printf("%s\n", tx.Bucket([]byte("fruit")).Get([]byte("lime")))
		return nil
	})
	// Output: green
}
