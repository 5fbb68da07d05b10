package blob_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"

	"holdfast"
	"holdfast/blob"
)

// A store that is encrypted is opened with its key only.
func ExampleOpenEncrypted() {
	db, remove := newDB()
	defer remove()

	var secret [32]byte // keep it, and not with the database
	_, _ = rand.Read(secret[:])
	key, err := blob.NewKey(secret)
	if err != nil {
		log.Fatal(err)
	}
	var ref blob.Ref
	err = db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("secrets"))
		if err != nil {
			return err
		}
		store, err := blob.Create(b, blob.Options{Key: key})
		if err == nil {
			ref, err = store.Put([]byte("for your eyes only"))
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	err = db.View(func(tx *holdfast.Tx) error {
		_, err := blob.Open(tx.Bucket([]byte("secrets")))
		fmt.Println("without the key:", errors.Is(err, blob.ErrKey))
		store, err := blob.OpenEncrypted(tx.Bucket([]byte("secrets")), key)
		if err != nil {
			return err
		}
		r, err := store.Reader(ref)
		if err != nil {
			return err
		}
		p, err := io.ReadAll(r)
		fmt.Printf("with it: %s\n", p)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// without the key: true
	// with it: for your eyes only
}
