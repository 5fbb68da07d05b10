package blob_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"time"

	"holdfast"
	"holdfast/blob"
)

// inStore runs fn with the store of newDB in a writing transaction.
func inStore(db *holdfast.DB, fn func(store *blob.Store) error) {
	err := db.Update(func(tx *holdfast.Tx) error {
		store, err := blob.Open(tx.Bucket([]byte("blobs")))
		if err != nil {
			return err
		}
		return fn(store)
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A deleted blob is not held any more when its transaction has committed. Collect frees
// its space, in transactions of its own that others hardly notice.
func ExampleCollect() {
	db, remove := newDB()
	defer remove()

	inStore(db, func(store *blob.Store) error {
		ref, err := store.Put(bytes.Repeat([]byte("large "), 1<<20))
		if err != nil {
			return err
		}
		return store.Delete(ref)
	})

	open := func(tx *holdfast.Tx) (*blob.Store, error) { return blob.Open(tx.Bucket([]byte("blobs"))) }
	stats, err := blob.Collect(context.Background(), db, open, blob.CollectOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.Damaged, "damaged")

	inStore(db, func(store *blob.Store) error {
		usage, err := store.Usage()
		fmt.Println(usage.Leaves, "leaves,", usage.Dead, "dead chunks")
		return err
	})
	// Output:
	// 0 damaged
	// 0 leaves, 0 dead chunks
}

// What differs between two versions is found by their hashes: nothing that they share is read.
func ExampleStore_Diff() {
	db, remove := newDB()
	defer remove()

	inStore(db, func(store *blob.Store) error {
		content := make([]byte, 10<<20)
		for i := range content {
			content[i] = byte(i >> 16)
		}
		before, err := store.Put(content)
		if err != nil {
			return err
		}
		content[5<<20] = 1
		after, err := store.Put(append(content, "and more"...))
		if err != nil {
			return err
		}
		return store.Diff(before, after, func(r blob.Range) error {
			fmt.Println(r.Offset, r.Length, r.InA)
			return nil
		})
	})
	// Output:
	// 5239040 65488 true
	// 10478080 7680 true
	// 10485760 8 false
}

// An upload that is interrupted goes on where it was saved, in another transaction, or in another
// process after a restart.
func ExampleStore_Ingest() {
	db, remove := newDB()
	defer remove()

	content := bytes.Repeat([]byte("0123456789"), 100_000)
	inStore(db, func(store *blob.Store) error {
		upload, err := store.Ingest("upload 7", blob.IngestOptions{Size: int64(len(content))})
		if err != nil {
			return err
		}
		if _, err := upload.Write(content[:123_456]); err != nil {
			return err
		}
		return upload.Save()
	})

	inStore(db, func(store *blob.Store) error {
		upload, err := store.Ingest("upload 7", blob.IngestOptions{})
		if err != nil {
			return err
		}
		fmt.Println("goes on at", upload.Offset())
		if _, err := upload.Write(content[upload.Offset():]); err != nil {
			return err
		}
		ref, err := upload.Commit()
		fmt.Println(ref.Size(), "bytes")
		return err
	})
	// Output:
	// goes on at 123456
	// 1000000 bytes
}

// A lease holds a blob that no row names yet.
func ExampleStore_Lease() {
	db, remove := newDB()
	defer remove()

	inStore(db, func(store *blob.Store) error {
		ref, err := store.Put([]byte("fetched, and not used yet"))
		if err != nil {
			return err
		}
		lease, err := store.Lease("pull of image 7", time.Now().Add(time.Hour))
		if err != nil {
			return err
		}
		if err := lease.Add(ref); err != nil {
			return err
		}
		if err := store.Delete(ref); err != nil {
			return err
		}
		held, err := store.Has(ref)
		fmt.Println("held:", held)
		return err
	})
	// Output:
	// held: true
}

// Check finds what is wrong in a store.
func ExampleStore_Check() {
	db, remove := newDB()
	defer remove()

	inStore(db, func(store *blob.Store) error {
		if _, err := store.Put(bytes.Repeat([]byte("blob"), 100)); err != nil {
			return err
		}
		stats, err := store.Check(context.Background(), blob.CheckOptions{Data: true}, func(p blob.Problem) error {
			fmt.Println(p)
			return nil
		})
		fmt.Println(stats.Leaves, "leaf,", stats.Verified, "bytes verified,", stats.Problems, "problems")
		return err
	})
	// Output:
	// 1 leaf, 400 bytes verified, 0 problems
}
