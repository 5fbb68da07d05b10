package blob_test

import (
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"holdfast"
	"holdfast/blob"
)

// newDB makes a database with an empty store of blobs in the bucket "blobs".
func newDB() (db *holdfast.DB, remove func()) {
	dir, err := os.MkdirTemp("", "blob")
	if err != nil {
		log.Fatal(err)
	}
	db, err = holdfast.Open(filepath.Join(dir, "example.db"), 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("blobs"))
		if err != nil {
			return err
		}
		_, err = blob.Create(b, blob.Options{})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}

func Example() {
	db, remove := newDB()
	defer remove()

	var ref blob.Ref
	err := db.Update(func(tx *holdfast.Tx) error {
		store, err := blob.Open(tx.Bucket([]byte("blobs")))
		if err != nil {
			return err
		}
		ref, err = store.Put([]byte("hello"))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ref, ref.Size())

	err = db.View(func(tx *holdfast.Tx) error {
		store, err := blob.Open(tx.Bucket([]byte("blobs")))
		if err != nil {
			return err
		}
		r, err := store.Reader(ref)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, io.NewSectionReader(r, 1, 3))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 5
	// ell
}

// A blob that comes from a pipe, of a length that is not known beforehand.
func ExampleStore_Writer() {
	db, remove := newDB()
	defer remove()

	pr, pw := io.Pipe()
	go func() {
		for range 100_000 {
			fmt.Fprintln(pw, "a line of a log")
		}
		pw.Close()
	}()
	err := db.Update(func(tx *holdfast.Tx) error {
		store, err := blob.Open(tx.Bucket([]byte("blobs")))
		if err != nil {
			return err
		}
		w := store.Writer()
		w.Concurrent(true) // hash on another core
		if _, err := w.ReadFrom(pr); err != nil {
			return err
		}
		ref, err := w.Commit()
		if err != nil {
			return err
		}
		fmt.Println(ref.Size(), "bytes, a tree of level", ref.Level())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: 1600000 bytes, a tree of level 1
}

// A row and the blob that it names, in one transaction: both are there, or neither.
func ExampleRef_AppendBinary() {
	db, remove := newDB()
	defer remove()

	err := db.Update(func(tx *holdfast.Tx) error {
		store, err := blob.Open(tx.Bucket([]byte("blobs")))
		if err != nil {
			return err
		}
		ref, err := store.Put([]byte(strings.Repeat("picture ", 1000)))
		if err != nil {
			return err
		}
		rows, err := tx.CreateBucketIfNotExists([]byte("rows"))
		if err != nil {
			return err
		}
		row, err := ref.AppendBinary(nil)
		if err != nil {
			return err
		}
		return rows.Put([]byte("row 1"), row)
	})
	if err != nil {
		log.Fatal(err)
	}

	err = db.View(func(tx *holdfast.Tx) error {
		store, err := blob.Open(tx.Bucket([]byte("blobs")))
		if err != nil {
			return err
		}
		var ref blob.Ref
		if err := ref.UnmarshalBinary(tx.Bucket([]byte("rows")).Get([]byte("row 1"))); err != nil {
			return err
		}
		r, err := store.Reader(ref)
		if err != nil {
			return err
		}
		start := make([]byte, 7)
		if _, err := r.ReadAt(start, 800); err != nil {
			return err
		}
		fmt.Printf("%s of %d bytes\n", start, r.Size())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: picture of 8000 bytes
}
