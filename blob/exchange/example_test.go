package exchange_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"holdfast"
	"holdfast/blob"
	"holdfast/blob/exchange"
)

// open opens the store of a transaction.
func open(tx *holdfast.Tx) (*blob.Store, error) { return blob.Open(tx.Bucket([]byte("blobs"))) }

// create makes a database with a store, and puts values into it.
func create(path string, values ...[]byte) (db *holdfast.DB, refs []blob.Ref, err error) {
	db, err = holdfast.Open(path, 0o600, nil)
	if err != nil {
		return nil, nil, err
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("blobs"))
		if err != nil {
			return err
		}
		s, err := blob.Create(b, blob.Options{})
		if err != nil {
			return err
		}
		for _, v := range values {
			ref, err := s.Put(v)
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
		return nil
	})
	return db, refs, err
}

// A blob is pushed to another store, and a changed one after it. A row there names it; then the lease is released.
func Example() {
	dir, err := os.MkdirTemp("", "exchange-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	video := make([]byte, 10<<20)
	changed := append(video[:len(video):len(video)], "more"...)
	here, refs, err := create(filepath.Join(dir, "here.db"), video, changed)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer here.Close()
	there, _, err := create(filepath.Join(dir, "there.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer there.Close()

	options := exchange.Options{Lease: "nightly", Expires: time.Now().Add(24 * time.Hour)}
	for _, ref := range refs {
		conn, peer := net.Pipe() // or a network connection, or pipes to ssh
		go func() { _ = exchange.Serve(context.Background(), peer, there, open, exchange.Options{}) }()
		stats, err := exchange.Push(context.Background(), conn, here, open, []blob.Ref{ref}, options)
		fmt.Printf("%d bytes held, %d sent, %v\n", stats.Bytes, stats.ChunkBytes, err)
	}

	err = there.Update(func(tx *holdfast.Tx) error {
		s, err := open(tx)
		if err != nil {
			return err
		}
		rows, err := tx.CreateBucket([]byte("videos"))
		if err != nil {
			return err
		}
		row, err := refs[1].MarshalBinary()
		if err == nil {
			err = rows.Put([]byte("cat"), row)
		}
		if err == nil {
			err = s.Retain(refs[1]) // for the row
		}
		if err != nil {
			return err
		}
		lease, err := s.Lease("nightly", time.Time{})
		if err != nil {
			return err
		}
		return lease.Release()
	})
	fmt.Println(err)
	// Output:
	// 10485760 bytes held, 78432 sent, <nil>
	// 10485764 bytes held, 8900 sent, <nil>
	// <nil>
}
